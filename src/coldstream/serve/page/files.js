// Images in by drag and drop or a file dialog, labels and learner out.

import { byId, element, name, plural } from "./dom.js";

const AT_ONCE = 12_000_000; // bytes of one request; the server takes 20 MB
const MOST = 40;
const LARGEST = 20_000_000;
const IMAGE = /\.(jpe?g|png|webp|gif|bmp|tiff?)$/i;
const EXPORTS = [
  ["csv", "Labels as CSV", "one line an image: file, label, who labelled it"],
  ["jsonl", "Labels as JSON lines", "the same, with confidence and time"],
  ["folders", "Images in folders (zip)", "one folder a class, as most tools read them"],
  ["label-studio", "Label Studio JSON", "to import as annotated tasks"],
  ["learner", "The learner (zip)", "to go on with in Python: ColdStart.load"],
];

/** Files of a drop, with those in dropped folders. */
async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files];
  const files = [];
  async function walk(entry) {
    if (entry.isFile) files.push(await new Promise((resolve, reject) => entry.file(resolve, reject)));
    else if (entry.isDirectory) {
      const reader = entry.createReader();
      let part;
      do {
        part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
        for (const inner of part) await walk(inner);
      } while (part.length);
    }
  }
  for (const entry of entries) await walk(entry);
  return files;
}

function* batches(files) {
  let batch = [];
  let bytes = 0;
  for (const file of files) {
    if (batch.length && (bytes + file.size > AT_ONCE || batch.length >= MOST)) {
      yield batch;
      [batch, bytes] = [[], 0];
    }
    batch.push(file);
    bytes += file.size;
  }
  if (batch.length) yield batch;
}

export class Files {
  #busy = false;

  constructor(session, { tell }) {
    this.session = session;
    this.tell = tell;
    for (const id of ["files", "folder"]) {
      byId(id).addEventListener("change", ({ target }) => {
        this.add([...target.files]);
        target.value = "";
      });
    }
    this.#drawExports();
    this.#listenForDrops();
  }

  async add(files) {
    if (this.#busy) {
      this.tell("An upload is going on. Try again when it is done.", true);
      return;
    }
    const images = files.filter(({ name: file, type }) => type.startsWith("image/") || IMAGE.test(file));
    const refused = images
      .filter(({ size }) => size > LARGEST)
      .map((file) => ({ name: file.name, error: "larger than 20 MB" }));
    const good = images.filter(({ size }) => size <= LARGEST);
    if (!images.length) {
      this.tell("There are no images among these files.", true);
      return;
    }
    this.#busy = true;
    let added = 0;
    let done = 0;
    try {
      for (const batch of batches(good)) {
        this.#state(`Adding ${done + 1} to ${done + batch.length} of ${plural(good.length, "image")} …`);
        const answer = await this.session.api.upload(batch);
        added += answer.added.length;
        refused.push(...answer.refused);
        done += batch.length;
      }
      this.#state(`${plural(added, "image")} added${refused.length ? `, ${refused.length} refused` : ""}.`);
    } catch (error) {
      this.#state(
        `${plural(added, "image")} added, then: ${error.message} Add the files again; none is taken twice.`,
      );
    } finally {
      this.#busy = false;
    }
    this.#drawRefused(refused);
    await this.session.refresh().catch(() => {});
    this.session.feed.fill();
  }

  #state(text) {
    byId("upload-state").textContent = text;
    this.tell(text);
  }

  #drawRefused(refused) {
    byId("refused").replaceChildren(
      ...refused.slice(0, 100).map(({ name: file, error }) => element("li", {}, name(file), `: ${error}`)),
    );
  }

  #drawExports() {
    byId("exports").replaceChildren(
      ...EXPORTS.map(([format, title, text]) =>
        element(
          "li",
          {},
          element("a", { href: this.session.api.address("export", { format }), download: true, text: title }),
          element("span", { class: "muted", text }),
        ),
      ),
    );
  }

  #listenForDrops() {
    const veil = byId("drop");
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      veil.hidden = false;
    });
    addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) veil.hidden = true;
    });
    addEventListener("drop", async (event) => {
      veil.hidden = true;
      if (!hasFiles(event)) return;
      event.preventDefault();
      this.add(await dropped(event.dataTransfer));
    });
  }
}

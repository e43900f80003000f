// The view that labels: the image, its guess, the classes, the last labels. Nothing here waits for the server.

import { byId, percent, plural } from "./dom.js";
import { ClassButtons } from "./classes.js";
import { ClassField } from "./class-field.js";
import { Strip } from "./strip.js";

const REMEMBERED = 500;
const WHY = {
  audit: ["Audit", "Drawn at random. Only audit images count for the estimates of accuracy."],
  doubt: ["Doubt", "The network is unsure about this image."],
  coverage: ["Coverage", "Unlike anything that was labelled."],
  random: ["Random", "Drawn at random."],
};

export class LabelView {
  #shown = null;
  #undoing = Promise.resolve();
  #seen = new Map();

  constructor(session, { correct, tell }) {
    this.session = session;
    this.tell = tell;
    this.buttons = new ClassButtons(byId("classes"), session, (label, event) => this.#clicked(label, event));
    this.strip = new Strip(session, correct);
    this.field = new ClassField(byId("class-field"), {
      label: "Class of this image",
      placeholder: matchMedia("(hover: hover)").matches
        ? "Type a class, new or known  ( / )"
        : "A class, new or known",
      classes: () => this.#likeliest(),
      choose: (label) => {
        this.label(label);
        byId("stage").focus({ preventScroll: true });
      },
      empty: () => this.accept(),
      leave: () => byId("stage").focus({ preventScroll: true }),
    });
    byId("accept").addEventListener("click", (event) => this.#act(event, () => this.accept()));
    byId("skip").addEventListener("click", (event) => this.#act(event, () => this.skip()));
    byId("undo").addEventListener("click", () => this.undo());
    session.feed.addEventListener("ready", () => this.#shown ?? this.#next());
    session.feed.addEventListener("state", () => this.#note());
    session.feed.addEventListener("guess", () => this.#drawGuess());
    session.addEventListener("status", () => {
      this.#drawClasses();
      this.#note();
    });
    session.addEventListener("labels", ({ detail }) => this.#relabelled(detail));
    session.feed.fill();
    this.#next();
  }

  /** The image on the screen as the server gave it, or null. */
  get item() {
    return this.#shown?.item ?? null;
  }

  accept() {
    const guess = this.item?.guess;
    if (guess) this.label(guess.label);
  }

  /** Label with the class of the key 1 to 9. */
  press(number) {
    const label = this.session.classes[number - 1];
    if (label !== undefined) this.label(label);
  }

  label(label) {
    const item = this.item;
    if (!item) return;
    const guess = item.guess && { label: item.guess.label, confidence: item.guess.confidence };
    this.session.open(label);
    this.session.outbox.add("label", { image: item.image, label, guess: guess ?? null });
    this.#next();
    this.strip.add(item, label);
    this.#announce(`Labelled ${label}.`);
  }

  skip() {
    const item = this.item;
    if (!item) return;
    this.session.outbox.add("skip", { image: item.image });
    this.#next();
    this.#announce("Skipped.");
  }

  /** Take back the last act; of several in a row, each waits for the one before. */
  undo() {
    this.#undoing = this.#undoing.then(() => this.#undoOne());
  }

  async #undoOne() {
    const unsent = this.session.outbox.takeBack("label", "skip");
    if (unsent) {
      const { image } = unsent.body;
      this.strip.remove(image);
      await this.#showAgain(this.#seen.get(image));
      this.tell("Taken back.");
      return;
    }
    try {
      const { undone, item } = await this.session.outbox.add("undo", {});
      if (!undone) {
        this.tell("There is nothing to undo.");
        return;
      }
      if (undone.kind === "relabel") this.tell("The correction was taken back.");
      else {
        this.strip.remove(undone.image);
        await this.#showAgain(item);
        this.tell(undone.kind === "skip" ? "The skip was taken back." : `“${undone.label}” was taken back.`);
      }
      this.strip.load();
      await this.session.refresh();
    } catch {
      // A refusal is told by the outbox; a lost connection by the banner.
    }
  }

  focusField() {
    this.field.focus();
  }

  #likeliest() {
    const ranked = (this.item?.guess?.ranked ?? []).map(([label]) => label);
    const classes = this.session.classes;
    return [
      ...ranked.filter((label) => classes.includes(label)),
      ...classes.filter((label) => !ranked.includes(label)),
    ];
  }

  #clicked(label, event) {
    this.#act(event, () => this.label(label));
  }

  /** After a click with the mouse, Enter must accept the next guess, not press the same button again. */
  #act(event, act) {
    act();
    if (event.detail > 0) byId("stage").focus({ preventScroll: true });
  }

  #relabelled({ path, body }) {
    const images = path === "label-many" ? body.images : [];
    this.session.feed.drop(images);
    if (images.includes(this.item?.image)) this.#next();
  }

  async #showAgain(item) {
    if (!item) return;
    const shown = await this.session.feed.putBack(this.#shown, item);
    this.#show(shown);
  }

  #next() {
    this.#show(this.session.feed.take() ?? null);
  }

  #show(shown) {
    this.#shown = shown;
    const item = this.item;
    if (item) this.#remember(item);
    const picture = shown?.picture;
    byId("picture").replaceChildren(...(picture ? [picture] : []));
    if (picture) {
      picture.alt = `Image ${item.name}`;
      const small = Math.max(picture.naturalWidth, picture.naturalHeight) <= 96;
      picture.toggleAttribute("data-small", small);
    }
    byId("stage").dataset.image = item?.image ?? "";
    byId("file-name").textContent = item?.name ?? "";
    this.#showWhy(item);
    this.#drawGuess();
    this.#note();
    byId("skip").disabled = !item;
    if (item && this.session.classes.length === 0 && !byId("view-label").hidden) this.field.focus();
  }

  /** Keep what was shown for as long as it may have to be shown again. */
  #remember(item) {
    this.#seen.delete(item.image);
    this.#seen.set(item.image, item);
    if (this.#seen.size > REMEMBERED) this.#seen.delete(this.#seen.keys().next().value);
  }

  #showWhy(item) {
    const chip = byId("why");
    const [word, reason] = WHY[item?.audit ? "audit" : item?.why] ?? [];
    chip.hidden = !word;
    chip.textContent = word ?? "";
    chip.title = reason ?? "";
    chip.dataset.why = item?.audit ? "audit" : (item?.why ?? "");
  }

  #drawGuess() {
    const guess = this.item?.guess;
    byId("guess").dataset.sure = guess
      ? guess.confidence >= 0.9
        ? "high"
        : guess.confidence >= 0.6
          ? "middle"
          : "low"
      : "none";
    byId("guess-label").textContent = guess?.label ?? (this.item ? "No guess yet" : "");
    byId("guess-confidence").textContent = guess ? percent(guess.confidence) : "";
    byId("accept").disabled = !guess;
    this.#drawClasses();
  }

  #drawClasses() {
    this.buttons.show(this.item?.guess);
  }

  #note() {
    const note = byId("stage-note");
    if (this.#shown) note.textContent = this.#shown.picture ? "" : "This image cannot be shown. Skip it.";
    else note.textContent = this.#missing();
    note.hidden = !note.textContent;
  }

  /** Why no image is on the screen. */
  #missing() {
    const { state, reason } = this.session.feed;
    const { images, remaining, skipped } = this.session.status;
    if (state === "lost") return reason ?? "The server does not answer.";
    if (images === 0) return "No images yet. Drop some here.";
    if (state !== "done" || remaining > 0) return "Loading …";
    if (skipped) return `${plural(skipped, "image was", "images were")} skipped, all others have a label.`;
    return "Every image has a label.";
  }

  #announce(text) {
    const guess = this.item?.guess;
    const next = guess ? ` Next image: ${guess.label}, ${percent(guess.confidence)}.` : " Next image.";
    byId("announce").textContent = text + (this.item ? next : "");
  }
}

// Images by class, the most doubtful first; several can be selected and labelled at once.

import { byId, count, element, name, percent, plural, thumbnail } from "./dom.js";
import { ClassField } from "./class-field.js";

const PAGE = 60;
const MOST = 1_000; // images of one request
const EMPTY = {
  human: "Nothing is labelled here yet.",
  guess: "No guesses here: everything is labelled, or nothing was learned yet.",
  machine: "The network has labelled nothing here. “What it knows” says when it can.",
};

export class Gallery {
  #items = [];
  #total = 0;
  #selected = new Set();
  #at = 0;
  #anchor = 0;
  #request = 0;

  constructor(session, { open, tell }) {
    this.session = session;
    this.open = open;
    this.tell = tell;
    this.grid = byId("gallery");
    this.who = byId("gallery-who");
    this.class = byId("gallery-class");
    this.who.addEventListener("change", () => this.load());
    this.class.addEventListener("change", () => this.load());
    byId("gallery-more").addEventListener("click", () => this.load(this.#items.length));
    byId("selection-clear").addEventListener("click", () => this.#select([]));
    byId("selection-forget").addEventListener("click", () => this.#forget());
    byId("selection-confirm").addEventListener("click", () => this.label(this.class.value));
    this.field = new ClassField(byId("selection-field"), {
      label: "Class of the selected images",
      placeholder: "Label as …",
      classes: () => this.session.classes,
      choose: (label) => this.label(label),
      leave: () => this.#focus(this.#at),
    });
    this.grid.addEventListener("click", (event) => this.#clicked(event));
    this.grid.addEventListener("dblclick", (event) => this.#opened(event.target.closest("li")));
    this.grid.addEventListener("keydown", (event) => this.#key(event));
    session.addEventListener("status", () => this.#drawClasses());
    session.addEventListener("labels", () => this.visible && this.load());
  }

  get visible() {
    return !byId("view-gallery").hidden;
  }

  /** Load the images from number `offset` on; from 0 the selection is dropped. */
  async load(offset = 0) {
    this.#drawClasses();
    const request = ++this.#request;
    const query = { by: "doubt", who: this.who.value, class: this.class.value || null, offset, count: PAGE };
    this.grid.setAttribute("aria-busy", "true");
    try {
      const { items, total } = await this.session.api.get("gallery", query);
      if (request !== this.#request) return; // another filter was chosen in the meantime
      this.#items = offset ? [...this.#items, ...items] : items;
      this.#total = total;
      if (!offset) {
        this.#selected.clear();
        this.#at = 0;
      }
      this.#draw();
      this.grid.setAttribute("aria-busy", "false");
    } catch (error) {
      this.tell(error.message, true);
    }
  }

  /** Label all selected images. */
  async label(label) {
    const images = [...this.#selected];
    if (!images.length || !label) return;
    this.session.open(label);
    const path = this.who.value === "guess" ? "label-many" : "relabel";
    for (let start = 0; start < images.length; start += MOST) {
      const part = images.slice(start, start + MOST);
      await this.#act(path, { images: part, label }, `${plural(part.length, "image")} labelled “${label}”.`);
    }
  }

  async #forget() {
    const images = [...this.#selected];
    try {
      const sent = images.map((image) => this.session.outbox.add("forget", { image }));
      this.#select([]);
      await Promise.all(sent);
      await this.session.refresh();
      this.session.dispatchEvent(new CustomEvent("labels", { detail: { path: "forget", body: { images } } }));
      this.tell(`${plural(images.length, "label")} removed.`);
    } catch {
      // A refusal is told by the outbox.
    }
  }

  async #act(path, body, text) {
    this.#select([]);
    try {
      await this.session.change(path, body);
      this.tell(text);
    } catch {
      // A refusal is told by the outbox.
    }
  }

  #drawClasses() {
    const names = this.session.classes;
    const shown = [...this.class.options].slice(1).map(({ value }) => value);
    const before = this.class.value;
    if (
      !this.class.options.length ||
      names.length !== shown.length ||
      names.some((label, at) => label !== shown[at])
    ) {
      const options = names.map((text) => element("option", { value: text, text }));
      this.class.replaceChildren(element("option", { value: "", text: "all" }), ...options);
      this.class.value = names.includes(before) ? before : "";
    }
  }

  #draw() {
    this.grid.replaceChildren(...this.#items.map((item, place) => this.#tile(item, place)));
    byId("gallery-total").textContent = plural(this.#total, "image") + ", the most doubtful first";
    byId("gallery-more").hidden = this.#items.length >= this.#total;
    const empty = byId("gallery-empty");
    empty.hidden = this.#items.length > 0;
    empty.textContent = EMPTY[this.who.value];
    this.#drawSelection();
  }

  #tile(item, place) {
    const { image, url, label, guess, confidence, by } = item;
    const wrong = label && guess && label !== guess;
    const shown = label ?? guess ?? "no guess";
    const sure = typeof confidence === "number" ? percent(confidence) : "";
    return element(
      "li",
      {
        role: "option",
        tabindex: place === this.#at ? "0" : "-1",
        "aria-selected": String(this.#selected.has(image)),
        "aria-label": wrong ? `${shown}; the network says ${guess}, ${sure}` : `${shown} ${sure}`,
        data: { image, ...(wrong ? { wrong: "" } : {}), ...(by === "machine" ? { machine: "" } : {}) },
      },
      element("img", { src: thumbnail(url), alt: "", loading: "lazy", decoding: "async" }),
      element(
        "span",
        { class: "tile-text" },
        name(shown),
        element("span", { class: "sure", text: wrong ? "" : sure }),
      ),
      wrong ? element("span", { class: "tile-guess" }, "guess ", name(guess), ` ${sure}`) : null,
    );
  }

  #select(images) {
    this.#selected = new Set(images);
    this.#drawSelection();
  }

  #drawSelection() {
    const number = this.#selected.size;
    for (const tile of this.grid.children) {
      tile.setAttribute("aria-selected", String(this.#selected.has(tile.dataset.image)));
    }
    byId("selection").hidden = number === 0;
    byId("selection-count").textContent = `${count(number)} selected`;
    const label = this.class.value;
    const confirm = byId("selection-confirm");
    confirm.hidden = !label || this.who.value === "human";
    confirm.replaceChildren("Yes, ", name(label));
    byId("selection-forget").hidden = this.who.value === "guess";
  }

  #clicked(event) {
    const tile = event.target.closest("li");
    if (!tile) return;
    const place = [...this.grid.children].indexOf(tile);
    if (event.shiftKey) this.#range(place);
    else this.#toggle(place);
    this.#focus(place);
  }

  #opened(tile) {
    const item = this.#items.find(({ image }) => image === tile?.dataset.image);
    if (!item?.label) return;
    this.#select([]);
    this.open({ ...item, guess: item.guess ? { label: item.guess, confidence: item.confidence } : null });
  }

  #toggle(place) {
    const { image } = this.#items[place];
    if (!this.#selected.delete(image)) this.#selected.add(image);
    this.#anchor = place;
    this.#drawSelection();
  }

  #range(place) {
    const [first, last] = [Math.min(this.#anchor, place), Math.max(this.#anchor, place)];
    const range = this.#items.slice(first, last + 1).map(({ image }) => image);
    this.#select([...this.#selected, ...range]);
  }

  #focus(place) {
    this.grid.children[this.#at]?.setAttribute("tabindex", "-1");
    this.#at = place;
    const tile = this.grid.children[place];
    tile?.setAttribute("tabindex", "0");
    tile?.focus();
  }

  #key(event) {
    if (!this.#items.length) return;
    const columns = getComputedStyle(this.grid).gridTemplateColumns.split(" ").length;
    const last = this.#items.length - 1;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -last, End: last };
    if (event.key in steps) {
      const place = Math.max(0, Math.min(last, this.#at + steps[event.key]));
      if (event.shiftKey) this.#range(place);
      else this.#anchor = place;
      this.#focus(place);
    } else if (event.key === " ") this.#toggle(this.#at);
    else if (event.key === "Enter") this.#opened(this.grid.children[this.#at]);
    else if (event.key === "a" && (event.ctrlKey || event.metaKey))
      this.#select(this.#items.map(({ image }) => image));
    else if (event.key === "Escape") this.#select([]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

// Type-ahead over the classes: a text field with a list of what fits, and the offer to open a new class.

import { element, name } from "./dom.js";

const SHOWN = 8;
const LONGEST = 200;
let count = 0;

/** Classes that fit `text`: the same, then those that begin with it, with a word of it, or contain it. */
export function fitting(text, classes) {
  const wanted = text.trim().toLowerCase();
  const rank = (candidate) => {
    const lower = candidate.toLowerCase();
    if (candidate === text.trim()) return 0;
    if (lower === wanted) return 1;
    if (lower.startsWith(wanted)) return 2;
    if (lower.split(/[\s_\-/.]+/u).some((word) => word.startsWith(wanted))) return 3;
    return lower.includes(wanted) ? 4 : 5;
  };
  const ranked = classes.map((candidate, place) => ({ candidate, place, rank: rank(candidate) }));
  return ranked
    .filter((one) => one.rank < 5)
    .sort((a, b) => a.rank - b.rank || a.place - b.place)
    .map((one) => one.candidate);
}

export class ClassField {
  #options = [];
  #active = -1;

  /**
   * `classes()` lists the names, the likeliest first; `choose(name)` takes the person's choice;
   * `empty()` is called for Enter in an empty field; `leave()` for Escape.
   */
  constructor(root, { label, placeholder, classes, choose, empty = () => {}, leave = () => {} }) {
    const id = `classes-${count++}`;
    this.classes = classes;
    this.choose = choose;
    this.list = element("ul", {
      class: "choices",
      id,
      role: "listbox",
      "aria-label": "Classes that fit",
      hidden: true,
    });
    this.input = element("input", {
      type: "text",
      role: "combobox",
      "aria-autocomplete": "list",
      "aria-expanded": "false",
      "aria-controls": id,
      "aria-label": label,
      placeholder,
      maxlength: LONGEST,
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      enterkeyhint: "done",
      dir: "auto",
    });
    this.input.addEventListener("input", () => this.#suggest());
    this.input.addEventListener("focus", () => this.#suggest());
    this.input.addEventListener("blur", () => this.close());
    this.input.addEventListener("keydown", (event) => this.#key(event, empty, leave));
    root.classList.add("class-field");
    root.append(this.input, this.list);
  }

  focus() {
    this.input.focus();
  }

  get text() {
    return this.input.value;
  }

  clear() {
    this.input.value = "";
    this.close();
  }

  close() {
    this.list.hidden = true;
    this.#active = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  #suggest() {
    const text = this.input.value.trim();
    const classes = this.classes();
    const fits = fitting(text, classes).slice(0, SHOWN);
    this.#options = fits.map((label) => ({ label, fresh: false }));
    if (text && !classes.includes(text)) this.#options.push({ label: text, fresh: true });
    this.list.replaceChildren(...this.#options.map((option, place) => this.#line(option, place)));
    this.list.hidden = this.#options.length === 0;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    this.#activate(text ? 0 : -1);
  }

  #line({ label, fresh }, place) {
    const line = element("li", { role: "option", id: `${this.list.id}-${place}`, "aria-selected": "false" });
    if (fresh) line.append(element("span", { class: "new", text: "New class" }));
    line.append(name(label));
    line.addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
    line.addEventListener("click", () => this.#take(label));
    return line;
  }

  #activate(place) {
    this.#active = place;
    [...this.list.children].forEach((line, other) => line.setAttribute("aria-selected", String(other === place)));
    const line = this.list.children[place];
    if (line) this.input.setAttribute("aria-activedescendant", line.id);
    else this.input.removeAttribute("aria-activedescendant");
    line?.scrollIntoView({ block: "nearest" });
  }

  #key(event, empty, leave) {
    if (event.isComposing) return;
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves && this.#options.length) {
      event.preventDefault();
      const size = this.#options.length;
      const from = this.#active < 0 && event.key === "ArrowUp" ? 0 : this.#active;
      this.#activate((from + moves[event.key] + size) % size);
    } else if (event.key === "Enter" && !event.repeat) {
      event.preventDefault();
      if (event.shiftKey && this.text.trim()) this.#take(this.text.trim());
      else if (this.#active >= 0) this.#take(this.#options[this.#active].label);
      else if (this.text.trim()) this.#take(this.text.trim());
      else empty();
    } else if (event.key === "Escape") {
      if (this.text) {
        event.preventDefault();
        event.stopPropagation(); // the first Escape empties the field, the second leaves it
      }
      this.clear();
      if (!event.defaultPrevented) leave();
    }
  }

  #take(label) {
    this.clear();
    this.choose(label.normalize("NFC")); // as the server keeps it: what looks the same is the same class
  }
}

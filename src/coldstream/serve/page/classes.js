// Classes as buttons. The first nine have the keys 1 to 9; their order never changes under the person's fingers.

import { byId, count, element, name, setVariable } from "./dom.js";

export class ClassButtons {
  #buttons = new Map();

  constructor(root, session, choose) {
    this.root = root;
    this.session = session;
    this.choose = choose;
  }

  /** Draw the buttons; `guess` marks one of them and gives each its share of the probability. */
  show(guess) {
    const classes = this.session.classes;
    const names = [...this.#buttons.keys()];
    if (classes.length !== names.length || classes.some((label, place) => label !== names[place]))
      this.#rebuild(classes);
    const shares = new Map(guess?.ranked ?? []);
    for (const [label, { button, number }] of this.#buttons) {
      number.textContent = count(this.session.countOf(label));
      setVariable(button, "--share", String(shares.get(label) ?? 0));
      button.toggleAttribute("data-guessed", guess?.label === label);
    }
  }

  #rebuild(classes) {
    this.#buttons.clear();
    classes.forEach((label, place) => {
      const number = element("span", { class: "count" });
      const key = place < 9 ? String(place + 1) : null;
      const button = element(
        "button",
        {
          type: "button",
          class: "class-button",
          title: label,
          "aria-keyshortcuts": key,
          on: { click: (event) => this.choose(label, event) },
        },
        key ? element("kbd", { text: key }) : element("span", { class: "no-key" }),
        name(label),
        number,
      );
      this.#buttons.set(label, { button, number });
    });
    this.root.replaceChildren(...[...this.#buttons.values()].map(({ button }) => button));
  }
}

/** The dialog that renames a class or merges it into another. */
export function renaming(session, told) {
  const dialog = byId("rename");
  const [from, into, field, error] = ["rename-class", "merge-into", "rename-name", "rename-error"].map(byId);
  const choices = (select, names) => {
    const before = select.value;
    select.replaceChildren(...names.map((text) => element("option", { value: text, text })));
    if (names.includes(before)) select.value = before;
  };
  const targets = () =>
    choices(
      into,
      session.classes.filter((other) => other !== from.value),
    );

  async function change(path, body, text) {
    error.textContent = "";
    try {
      dialog.close();
      await session.change(path, body);
      told(text);
    } catch (reason) {
      error.textContent = reason.message;
      if (!dialog.open) dialog.showModal();
    }
  }

  from.addEventListener("change", targets);
  byId("rename-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const [old, fresh] = [from.value, field.value.trim().normalize("NFC")];
    if (!fresh || fresh === old) return;
    if (session.classes.includes(fresh)) {
      error.textContent = `There is a class “${fresh}” already. Merge into it instead.`;
      into.value = fresh;
      return;
    }
    field.value = "";
    change("rename", { old, new: fresh }, `Renamed “${old}” to “${fresh}”.`);
  });
  byId("merge-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const [old, target] = [from.value, into.value];
    if (old && target) change("merge", { old, into: target }, `Merged “${old}” into “${target}”.`);
  });

  return () => {
    error.textContent = "";
    choices(from, session.classes);
    targets();
    dialog.showModal();
  };
}

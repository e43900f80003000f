// Dialogs: correcting one label, and asking before something large is done.

import { byId, element, name, ownUrl, percent } from "./dom.js";
import { ClassField } from "./class-field.js";

/** Ask a question; the promise holds whether the answer was yes. */
export function confirmed(title, text, yes) {
  const dialog = byId("confirm");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** The dialog that corrects the label of one image: call the result with an entry of the strip or the gallery. */
export function correcting(session, told) {
  const dialog = byId("correct");
  let entry = null;

  async function act(path, body, text) {
    dialog.close();
    try {
      await session.change(path, body);
      told(text);
    } catch {
      // A refusal is told by the outbox.
    }
  }
  const choose = (label) => act("relabel", { images: [entry.image], label }, `Corrected to “${label}”.`);
  const field = new ClassField(byId("correct-field"), {
    label: "Right class",
    placeholder: "Type the right class",
    classes: () => session.classes,
    choose,
    leave: () => dialog.close(),
  });
  byId("correct-forget").addEventListener("click", () =>
    act("forget", { image: entry.image }, "The label was removed."),
  );

  return (chosen) => {
    entry = chosen;
    const picture = element("img", { src: ownUrl(entry.url), alt: `Image ${entry.name}` });
    byId("correct-picture").replaceChildren(picture);
    const guess = entry.guess
      ? ["The guess was ", name(entry.guess.label), ` (${percent(entry.guess.confidence)}).`]
      : [];
    byId("correct-note").replaceChildren("Labelled ", name(entry.label), ". ", ...guess);
    const buttons = session.classes.map((label) =>
      element(
        "button",
        {
          type: "button",
          class: "class-button",
          "aria-pressed": String(label === entry.label),
          on: { click: () => choose(label) },
        },
        name(label),
      ),
    );
    byId("correct-classes").replaceChildren(...buttons);
    field.clear();
    dialog.showModal();
    field.close();
  };
}

// Keys of the whole page. Fields and dialogs keep theirs.

import { byId } from "./dom.js";

const SINGLE = "coldstream-single-keys";

export function followKeys(label) {
  const single = byId("single-keys");
  const help = byId("help");
  single.checked = localStorage.getItem(SINGLE) !== "off";
  single.addEventListener("change", () => localStorage.setItem(SINGLE, single.checked ? "on" : "off"));
  byId("help-open").addEventListener("click", () => help.showModal());

  const labelling = () => !byId("view-label").hidden;
  const places = { g: "gallery", k: "knows", l: "label" };

  /** Do what a single key asks for; false if it asks for nothing. */
  function press(key) {
    if (key === "?") help.showModal();
    else if (key in places) location.hash = places[key];
    else if (!labelling()) return false;
    else if (/^[1-9]$/.test(key)) label.press(Number(key));
    else if (key === "s") label.skip();
    else if (key === "/") label.focusField();
    else return false;
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.isComposing || document.querySelector("dialog[open]")) return;
    const { target } = event;
    const inField = target.matches("input:not([type=checkbox]), select, textarea");
    const undoing =
      event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
    if (undoing) {
      if (inField && target.value && target.matches("input")) return; // the field's own undo
      event.preventDefault();
      if (!event.repeat) label.undo();
      return;
    }
    if (inField || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") {
      if (!labelling() || target.closest("button, a, summary")) return; // the focused control's own key
      event.preventDefault();
      if (!event.repeat) label.accept();
    } else if (single.checked && !(event.repeat && /^[1-9s]$/i.test(event.key)) && press(event.key.toLowerCase())) {
      event.preventDefault();
    }
  });
}

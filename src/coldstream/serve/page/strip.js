// The last labels: each can be opened and corrected.

import { byId, element, name, percent, thumbnail } from "./dom.js";

const SHOWN = 24;

export class Strip {
  #entries = [];

  constructor(session, open) {
    this.session = session;
    this.open = open;
    this.list = byId("strip");
    session.addEventListener("labels", () => this.load());
    this.load();
  }

  async load() {
    try {
      const { items } = await this.session.api.get("recent", { count: SHOWN });
      const sent = new Set(items.map(({ image }) => image));
      const unsent = new Set(this.session.outbox.images);
      const waiting = this.#entries.filter(({ image }) => unsent.has(image) && !sent.has(image));
      this.#show([...waiting, ...items]);
    } catch {
      // The strip stays as it is until the connection is back.
    }
  }

  /** A label that was just given. */
  add(item, label) {
    const right = item.guess ? item.guess.label === label : null;
    const others = this.#entries.filter(({ image }) => image !== item.image);
    this.#show([{ ...item, label, right }, ...others]);
  }

  remove(image) {
    this.#show(this.#entries.filter((entry) => entry.image !== image));
  }

  #show(entries) {
    const before = new Map(this.#entries.map((entry, place) => [entry, this.list.children[place]]));
    this.#entries = entries.slice(0, SHOWN);
    this.list.replaceChildren(...this.#entries.map((entry) => before.get(entry) ?? this.#line(entry)));
  }

  #line(entry) {
    const { url, label, guess, right, audit } = entry;
    const verdict =
      right === null || right === undefined
        ? "no guess"
        : right
          ? "guessed right"
          : `guess was ${guess?.label ?? "wrong"}`;
    const sure = guess && typeof guess.confidence === "number" ? `, ${percent(guess.confidence)}` : "";
    const button = element(
      "button",
      {
        type: "button",
        "aria-label": `${label}; ${verdict}${audit ? "; audit image" : ""}. Correct`,
        title: `${label} (${verdict}${sure})`,
        data: { right: String(right ?? "none"), ...(audit ? { audit: "" } : {}) },
        on: { click: () => this.open(entry) },
      },
      element("img", { src: thumbnail(url), alt: "", loading: "lazy", decoding: "async" }),
      name(label),
    );
    return element("li", {}, button);
  }
}

// The images to come: three with their guesses, loaded and decoded before they are needed.

import { ownUrl } from "./dom.js";

const DEPTH = 3;
const PAUSE = 1_500;

async function load(item) {
  const picture = new Image();
  picture.alt = "";
  picture.decoding = "sync";
  picture.src = ownUrl(item.url);
  try {
    await picture.decode();
    return { item, picture };
  } catch {
    return { item, picture: null };
  }
}

/** Events: `ready` (an image can be taken), `guess` (the image on the screen has its first guess), `state`. `state` is "loading", "ready", "done" or "lost". */
export class Feed extends EventTarget {
  #api;
  #ready = [];
  #filling = false;
  #timer = null;
  #shown = null;
  #busyImages;

  /** `busyImages()` lists images that unsent acts speak of: the server still believes them to be free. */
  constructor(api, busyImages) {
    super();
    this.#api = api;
    this.#busyImages = busyImages;
    this.state = "loading";
  }

  /** The next {item, picture}, or undefined if none is there yet. */
  take() {
    const next = this.#ready.shift();
    this.#shown = next?.item ?? null;
    this.fill();
    return next;
  }

  /** Put `shown` back in front, for an image that comes before it. */
  async putBack(shown, item) {
    if (shown) this.#ready.unshift(shown);
    this.#shown = item;
    this.#ready = this.#ready.filter((other) => other.item.image !== item.image);
    return load(item);
  }

  /** Forget images that were labelled elsewhere. */
  drop(images) {
    const gone = new Set(images);
    this.#ready = this.#ready.filter(({ item }) => !gone.has(item.image));
    this.fill();
  }

  async fill() {
    if (this.#filling || this.#ready.length >= DEPTH) return;
    this.#filling = true;
    clearTimeout(this.#timer);
    let again = false;
    try {
      const known = [...this.#known(), ...this.#busyImages()];
      const wanted = DEPTH - this.#ready.length;
      const { items } = await this.#api.get("next", { count: wanted, not: known.slice(-100) });
      const loaded = await Promise.all(items.map(load));
      const busy = new Set([...this.#known(), ...this.#busyImages()]);
      const fresh = loaded.filter(({ item }) => !busy.has(item.image));
      this.#ready.push(...fresh);
      again = fresh.length > 0 && this.#ready.length < DEPTH;
      this.#setState(this.#ready.length ? "ready" : items.length ? "loading" : "done");
      if (!fresh.length && items.length) this.#later();
      if (fresh.length) this.dispatchEvent(new Event("ready"));
    } catch (error) {
      this.#setState(this.#ready.length ? "ready" : "lost");
      this.reason = error.message;
      this.#later();
    } finally {
      this.#filling = false;
    }
    if (again) this.fill();
  }

  /** Ask for the newest guesses for the images to come. A guess on the screen does not change under the person's eyes. */
  async refreshGuesses() {
    const waiting = this.#shown && !this.#shown.guess ? [this.#shown] : [];
    const items = [...waiting, ...this.#ready.map(({ item }) => item)];
    if (!items.length) return;
    try {
      const { guesses } = await this.#api.get("guess", { image: items.map(({ image }) => image) });
      for (const item of items) {
        if (item === this.#shown && item.guess) continue; // it came to the screen in the meantime
        item.guess = guesses[item.image] ?? item.guess;
        if (item === this.#shown && item.guess) this.dispatchEvent(new Event("guess"));
      }
    } catch {
      // The older guess is good enough; the lost connection is told elsewhere.
    }
  }

  /** Images on the screen and to come. */
  #known() {
    return [...(this.#shown ? [this.#shown] : []), ...this.#ready.map(({ item }) => item)].map(({ image }) => image);
  }

  #later() {
    this.#timer = setTimeout(() => this.fill(), PAUSE);
  }

  #setState(state) {
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}

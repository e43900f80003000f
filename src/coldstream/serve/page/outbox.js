// Acts of the person on their way to the server. An act stays here, and in the browser's storage, until the server has
// acknowledged it. Each carries a request key, so that sending it twice does it once. Order is kept.

const FIRST_PAUSE = 400;
const LONGEST_PAUSE = 5_000;

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join(
    "",
  );
}

/** Events: `change`, `refused` (detail: {entry, error}), `trouble` (detail: error), `sent`. */
export class Outbox extends EventTarget {
  #post;
  #prefix;
  #entries = [];
  #waiters = new Map();
  #sending = null;
  #pause = 0;
  #timer = null;
  #count = 0;

  constructor(project, post, storage = localStorage) {
    super();
    this.#post = post;
    this.#prefix = `coldstream-outbox:${project}:`;
    this.storage = storage;
    this.persistent = true;
    this.#adopt();
  }

  get length() {
    return this.#entries.length;
  }

  /** Images that unsent acts speak of. */
  get images() {
    return this.#entries.flatMap(({ body }) => body.images ?? (body.image ? [body.image] : []));
  }

  /** Send `body` to `path`: the promise holds the server's answer, or the reason for which it refused for good. */
  add(path, body) {
    const key = newKey();
    const order = `${String(Date.now()).padStart(14, "0")}-${String(this.#count++).padStart(6, "0")}`;
    const entry = { path, body: { ...body, key }, tried: false, place: `${this.#prefix}${order}-${key}` };
    this.#keep(entry);
    this.#entries.push(entry);
    const answer = new Promise((resolve, reject) => this.#waiters.set(entry, { resolve, reject }));
    answer.catch(() => {}); // a refusal is also told by the event `refused`
    this.#changed();
    this.#send();
    return answer;
  }

  /** Take back the last act, one of `paths`, if it has certainly not reached the server; return it, or null. */
  takeBack(...paths) {
    const entry = this.#entries.at(-1);
    if (!entry || !paths.includes(entry.path) || entry.tried || this.#triedElsewhere(entry)) return null;
    this.#remove(entry);
    this.#waiters.get(entry)?.reject(new Error("taken back"));
    this.#waiters.delete(entry);
    return entry;
  }

  /** Try at once, without the rest of the pause. */
  retry() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#pause = 0;
    this.#send();
  }

  async #send() {
    if (this.#sending || this.#timer !== null) return;
    while (this.#entries.length && this.#timer === null) {
      const entry = this.#entries[0];
      this.#sending = entry;
      if (!entry.tried) {
        entry.tried = true;
        this.#keep(entry);
      }
      try {
        const answer = await this.#post(entry.path, entry.body);
        this.#pause = 0;
        this.#remove(entry);
        this.#waiters.get(entry)?.resolve(answer);
        this.dispatchEvent(new CustomEvent("sent", { detail: { entry, answer } }));
      } catch (error) {
        if (error.mayPass) this.#wait(error);
        else {
          this.#remove(entry);
          this.#waiters.get(entry)?.reject(error);
          this.dispatchEvent(new CustomEvent("refused", { detail: { entry, error } }));
        }
      } finally {
        this.#sending = null;
        if (!this.#entries.includes(entry)) this.#waiters.delete(entry);
      }
    }
  }

  #wait(error) {
    this.#pause = Math.min(this.#pause ? 2 * this.#pause : FIRST_PAUSE, LONGEST_PAUSE);
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#send();
    }, this.#pause);
    this.dispatchEvent(new CustomEvent("trouble", { detail: error }));
  }

  #keep(entry) {
    if (!this.persistent) return;
    try {
      this.storage.setItem(entry.place, JSON.stringify({ path: entry.path, body: entry.body, tried: entry.tried }));
    } catch {
      this.persistent = false; // storage full or forbidden: what is unsent lives as long as this tab
    }
  }

  #triedElsewhere(entry) {
    try {
      const kept = this.storage.getItem(entry.place);
      return this.persistent && (kept === null || JSON.parse(kept).tried);
    } catch {
      return true;
    }
  }

  #remove(entry) {
    this.#entries = this.#entries.filter((other) => other !== entry);
    try {
      this.storage.removeItem(entry.place);
    } catch {
      this.persistent = false;
    }
    this.#changed();
  }

  /** Take over what an earlier visit could not send. */
  #adopt() {
    try {
      const places = Object.keys(this.storage).filter((place) => place.startsWith(this.#prefix));
      for (const place of places.sort()) {
        const { path, body } = JSON.parse(this.storage.getItem(place));
        const entry = { path, body, tried: true, adopted: true, place };
        this.#keep(entry); // another tab that still has it may no longer take it back unsent
        this.#entries.push(entry);
      }
    } catch {
      this.persistent = false;
    }
    this.#send();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

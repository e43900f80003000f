// What all parts of the page share: the project's status, the connection, the outbox and the images to come.

import { Api } from "./api.js";
import { Feed } from "./feed.js";
import { Outbox } from "./outbox.js";

const REOPEN = 1_500;

/** Events: `status`, `connection`, `labels` (labels changed other than by labelling the next image). */
export class Session extends EventTarget {
  #opened = new Set();

  constructor(project, status) {
    super();
    this.project = project;
    this.api = new Api(project);
    this.status = status;
    this.connected = true;
    this.trouble = null;
    this.outbox = new Outbox(status.id ?? project, (path, body) => this.api.post(path, body));
    this.feed = new Feed(this.api, () => this.outbox.images);
    this.outbox.addEventListener("sent", ({ detail: { entry, answer } }) => {
      this.#setConnected(true);
      if (answer.status) this.#setStatus(answer.status);
      if (entry.adopted && !this.outbox.length) this.#announce(entry); // what the page shows did not know of it
    });
    this.outbox.addEventListener("trouble", ({ detail: error }) => this.#setConnected(error.status !== 0, error));
    addEventListener("online", () => this.outbox.retry());
    this.#listen();
  }

  /** Names of the classes, in order of first appearance; those just opened are at the end. */
  get classes() {
    const known = this.status.classes.map(({ name }) => name);
    return [...known, ...[...this.#opened].filter((name) => !known.includes(name))];
  }

  countOf(name) {
    return this.status.classes.find((other) => other.name === name)?.count ?? 0;
  }

  /** A class that the server has not heard of yet. */
  open(name) {
    if (!this.classes.includes(name)) this.#opened.add(name);
  }

  /** Labels of several images were changed: `images` left the state in which they were shown. */
  async change(path, body) {
    const answer = await this.outbox.add(path, body);
    await this.refresh();
    this.#announce({ path, body });
    return answer;
  }

  #announce({ path, body }) {
    this.dispatchEvent(new CustomEvent("labels", { detail: { path, body } }));
  }

  async refresh() {
    this.#setStatus(await this.api.get("status"));
  }

  #setStatus(status) {
    if (status.seq < this.status.seq) return; // an older answer that was overtaken
    const learned = status.learning.updates !== this.status.learning.updates;
    this.status = status;
    const known = new Set(status.classes.map(({ name }) => name));
    if (!this.outbox.length) this.#opened.clear();
    this.#opened = new Set([...this.#opened].filter((name) => !known.has(name)));
    this.dispatchEvent(new Event("status"));
    if (learned) this.feed.refreshGuesses();
    if (["done", "loading"].includes(this.feed.state) && status.remaining > 0) this.feed.fill();
  }

  #setConnected(connected, error = null) {
    const before = this.connected;
    this.connected = connected;
    this.trouble = error;
    if (connected && !before && !error) {
      this.outbox.retry();
      this.feed.fill();
    }
    this.dispatchEvent(new Event("connection"));
  }

  #listen() {
    const events = new EventSource(this.api.address("events"));
    events.addEventListener("open", async () => {
      try {
        const status = await this.api.get("status");
        this.status.seq = Math.min(this.status.seq, status.seq); // the server may have been started afresh
        this.#setStatus(status);
        this.#setConnected(true);
      } catch {
        // The next event or request tells.
      }
    });
    events.addEventListener("status", ({ data }) => this.#setStatus(JSON.parse(data)));
    events.addEventListener("error", () => {
      events.close();
      this.#setConnected(false);
      setTimeout(() => this.#listen(), REOPEN);
    });
  }
}

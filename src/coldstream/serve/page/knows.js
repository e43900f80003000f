// "What it knows": estimates from audit images, the promise, and taking over.

import { byId, count, element, finePercent, percent, plural } from "./dom.js";
import { curve, perClass, reliability } from "./charts.js";
import { confirmed } from "./dialogs.js";

const PAUSE = 1_500;
const WANTED = [0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995];

export class Knows {
  #knows = null;
  #loading = false;
  #again = false;
  #timer = null;
  #shown = -1;

  constructor(session, { tell }) {
    this.session = session;
    this.tell = tell;
    this.wanted = byId("wanted");
    this.wanted.replaceChildren(
      ...WANTED.map((share) => element("option", { value: String(share), text: `${+(100 * share).toFixed(1)}%` })),
    );
    this.wanted.value = localStorage.getItem("coldstream-wanted") ?? "0.95";
    if (!this.wanted.value) this.wanted.value = "0.95";
    this.wanted.addEventListener("change", () => {
      localStorage.setItem("coldstream-wanted", this.wanted.value);
      this.load();
    });
    byId("take-over").addEventListener("click", () => this.#takeOver());
    session.addEventListener("labels", () => this.visible && this.load());
    session.addEventListener("status", () => this.visible && this.#soon());
  }

  get visible() {
    return !byId("view-knows").hidden;
  }

  /** Load what is newer than what is shown, but not at every event. */
  #soon() {
    if (this.#timer || this.session.status.seq === this.#shown) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      if (this.visible) this.load();
    }, PAUSE);
  }

  async load() {
    if (this.#loading) {
      this.#again = true;
      return;
    }
    this.#loading = true;
    try {
      this.#shown = this.session.status.seq;
      this.#knows = await this.session.api.get("knows", { accuracy: this.wanted.value });
      this.#draw();
    } catch (error) {
      this.tell(error.message, true);
    } finally {
      this.#loading = false;
    }
    if (this.#again) {
      this.#again = false;
      this.load();
    }
  }

  #draw() {
    this.#drawPromise();
    const { accuracy, curve: points, reliability: bins, classes, ece, audited } = this.#knows;
    byId("accuracy").textContent = accuracy ? finePercent(accuracy.value) : "–";
    byId("accuracy-interval").textContent = accuracy
      ? `${percent(accuracy.low)} to ${percent(accuracy.high)}, from the last ${plural(accuracy.n, "audit image")}`
      : "no audit images yet";
    const nothing = () => element("p", { class: "notice", text: "Nothing to draw yet." });
    byId("curve").replaceChildren(points.length > 1 ? curve(points) : nothing());
    const filled = bins.filter(({ n }) => n > 0);
    byId("reliability").replaceChildren(filled.length ? reliability(bins) : nothing());
    byId("reliability-note").textContent = filled.length
      ? "Bars on the line: it is as sure as it is right. " +
        `Expected calibration error ${ece.toFixed(3)} on ${plural(audited, "audit image")}.`
      : "";
    byId("per-class").replaceChildren(classes.length ? perClass(classes) : nothing());
  }

  #drawPromise() {
    const { promise, accepts = [] } = this.#knows;
    const wanted = percentOf(promise.wanted);
    const line = byId("promise-line");
    const button = byId("take-over");
    const level = percentOf(promise.confidence_level);
    button.hidden = !promise.ready || promise.count === 0;
    if (promise.ready && promise.count > 0) {
      line.replaceChildren(
        `At ${wanted} accuracy it can label `,
        element("strong", { text: count(promise.count) }),
        ` of the ${count(promise.remaining)} remaining images by itself.`,
      );
      button.textContent = `Let it label ${plural(promise.count, "image")}`;
      byId("promise-reason").textContent =
        `It takes guesses with a confidence of at least ${finePercent(promise.threshold)}. With ${level} confidence, ` +
        `at least ${finePercent(promise.bound)} of such guesses are right, ` +
        `judged by ${plural(this.#knows.audited, "audit image")}.`;
    } else {
      line.textContent = promise.ready
        ? `At ${wanted} accuracy it cannot label any of the ${count(promise.remaining)} remaining images yet.`
        : "Not enough audited labels yet.";
      byId("promise-reason").textContent = promise.reason ?? "";
    }
    byId("accepts").replaceChildren(...accepts.map((accept) => this.#acceptLine(accept)));
  }

  #acceptLine(accept) {
    const text =
      `${plural(accept.count, "image")} labelled by the network, confidence at least ${finePercent(accept.threshold)}` +
      (accept.revoked ? " (revoked)" : "");
    const revoke = element("button", { type: "button", text: "Revoke", on: { click: () => this.#revoke(accept) } });
    return element("li", { data: accept.revoked ? { revoked: "" } : {} }, text, accept.revoked ? null : revoke);
  }

  async #takeOver() {
    const { promise } = this.#knows;
    const text =
      "They are marked as labelled by the network, are not learned as truth, and can be revoked all at once. " +
      `Accuracy wanted: ${percentOf(promise.wanted)}.`;
    const yes = await confirmed(
      `Let the network label ${plural(promise.count, "image")}?`,
      text,
      `Label ${count(promise.count)}`,
    );
    if (!yes) return;
    await this.#change(
      "accept",
      { accuracy: Number(this.wanted.value) },
      ({ count: number }) => `${plural(number, "image")} labelled by the network.`,
    );
  }

  async #revoke(accept) {
    const title = `Revoke ${plural(accept.count, "label")} of the network?`;
    if (!(await confirmed(title, "The images that were not corrected since are unlabelled again.", "Revoke"))) return;
    await this.#change("revoke", { seq: accept.seq }, () => `${plural(accept.count, "label")} revoked.`);
  }

  async #change(path, body, text) {
    try {
      const answer = await this.session.change(path, body);
      this.tell(text(answer));
    } catch {
      // A refusal is told by the outbox.
    }
    this.load();
  }
}

const percentOf = (share) => `${+(100 * share).toFixed(1)}%`;

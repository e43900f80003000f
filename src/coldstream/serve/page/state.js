// The line that says how learning, saving and the connection are.

import { byId, count, plural } from "./dom.js";

const LEARNING = {
  ready: "up to date",
  learning: "learning",
  rehearsing: "rehearsing",
  recovering: "recovering",
  failed: "learning failed",
};

export function showState(session) {
  const learning = byId("learning");
  const saving = byId("saving");
  const banner = byId("banner");
  byId("state").hidden = false;

  function draw() {
    const {
      labelled,
      remaining,
      learning: { state, behind },
      health,
    } = session.status;
    learning.dataset.state = state;
    learning.textContent = behind > 0 ? `learning, ${count(behind)} behind` : (LEARNING[state] ?? state);
    learning.title = health === "ok" ? `${plural(session.status.learning.updates, "update")}` : health;
    const waiting = session.outbox.length;
    const unsent = waiting > 0 && !(session.connected && waiting < 3 && !session.trouble);
    saving.dataset.state = unsent ? "waiting" : "ready";
    saving.textContent = unsent
      ? `${plural(waiting, "label")} waiting`
      : `${count(labelled)} labelled, ${count(remaining)} left`;
    drawBanner(waiting);
  }

  function drawBanner(waiting) {
    const kept = waiting ? ` ${plural(waiting, "act is", "acts are")} kept in this browser and will be sent.` : "";
    let text = "";
    if (session.trouble?.status === 507) text = `The server's disk is full.${kept}`;
    else if (session.trouble?.status === 401 || session.trouble?.status === 403) {
      text = `The server asks for its token: open the address that it printed when it started.${kept}`;
    } else if (!session.connected) text = `No connection to the server. Go on labelling.${kept}`;
    else if (session.trouble) text = `${session.trouble.message}${kept}`;
    else if (session.status.learning.state === "failed")
      text = `Learning has failed; labels are kept. ${session.status.health}`;
    if (waiting && !session.outbox.persistent) text += " This browser stores nothing: keep this page open.";
    if (banner.textContent !== text) banner.textContent = text;
    banner.hidden = !text;
  }

  for (const event of ["status", "connection"]) session.addEventListener(event, draw);
  session.outbox.addEventListener("change", draw);
  addEventListener("beforeunload", (event) => {
    if (session.outbox.length && !session.outbox.persistent) event.preventDefault();
  });
  draw();
}

// The start of the page: choose the project, join the parts, take the keys.

import { projects } from "./api.js";
import { renaming } from "./classes.js";
import { correcting } from "./dialogs.js";
import { byId, count, element, name, plural } from "./dom.js";
import { Files } from "./files.js";
import { Gallery } from "./gallery.js";
import { Api } from "./api.js";
import { Knows } from "./knows.js";
import { LabelView } from "./label.js";
import { Session } from "./session.js";
import { followKeys } from "./keys.js";
import { showState } from "./state.js";

const VIEWS = ["label", "gallery", "knows", "files"];

let hiding;
function tell(text, isError = false) {
  const toast = byId("toast");
  toast.textContent = text;
  toast.toggleAttribute("data-error", isError);
  toast.dataset.shown = "";
  clearTimeout(hiding);
  hiding = setTimeout(() => delete toast.dataset.shown, isError ? 10_000 : 4_000);
}

function showProjects(known) {
  byId("view-projects").hidden = false;
  byId("projects").replaceChildren(
    ...known.map((project) => {
      const link = element("a", { href: `?project=${encodeURIComponent(project.name)}` }, name(project.name));
      const text = `${plural(project.images, "image")}, ${count(project.labelled)} labelled`;
      return element("li", { class: "card" }, link, element("span", { class: "muted", text }));
    }),
  );
}

function start(project, status) {
  const session = new Session(project, status);
  byId("project").replaceChildren(name(project));
  document.title = `${project} · Coldstream`;
  session.outbox.addEventListener("refused", ({ detail: { error } }) => tell(`Not done: ${error.message}`, true));
  const correct = correcting(session, tell);
  const rename = renaming(session, tell);
  const label = new LabelView(session, { correct, tell });
  const gallery = new Gallery(session, { open: correct, tell });
  const knows = new Knows(session, { tell });
  new Files(session, { tell });
  showState(session);
  byId("edit-classes").addEventListener("click", rename);
  byId("views").hidden = false;

  function show() {
    const chosen = VIEWS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "label";
    for (const view of VIEWS) byId(`view-${view}`).hidden = view !== chosen;
    for (const link of byId("views").children) {
      if (link.hash === `#${chosen}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.body.dataset.view = chosen;
    if (chosen === "gallery") gallery.load();
    if (chosen === "knows") knows.load();
  }
  addEventListener("hashchange", show);
  show();
  followKeys(label);
}

async function main() {
  const here = new URL(location.href);
  if (here.searchParams.has("token")) {
    here.searchParams.delete("token"); // the server has put it into a cookie; keep it out of history and links
    history.replaceState(null, "", here);
  }
  const { projects: known } = await projects();
  const asked = here.searchParams.get("project");
  const project = known.length === 1 && !asked ? known[0].name : known.find((one) => one.name === asked)?.name;
  if (project === undefined) showProjects(known);
  else start(project, await new Api(project).get("status"));
}

main().catch((error) => {
  const banner = byId("banner");
  banner.hidden = false;
  banner.textContent = `${error.message} Reload the page to try again.`;
});

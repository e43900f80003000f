// Elements of the page. Text only ever becomes text: no function here parses markup.

export const byId = (id) => document.getElementById(id);

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** An HTML element; `text` is its text, `on` its listeners, `data` its data-attributes, the rest attributes. */
export function element(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for a part of an SVG drawing. */
export function shape(tag, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

/** A name given by people or files, kept apart from the text around it whatever its direction. */
export const name = (text, properties = {}) => element("bdi", { class: "name", ...properties, text });

/** `0.873` as "87%". */
export const percent = (share) => `${Math.round(100 * share)}%`;

/** `0.9534` as "95.3%". */
export const finePercent = (share) => `${(100 * share).toFixed(1)}%`;

/** `12345` as "12,345". */
export const count = (number) => number.toLocaleString("en");

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** Set a CSS variable; style attributes are forbidden by the page's content policy, this is not. */
export const setVariable = (node, variable, value) => node.style.setProperty(variable, value);

/** An address of the server: anything else (`javascript:`, another host) is not followed. */
export function ownUrl(address) {
  const url = new URL(address, document.baseURI);
  return url.origin === location.origin ? url.href : "";
}

export const thumbnail = (address) => {
  const url = ownUrl(address);
  return url && `${url}${url.includes("?") ? "&" : "?"}size=thumb`;
};

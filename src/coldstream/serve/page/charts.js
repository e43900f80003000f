// Drawings for "What it knows", in SVG. Colours and fonts come from knows.css.

import { element, finePercent, name, percent, plural, setVariable, shape } from "./dom.js";

const WIDTH = 420;
const HEIGHT = 240;
const LEFT = 44;
const RIGHT = 20;
const TOP = 12;
const BOTTOM = 34;

/** From numbers in [from, to] to pixels in [start, end]. */
const scale = (from, to, start, end) => (value) => start + ((value - from) / (to - from || 1)) * (end - start);

const round = (value) => value.toFixed(1);

const path = (points) => points.map(([x, y], place) => `${place ? "L" : "M"}${round(x)} ${round(y)}`).join("");

/** Three to five round numbers from 0 to at most `last`. */
function ticks(last) {
  const step = [1, 2, 5].flatMap((one) => [0, 1, 2, 3, 4, 5].map((power) => one * 10 ** power));
  const wide = step.sort((a, b) => a - b).find((size) => last / size <= 5) ?? last;
  return Array.from({ length: Math.floor(last / wide) + 1 }, (_, place) => place * wide);
}

function frame(label, x, y, xTicks, xText) {
  const lines = [0, 0.25, 0.5, 0.75, 1].flatMap((share) => [
    shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(share), y2: y(share) }),
    shape("text", { class: "tick", x: LEFT - 8, y: y(share) + 4, "text-anchor": "end", text: percent(share) }),
  ]);
  const marks = xTicks.map(([value, text]) =>
    shape("text", { class: "tick", x: x(value), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle", text }),
  );
  const title = shape("text", {
    class: "axis",
    x: (LEFT + WIDTH - RIGHT) / 2,
    y: HEIGHT - 3,
    "text-anchor": "middle",
    text: xText,
  });
  return shape(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    ...lines,
    ...marks,
    title,
  );
}

/** Accuracy over the number of labels, with its interval. */
export function curve(points) {
  const last = points.at(-1).labels;
  const x = scale(0, last, LEFT, WIDTH - RIGHT);
  const y = scale(0, 1, HEIGHT - BOTTOM, TOP);
  const now = points.at(-1);
  const between = `between ${percent(now.low)} and ${percent(now.high)}`;
  const label = `Accuracy after ${plural(last, "label")}: ${percent(now.value)}, ${between}.`;
  const drawing = frame(
    label,
    x,
    y,
    ticks(last).map((value) => [value, String(value)]),
    "labels",
  );
  const upper = points.map(({ labels, high }) => [x(labels), y(high)]);
  const lower = points.map(({ labels, low }) => [x(labels), y(low)]).reverse();
  drawing.append(
    shape("path", { class: "band", d: `${path([...upper, ...lower])}Z` }),
    shape("path", { class: "line", d: path(points.map(({ labels, value }) => [x(labels), y(value)])) }),
    shape("circle", { class: "dot", cx: x(last), cy: y(now.value), r: 4 }),
  );
  return drawing;
}

/** How often guesses of a confidence are right; on the diagonal, confidence is what it says. */
export function reliability(bins) {
  const x = scale(0, 1, LEFT, WIDTH - RIGHT);
  const y = scale(0, 1, HEIGHT - BOTTOM, TOP);
  const most = Math.max(...bins.map(({ n }) => n));
  const rows = bins.filter(({ n }) => n > 0);
  const label = rows
    .map(({ confidence, accuracy, n }) => `confidence ${percent(confidence)}: ${percent(accuracy)} of ${n} right`)
    .join("; ");
  const drawing = frame(
    `Reliability: ${label}.`,
    x,
    y,
    [0, 0.25, 0.5, 0.75, 1].map((value) => [value, percent(value)]),
    "confidence",
  );
  for (const { low, high, accuracy } of rows) {
    const [from, to] = [x(low) + 1, x(high) - 1];
    drawing.append(
      shape("rect", { class: "bin", x: from, width: to - from, y: y(accuracy), height: y(0) - y(accuracy) }),
    );
  }
  drawing.append(shape("line", { class: "diagonal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
  for (const { confidence, accuracy, n } of rows) {
    drawing.append(
      shape("circle", { class: "dot", cx: x(confidence), cy: y(accuracy), r: round(3 + 4 * Math.sqrt(n / most)) }),
    );
  }
  return drawing;
}

/** A table of the classes: labels, accuracy with its interval drawn as a bar. */
export function perClass(rows) {
  const head = element(
    "tr",
    {},
    ...["Class", "Labels", "Guessed right", "Accuracy", "95% interval"].map((text) =>
      element("th", { scope: "col", text }),
    ),
  );
  const body = rows.map((row) => {
    const known = row.n > 0 && row.value !== null;
    const bar = element("span", { class: "interval", "aria-hidden": "true" });
    if (known) {
      setVariable(bar, "--low", String(row.low));
      setVariable(bar, "--high", String(row.high));
      setVariable(bar, "--value", String(row.value));
    }
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, name(row.name)),
      element("td", { text: String(row.labels) }),
      element("td", { text: known ? `${row.right} of ${row.n}` : "–" }),
      element("td", { text: known ? percent(row.value) : "–" }),
      element(
        "td",
        { class: "interval-cell" },
        known ? bar : "no audit image yet",
        known
          ? element("span", {
              class: "visually-hidden",
              text: `${finePercent(row.low)} to ${finePercent(row.high)}`,
            })
          : null,
      ),
    );
  });
  return element(
    "div",
    { class: "table-scroll", tabindex: "0", role: "group", "aria-label": "Class by class" },
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)),
  );
}

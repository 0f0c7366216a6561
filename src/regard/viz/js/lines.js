// Lines from queries on the left to keys on the right; stronger weights give stronger lines.

import { clamp } from "./arithmetic.js";
import { headDashes, headColour } from "./colours.js";
import { button, node, oneTabStop, svg } from "./dom.js";
import { nearbyIndices, fitLabel } from "./labels.js";
import { widestText, textWidth } from "./text-width.js";
import { toggleNumber } from "./number-list.js";
import { currentHead } from "./sentence.js";
import { axisTitles } from "./axis-titles.js";

/** @import { Matrix } from "./matrix.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

/** @typedef {{ weight: number, head: number, query: number, key: number }} Line */

const MOST_LINES = 1500; // the strongest lines are drawn
const INVISIBLE = 0.01; // share of the largest weight below which a line would be invisible
const STEP = 19; // pixels between tokens
const TOP = 24; // pixels to the first token
const WIDEST = 150; // pixels of a label
const ACROSS = 720; // pixels between queries and keys if there is room
const APART = 6;
const ALL = { least: 0, top: 0 };

/**
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Surface} surface
 */
export function lines(scene, actions, { colours, width }) {
  const { matrix, state, scale } = scene;
  const heads = matrix.shown(state);
  const queries = nearbyIndices(matrix.rows, state.query);
  const keys = nearbyIndices(matrix.columns, state.key ?? matrix.strongest(heads[0], state.query));
  const places = linePositions(matrix, queries, keys, width);
  const height = TOP + STEP * Math.max(queries.length, keys.length);
  const picture = svg("svg", {
    width: places.width,
    height,
    role: "group",
    "aria-label": "Lines from queries to keys",
  });
  const selection = strongest(matrix, heads, queries, keys, state);
  const drawn = selection.lines.map((line) => {
    const aside = headOffset(heads, line.head);
    const element = svg("line", {
      x1: places.left + APART,
      y1: TOP + STEP * (line.query - queries[0]) - 4 + aside,
      x2: places.right - APART,
      y2: TOP + STEP * (line.key - keys[0]) - 4 + aside,
      stroke: matrix.heads === 1 ? colours.line : headColour(line.head, colours.dark),
      "stroke-dasharray": headDashes(line.head),
      "stroke-width": 2,
      "stroke-opacity": clamp(scale.of(matrix, line.head).share(line.weight), 0.05, 1).toFixed(3),
    });
    picture.append(element);
    return { ...line, element };
  });
  /** @param {(line: Line) => boolean} wanted */
  const show = (wanted) => {
    for (const line of drawn) line.element.setAttribute("visibility", wanted(line) ? "visible" : "hidden");
  };
  const all = () => {
    show(() => true);
    actions.rest();
  };
  const [down, across] = axisTitles(scene);
  const left = queries.map((query, row) => {
    const on = () => {
      show((line) => line.query === query);
      const head = currentHead(scene);
      actions.point(query, matrix.strongest(head, query), head);
    };
    const place = { x: places.left, "text-anchor": "end", "data-name": `line-query-${query}` };
    return lineToken(matrix.queries[query], row, places.room, place, on, all);
  });
  const right = keys.map((key, row) => {
    const on = () => show((line) => line.key === key);
    const place = { x: places.right, "text-anchor": "start", "data-name": `line-key-${key}` };
    return lineToken(matrix.keys[key], row, places.room, place, on, all);
  });
  oneTabStop(left, state.query - queries[0]);
  oneTabStop(right, 0);
  picture.append(
    svg("text", { x: places.left, y: 9, "text-anchor": "end", class: "axis" }, down),
    svg("text", { x: places.right, y: 9, class: "axis" }, across),
    ...left,
    ...right,
  );
  const box = node("div", { class: "lines" });
  box.append(
    ...headLegend(scene, actions, colours.dark),
    picture,
    node("p", { class: "quiet" }, omittedLines(matrix, queries, keys, selection)),
  );
  return box;
}

/**
 * The vertical offset of a head's lines in pixels, so that heads do not hide each other.
 *
 * @param {number[]} heads
 * @param {number} head
 */
export function headOffset(heads, head) {
  const apart = Math.min(3, (STEP - 8) / heads.length);
  return (heads.indexOf(head) - (heads.length - 1) / 2) * apart;
}

/**
 * The horizontal positions of queries and keys in pixels, with room for their labels.
 *
 * @param {Matrix} matrix
 * @param {number[]} queries
 * @param {number[]} keys
 * @param {number} available
 */
function linePositions(matrix, queries, keys, available) {
  const limit = Math.max(30, Math.min(WIDEST, (available - 80) / 2));
  const left = APART + Math.min(limit, Math.max(100, widestText(queries.map((query) => matrix.queries[query]))));
  const labels = APART + Math.min(limit, Math.max(100, widestText(keys.map((key) => matrix.keys[key]))));
  const right = left + Math.max(60, Math.min(ACROSS, available - left - labels));
  return { left, right, width: right + labels, room: limit };
}

/**
 * The legend of the heads by colour and dash pattern; clicking a head shows or hides it.
 *
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {boolean} dark
 */
export function headLegend({ matrix, state }, { choose }, dark) {
  if (matrix.heads === 1 || state.head !== null) return [];
  const shown = matrix.shown(state);
  const list = node("ul", { class: "key", "aria-label": "Heads" });
  const buttons = [];
  for (const head of matrix.chosen(null)) {
    const sample = svg("svg", { width: 28, height: 10, "aria-hidden": "true" });
    const line = { x1: 0, x2: 28, y1: 5, y2: 5, "stroke-width": 3 };
    sample.append(svg("line", { ...line, stroke: headColour(head, dark), "stroke-dasharray": headDashes(head) }));
    const item = node("li");
    const on = shown.includes(head);
    const chosen = button("", () => choose({ off: toggleNumber(state.off, head) }), on);
    chosen.dataset.name = `key-${head}`;
    chosen.append(sample, matrix.name(head));
    buttons.push(chosen);
    item.append(chosen);
    list.append(item);
  }
  oneTabStop(buttons, 0);
  return [list];
}

/**
 * The strongest weights between queries and keys in descending order, and their total number. Omitted are invisible
 * ones, weights below `least`, and of each query all but the `top` largest.
 *
 * @param {Matrix} matrix
 * @param {number[]} heads
 * @param {number[]} queries
 * @param {number[]} keys
 * @param {{ least: number, top: number }} wanted
 */
export function strongest(matrix, heads, queries, keys, { least, top } = ALL, limit = MOST_LINES) {
  /** @type {Line[]} */
  const largest = [];
  for (const head of heads) {
    for (const query of queries) {
      const row = keys.map((key) => ({ weight: matrix.at(head, query, key), head, query, key }));
      const seen = row.filter(({ weight }) => weight > INVISIBLE * matrix.largest && weight >= least);
      if (top) seen.sort((first, second) => second.weight - first.weight);
      largest.push(...(top ? seen.slice(0, top) : seen));
    }
  }
  largest.sort((first, second) => second.weight - first.weight);
  const weakest = largest.length > limit ? largest[limit - 1].weight : null;
  return {
    lines: largest.slice(0, limit),
    seen: largest.length,
    all: heads.length * queries.length * keys.length,
    weakest,
  };
}

/**
 * A sentence about the omitted lines.
 *
 * @param {Matrix} matrix
 * @param {number[]} queries
 * @param {number[]} keys
 * @param {{ seen: number, all: number, weakest: number | null, lines: Line[] }} found
 */
export function omittedLines(matrix, queries, keys, { lines: drawn, seen, all, weakest }) {
  const count = (/** @type {number} */ number) => number.toLocaleString("en");
  const parts = [`${count(drawn.length)} of ${count(all)} weights are drawn`];
  if (weakest !== null)
    parts.push(
      `${count(seen - drawn.length)} below ${weakest.toFixed(4)} are omitted, select a head to see more`,
    );
  if (all > seen) parts.push(`${count(all - seen)} are smaller than any drawn weight`);
  const hidden = matrix.rows - queries.length + matrix.columns - keys.length;
  if (hidden > 0) parts.push(`${count(hidden)} tokens further away are omitted`);
  return `${parts.join("; ")}.`;
}

/**
 * A token beside the lines; pointing at it shows only its lines.
 *
 * @param {string} label
 * @param {number} row
 * @param {number} room for the label, in pixels
 * @param {{ x: number, "text-anchor": string, "data-name": string }} place
 * @param {() => void} on
 * @param {() => void} off
 */
function lineToken(label, row, room, place, on, off) {
  const attributes = { ...place, y: TOP + STEP * row, role: "button", "aria-label": label, class: "word" };
  const text = svg("text", attributes, fitLabel(label, room, textWidth));
  const begin = () => {
    text.classList.add("on");
    on();
  };
  const end = () => {
    text.classList.remove("on");
    off();
  };
  for (const event of ["mouseenter", "focus"]) text.addEventListener(event, begin);
  for (const event of ["mouseleave", "blur"]) text.addEventListener(event, end);
  return text;
}

// Lines from queries, on the left, to keys, on the right: the stronger the weight, the stronger the line.

import { hue } from "./colours.js";
import { node, svg } from "./dom.js";
import { around, shorten } from "./labels.js";

/** @import { Matrix } from "./matrix.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

/** @typedef {{ weight: number, head: number, query: number, key: number }} Line */

const MOST_LINES = 1500; // lines drawn at most, the strongest
const STEP = 19; // from token to token, pixels
const LEFT = 150; // where the queries end
const RIGHT = 330; // where the keys begin

/**
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Surface} surface
 */
export function lines({ matrix, state }, actions, { colours }) {
  const heads = matrix.chosen(state.head);
  const queries = around(matrix.rows, state.query);
  const keys = around(matrix.columns, state.key ?? matrix.strongest(heads[0], state.query));
  const height = 12 + STEP * Math.max(queries.length, keys.length);
  const picture = svg("svg", {
    width: RIGHT + 160,
    height,
    role: "img",
    "aria-label": "Lines from queries to keys",
  });
  const drawn = strongest(matrix, heads, queries, keys).map((line) => {
    const element = svg("line", {
      x1: LEFT + 6,
      y1: 10 + STEP * (line.query - queries[0]),
      x2: RIGHT - 6,
      y2: 10 + STEP * (line.key - keys[0]),
      stroke: hue(line.head, heads.length, colours.dark),
      "stroke-width": 2,
      "stroke-opacity": Math.max(0.05, line.weight / matrix.largest).toFixed(3),
    });
    picture.append(element);
    return { ...line, element };
  });
  /** @param {(line: Line) => boolean} wanted */
  const show = (wanted) => {
    for (const line of drawn) line.element.setAttribute("visibility", wanted(line) ? "visible" : "hidden");
  };
  const all = () => show(() => true);
  queries.forEach((query, row) => {
    const on = () => {
      show((line) => line.query === query);
      actions.point(query, matrix.strongest(heads[0], query), heads[0]);
    };
    picture.append(token(matrix.queries[query], row, { x: LEFT, "text-anchor": "end" }, on, all));
  });
  keys.forEach((key, row) => {
    const on = () => show((line) => line.key === key);
    picture.append(token(matrix.keys[key], row, { x: RIGHT, "text-anchor": "start" }, on, all));
  });
  const box = node("div", { class: "lines" });
  box.append(picture);
  const hidden = matrix.rows - queries.length + matrix.columns - keys.length;
  if (hidden > 0) box.append(node("p", { class: "quiet" }, `${hidden} tokens further away are left out.`));
  return box;
}

/**
 * The strongest weights between queries and keys, the strongest first; what is hardly seen is left out.
 *
 * @param {Matrix} matrix
 * @param {number[]} heads
 * @param {number[]} queries
 * @param {number[]} keys
 */
export function strongest(matrix, heads, queries, keys, most = MOST_LINES) {
  /** @type {Line[]} */
  const found = [];
  for (const head of heads) {
    for (const query of queries) {
      for (const key of keys) {
        const weight = matrix.at(head, query, key);
        if (weight > 0.01 * matrix.largest) found.push({ weight, head, query, key });
      }
    }
  }
  return found.sort((one, other) => other.weight - one.weight).slice(0, most);
}

/**
 * A token beside the lines, which shows its own while it is pointed at.
 *
 * @param {string} label
 * @param {number} row
 * @param {{ x: number, "text-anchor": string }} place
 * @param {() => void} on
 * @param {() => void} off
 */
function token(label, row, place, on, off) {
  const text = svg("text", { ...place, y: 14 + STEP * row, tabindex: 0 }, shorten(label, 20));
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

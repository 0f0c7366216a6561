// Lines from queries on the left to keys on the right; stronger weights give stronger lines.

import { headDashes, headColour } from "./colours.js";
import { button, node, oneTabStop, svg } from "./dom.js";
import { fisheye, omittedLabels } from "./fisheye.js";
import { nearbyIndices, fitLabel } from "./labels.js";
import { textScale, widestText, textWidth } from "./text-width.js";
import { toggleNumber } from "./number-list.js";
import { currentHead } from "./sentence.js";
import { axisTitles } from "./axis-titles.js";
import { largestKeys, lineOpacity, omittedLines, strongest } from "./row-lines.js";
import { TALLEST } from "./viewport.js";

/** @import { Matrix } from "./matrix.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

/** @import { Line } from "./row-lines.js" */

const STEP = 19; // pixels between tokens
const TOP = 24; // pixels above the tokens
const WIDEST = 150; // pixels of a label
const ACROSS = 720; // pixels between queries and keys if there is room
const APART = 6;
const FOCUSED = 6; // keys of the chosen row that are far apart
export const AROUND_LINES = 76; // pixels of the text above and below lines

/**
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Surface} surface
 */
export function lines(scene, actions, { colours, width, height: room }) {
  const { matrix, state, scale } = scene;
  const heads = matrix.shown(state);
  const step = STEP * textScale();
  const queries = nearbyIndices(matrix.rows, state.query);
  const keys = nearbyIndices(matrix.columns, state.key ?? matrix.strongest(heads[0], state.query));
  const sides = linePositions(matrix, queries, keys, width);
  const tall = (room ?? TALLEST) - AROUND_LINES - TOP;
  const focus = [...(state.key === null ? [] : [state.key]), ...largestKeys(matrix, heads, state.query, FOCUSED)];
  const left = fisheye(queries.length, [state.query - queries[0]], tall, step);
  const right = fisheye(
    keys.length,
    focus.map((key) => key - keys[0]),
    tall,
    step,
  );
  const height = TOP + Math.max(left.height, right.height) + 8;
  const size = { width: sides.width, height, role: "group", "aria-label": "Lines from queries to keys" };
  const picture = svg("svg", size);
  const selection = strongest(matrix, heads, queries, keys, { ...state, aside: scale.aside });
  const drawn = selection.lines.map((line) => {
    const aside = headOffset(heads, line.head);
    const element = svg("line", {
      x1: sides.left + APART,
      y1: TOP + left.at[line.query - queries[0]] + aside,
      x2: sides.right - APART,
      y2: TOP + right.at[line.key - keys[0]] + aside,
      stroke: matrix.heads === 1 ? colours.line : headColour(line.head, colours.dark),
      "stroke-dasharray": headDashes(line.head),
      "stroke-width": 2,
      "stroke-opacity": lineOpacity(line, scale.of(matrix, line.head).share(line.weight), state),
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
  /**
   * The token of a row, on the left for a query and on the right for a key.
   *
   * @param {"query" | "key"} side
   * @param {number} index @param {number} row
   * @param {() => void} point @param {() => void} choose
   */
  const token = (side, index, row, point, choose) => {
    const onLeft = side === "query";
    const { at, labelled } = onLeft ? left : right;
    const place = {
      x: onLeft ? sides.left : sides.right,
      y: TOP + at[row] + 4,
      "text-anchor": onLeft ? "end" : "start",
      "data-name": `line-${side}-${index}`,
    };
    const label = (onLeft ? matrix.queries : matrix.keys)[index];
    const word = lineToken(label, labelled[row], sides.room, place, point, all);
    if (index === state[side]) word.classList.add("chosen");
    word.addEventListener("click", choose);
    return word;
  };
  const words = queries.map((query, row) => {
    const point = () => {
      show((line) => line.query === query);
      const head = currentHead(scene);
      actions.point(query, matrix.strongest(head, query), head);
    };
    return token("query", query, row, point, () => actions.choose({ query, key: null }));
  });
  const others = keys.map((key, row) => {
    const point = () => show((line) => line.key === key);
    return token("key", key, row, point, () => actions.choose({ key, focus: currentHead(scene) }));
  });
  oneTabStop(words, state.query - queries[0]);
  oneTabStop(others, 0);
  picture.append(
    svg("text", { x: sides.left, y: 9, "text-anchor": "end", class: "axis" }, down),
    svg("text", { x: sides.right, y: 9, class: "axis" }, across),
    ...words,
    ...others,
  );
  const box = node("div", { class: "lines" });
  const said = omittedLines(matrix, queries, keys, selection, state.top) + omittedLabels([left, right]);
  box.append(...headLegend(scene, actions, colours.dark), picture, node("p", { class: "quiet" }, said));
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
 * A token beside the lines; pointing at it shows only its lines. Without room for its label, it is a dot.
 *
 * @param {string} label
 * @param {boolean} labelled
 * @param {number} room for the label, in pixels
 * @param {{ x: number, y: number, "text-anchor": string, "data-name": string }} place
 * @param {() => void} on
 * @param {() => void} off
 */
export function lineToken(label, labelled, room, place, on, off) {
  const attributes = { ...place, role: "button", "aria-label": label, class: "word" };
  const text = svg("text", attributes, labelled ? fitLabel(label, room, textWidth) : "·");
  text.append(svg("title", {}, label));
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

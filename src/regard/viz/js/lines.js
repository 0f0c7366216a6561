// Lines from queries on the left to keys on the right; stronger weights give stronger lines.

import { headColour, headDashes } from "./colours.js";
import { button, node, oneTabStop, svg, textScale, textWidth, widestText } from "./dom.js";
import { axisTitles, fitLabel, nearbyIndices } from "./labels.js";
import { toggleNumber } from "./arithmetic.js";
import { currentHead } from "./sentence.js";
import { TALLEST } from "./viewport.js";

/** @import { Matrix } from "./matrix.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

const STEP = 19; // pixels between tokens
const TOP = 24; // pixels above the tokens
const WIDEST = 150; // pixels of a label
const ACROSS = 720; // pixels between queries and keys if there is room
const APART = 6;
const FOCUSED = 6; // keys of the chosen row that are far apart
const AROUND_LINES = 76; // pixels of the text above and below lines

/** @param {Scene} scene @param {Actions} actions @param {Surface} surface */
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
   * @param {"query" | "key"} side @param {number} index @param {number} row
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

// The vertical offset of a head's lines in pixels, so that heads do not hide each other.
/** @param {number[]} heads @param {number} head */
function headOffset(heads, head) {
  const apart = Math.min(3, (STEP - 8) / heads.length);
  return (heads.indexOf(head) - (heads.length - 1) / 2) * apart;
}

// The horizontal positions of queries and keys in pixels, with room for their labels.
/** @param {Matrix} matrix @param {number[]} queries @param {number[]} keys @param {number} available */
function linePositions(matrix, queries, keys, available) {
  const limit = Math.max(30, Math.min(WIDEST, (available - 80) / 2));
  const left = APART + Math.min(limit, Math.max(100, widestText(queries.map((query) => matrix.queries[query]))));
  const labels = APART + Math.min(limit, Math.max(100, widestText(keys.map((key) => matrix.keys[key]))));
  const right = left + Math.max(60, Math.min(ACROSS, available - left - labels));
  return { left, right, width: right + labels, room: limit };
}

// The legend of the heads by colour and dash pattern; clicking a head shows or hides it.
/** @param {Scene} scene @param {Actions} actions @param {boolean} dark */
function headLegend({ matrix, state }, { choose }, dark) {
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
 * @param {string} label @param {boolean} labelled
 * @param {number} room for the label, in pixels
 * @param {{ x: number, y: number, "text-anchor": string, "data-name": string }} place @param {() => void} on
 * @param {() => void} off
 */
function lineToken(label, labelled, room, place, on, off) {
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

// Places of many tokens in little room: those around the chosen ones are far apart, the others close together.

const FEW_TOKENS = 40; // up to this number, all tokens are equally far apart
const LEAST_APART = 2; // pixels between tokens
const READABLE = 12; // pixels between labels
const AROUND_CHOSEN = 2; // tokens before and after a chosen one that are far apart too

/**
 * @typedef {object} Places
 * @property {number[]} at pixels from the top, for each token
 * @property {boolean[]} labelled whether there is room for the label of a token
 * @property {number} height pixels of all tokens
 */

/**
 * @param {number} count number of tokens
 * @param {number[]} chosen indices of the tokens of interest, the most important first
 * @param {number} room height in pixels
 * @param {number} step pixels between tokens that are read
 * @returns {Places}
 */
export function fisheye(count, chosen, room, step) {
  const wide = new Set();
  if (count > FEW_TOKENS) {
    const most = Math.max(1, Math.floor((room - LEAST_APART * count) / step));
    for (let by = 0; by <= AROUND_CHOSEN; by += 1) {
      for (const index of chosen) {
        for (const near of [index - by, index + by]) {
          if (near >= 0 && near < count && wide.size < most) wide.add(near);
        }
      }
    }
  }
  const others = count - wide.size;
  const close = Math.max(LEAST_APART, Math.min(step, (room - step * wide.size) / Math.max(others, 1)));
  const at = [];
  let end = 0;
  for (let index = 0; index < count; index += 1) {
    const own = count <= FEW_TOKENS || wide.has(index) ? step : close;
    at.push(end + own / 2);
    end += own;
  }
  return { at, labelled: roomForLabels(at, wide), height: end };
}

// Tokens with labels: the wide ones, and of the others those that keep their distance.
/** @param {number[]} at @param {Set<number>} wide */
function roomForLabels(at, wide) {
  const taken = [...wide].map((index) => at[index]).sort((first, second) => first - second);
  let last = Number.NEGATIVE_INFINITY;
  let next = 0;
  return at.map((place, index) => {
    while (next < taken.length && taken[next] < place) next += 1;
    const free = place - last >= READABLE && (next >= taken.length || taken[next] - place >= READABLE);
    if (!wide.has(index) && !free) return false;
    last = place;
    return true;
  });
}

/** A sentence about labels that are left out; empty if none is. @param {Places[]} sides */
export function omittedLabels(sides) {
  const hidden = sides.reduce((sum, { labelled }) => sum + labelled.filter((shown) => !shown).length, 0);
  return hidden ? ` ${hidden} labels are dots: choose a token to enlarge what is around it.` : "";
}

// Self-attention as arcs beside a list of tokens, from each query to its keys.

const ARC_STEP = 19; // pixels between tokens
const ARC_LABEL = 170; // pixels of a label
const BULGE = 260; // pixels, the maximal width of an arc
const ENLARGED = 6; // keys of the chosen row that are far apart
export const CONTRAST = 1.5; // exponent of the opacity: arcs overlap, so weak ones are faint

/** @param {Scene} scene @param {Actions} actions @param {Surface} surface */
export function arcs(scene, actions, { colours, width, height: room }) {
  const { matrix, state, scale } = scene;
  const heads = matrix.shown(state);
  const places = nearbyIndices(matrix.rows, state.query);
  const selection = strongest(matrix, heads, places, places, { ...state, aside: scale.aside });
  const factor = textScale();
  const widest = widestText(places.map((place) => matrix.keys[place]));
  const left = Math.min(ARC_LABEL * factor, Math.max(40, widest));
  const bulge = Math.min(BULGE * factor, Math.max(60, width - left - 30));
  const focus = [state.query, ...largestKeys(matrix, heads, state.query, ENLARGED)].map((key) => key - places[0]);
  const sides = fisheye(places.length, focus, (room ?? TALLEST) - AROUND_LINES, ARC_STEP * factor);
  const size = { width: left + bulge + 24, height: sides.height + 12 };
  const picture = svg("svg", { ...size, role: "group", "aria-label": "Arcs from queries to keys" });
  /** @param {number} place */
  const y = (place) => sides.at[place - places[0]] + 4;
  const drawn = selection.lines.map((line) => {
    const far = Math.abs(line.query - line.key) / Math.max(places.length - 1, 1);
    const out = left + 14 + Math.max(14, bulge * Math.sqrt(far)) * 1.3;
    const aside = headOffset(heads, line.head) - 4;
    const start = `${left + 10} ${y(line.query) + aside}`;
    const end = `${left + 10} ${y(line.key) + aside + (line.query === line.key ? 3 : 0)}`;
    const share = scale.of(matrix, line.head).share(line.weight);
    const element = svg("path", {
      d: `M ${start} C ${out} ${y(line.query) + aside}, ${out} ${y(line.key) + aside}, ${end}`,
      fill: "none",
      stroke: matrix.heads === 1 ? colours.line : headColour(line.head, colours.dark),
      "stroke-dasharray": headDashes(line.head),
      "stroke-width": 2,
      "stroke-opacity": lineOpacity(line, share ** CONTRAST, state),
    });
    const [from, to] = [matrix.queries[line.query], matrix.keys[line.key]];
    element.append(svg("title", {}, `${matrix.name(line.head)}: ${from} → ${to} ${line.weight.toFixed(3)}`));
    picture.append(element);
    return { ...line, element };
  });
  /** @param {number | null} query */
  const show = (query) => {
    for (const { element, query: own } of drawn) {
      element.setAttribute("visibility", query === null || own === query ? "visible" : "hidden");
    }
  };
  const words = places.map((place, index) => {
    const at = { x: left, y: y(place), "text-anchor": "end", "data-name": `arc-${place}` };
    const on = () => {
      show(place);
      const head = currentHead(scene);
      actions.point(place, matrix.strongest(head, place), head);
    };
    const off = () => {
      show(null);
      actions.rest();
    };
    const word = lineToken(matrix.queries[place], sides.labelled[index], ARC_LABEL * factor, at, on, off);
    if (place === state.query) word.classList.add("chosen");
    word.addEventListener("click", () => actions.choose({ query: place, key: null }));
    return word;
  });
  oneTabStop(words, state.query - places[0]);
  picture.append(...words);
  const box = node("div", { class: "lines" });
  const said = omittedLines(matrix, places, places, selection, state.top) + omittedLabels([sides]);
  box.append(...headLegend(scene, actions, colours.dark), picture, node("p", { class: "quiet" }, said));
  return box;
}

// Which weights are drawn as lines or arcs: those of the chosen row, and the largest of every other row.

/** @typedef {{ weight: number, head: number, query: number, key: number }} Line */

/**
 * The selected lines, the largest first.
 * @typedef {object} Selection
 * @property {Line[]} lines
 * @property {number} seen number of visible weights, drawn or not
 * @property {number} all number of weights
 * @property {number | null} weakest the smallest drawn weight, if larger ones than the limit exist
 */

const MOST_LINES = 1500; // the strongest lines are drawn
const INVISIBLE = 0.01; // share of the largest weight below which a line would be invisible
const FAINT = 0.22; // opacity of the other rows
const ALL = { least: 0, top: 0 };

/**
 * The strongest weights between queries and keys in descending order, and their total number. Omitted are invisible
 * ones, weights below `least`, and of each query but `row` all but the `top` largest.
 * @param {Matrix} matrix @param {number[]} heads @param {number[]} queries @param {number[]} keys
 * @param {{ least: number, top: number, query?: number, aside?: boolean }} wanted `query`: the chosen row
 * @returns {Selection}
 */
export function strongest(matrix, heads, queries, keys, wanted = ALL, limit = MOST_LINES) {
  const { least, top, query: row, aside } = { query: -1, aside: false, ...wanted };
  /** @type {Line[]} */
  const largest = [];
  for (const head of heads) {
    for (const query of queries) {
      const weights = keys.map((key) => ({ weight: matrix.at(head, query, key), head, query, key }));
      const seen = weights.filter(
        ({ weight, key }) => weight > INVISIBLE * matrix.largest && weight >= least && !(aside && key === 0),
      );
      if (top) seen.sort((first, second) => second.weight - first.weight);
      largest.push(...(top && query !== row ? seen.slice(0, top) : seen));
    }
  }
  largest.sort(
    (first, second) => Number(second.query === row) - Number(first.query === row) || second.weight - first.weight,
  );
  const weakest = largest.length > limit ? largest[limit - 1].weight : null;
  return {
    lines: largest.slice(0, limit),
    seen: largest.length,
    all: heads.length * queries.length * keys.length,
    weakest,
  };
}

/**
 * The opacity of a line: other rows than the chosen one are faint.
 * @param {Line} line
 * @param {number} share of the strongest colour
 * @param {{ query: number, top: number }} state
 */
function lineOpacity({ query }, share, state) {
  const strength = Math.max(0.08, Math.min(share, 1));
  return (state.top && query !== state.query ? FAINT * strength : strength).toFixed(3);
}

// The keys with the largest weights of a row, over some heads.
/** @param {Matrix} matrix @param {number[]} heads @param {number} query @param {number} count */
function largestKeys(matrix, heads, query, count) {
  const sums = matrix.keys.map((_, key) => Math.max(...heads.map((head) => matrix.at(head, query, key))));
  return [...sums.keys()].sort((first, second) => sums[second] - sums[first]).slice(0, count);
}

/**
 * A sentence about the omitted lines.
 * @param {Matrix} matrix @param {number[]} queries @param {number[]} keys @param {Selection} selection
 * @param {number} [top] number of lines of each row but the chosen one; 0: all
 */
function omittedLines(matrix, queries, keys, { lines: drawn, seen, all, weakest }, top = 0) {
  const count = (/** @type {number} */ number) => number.toLocaleString("en");
  const parts = [`${count(drawn.length)} of ${count(all)} weights are drawn`];
  if (top) parts[0] += `: the chosen row, and the ${top === 1 ? "largest" : `${top} largest`} of every other row`;
  if (weakest !== null)
    parts.push(`${count(seen - drawn.length)} below ${weakest.toFixed(4)} are omitted, select a head to see more`);
  if (all > seen && !top) parts.push(`${count(all - seen)} are smaller than any drawn weight`);
  const hidden = matrix.rows - queries.length + matrix.columns - keys.length;
  if (hidden > 0) parts.push(`${count(hidden)} tokens further away are omitted`);
  return `${parts.join("; ")}.`;
}

// The state of the view: input, layer, head, display mode, and the selected query and key.

import { headCount } from "./matrix.js";
import { MEASURE_NAMES, peak } from "./measures.js";
import { SCALE_NAMES } from "./scale.js";

/** @import { InterventionData, LayerData, MapData, ViewData } from "./data.js" */
/** @import { Matrix, Weights } from "./matrix.js" */

/** @typedef {"picture" | "heatmap" | "lines" | "arcs" | "flow" | "table" | "overview"} Mode */

/** @typedef {"shared" | "own" | "root" | "rank"} ScaleName */
/** @typedef {"importance" | "role" | "relevant" | "peak" | "entropy" | "distance"} MeasureName */

/**
 * @typedef {object} State
 * @property {number} map index of the input
 * @property {string | null} layer name; null without layers
 * @property {number | null} head null: all heads
 * @property {Mode | null} mode null: the default of the layer
 * @property {boolean} words whether word pieces are merged
 * @property {number} query
 * @property {number | null} key null: none
 * @property {number} focus the head in which the query was selected
 * @property {boolean} change whether differences to the original are displayed
 * @property {number | null} frame index of the snapshot; null: the map itself
 * @property {string} off numbers of the hidden heads
 * @property {boolean} mean whether the visible heads are averaged
 * @property {string} also numbers of further queries whose weights are added
 * @property {number} least lines of smaller weights are hidden
 * @property {number} top number of lines for each query but the chosen one; 0: all
 * @property {string} beside key of the map shown for comparison; empty: none
 * @property {boolean} all whether all heads were asked for; otherwise, one of many is opened
 * @property {MeasureName | ""} measure of the heads, below their small pictures; empty: the first known
 * @property {"heads" | "bars" | "matrix"} chart what the overview shows
 * @property {boolean} sorted whether the heads of the overview are sorted by importance
 * @property {ScaleName | ""} scale the colour scale; empty: chosen from the weights
 * @property {boolean} aside whether the first key is set aside
 * @property {boolean} sum whether the computation of the weight is displayed
 * @property {number} temperature of the softmax in the computation; 1: the model's
 */

const MANY = 80; // for more queries or keys, one head is displayed at a time
const MOST_OPENED = 4; // of more heads, one is opened

/** @type {Readonly<State>} */
export const START = {
  map: 0,
  layer: null,
  head: null,
  mode: null,
  words: false,
  query: 0,
  key: null,
  focus: 0,
  change: false,
  frame: null,
  off: "",
  mean: false,
  also: "",
  least: 0,
  top: 3,
  beside: "",
  all: false,
  measure: "",
  chart: "heads",
  sorted: false,
  scale: "",
  aside: false,
  sum: false,
  temperature: 1,
};

/**
 * The selected layer; otherwise the one that aligns best, or one that reads the input.
 * @param {MapData} map @param {string | null} name
 */
export function currentLayer({ layers, opens }, name) {
  return (
    layers.find((layer) => layer.name === name) ??
    layers.find((layer) => layer.name === opens) ??
    layers.find((layer) => layer.kind === "cross") ??
    layers.at(0) ??
    null
  );
}

/** Whether one of a layer's heads is opened. @param {number} heads @param {State} state */
export function opensOneHead(heads, { all }) {
  return heads > MOST_OPENED && !all;
}

/**
 * The state, with a head, query and key that `matrix` contains.
 * @param {State} state @param {{ heads: number, rows: number, columns: number }} matrix
 * @param {{ rows: number, columns: number }} shown the displayed matrix, possibly between words
 * @param {boolean} [small] whether a head takes little room regardless of its size
 * @param {() => number} [first] the head that is opened of many
 * @returns {State}
 */
export function fitState(state, matrix, shown, small = false, first = () => 0) {
  let head = state.head !== null && state.head >= matrix.heads ? null : state.head;
  const many = Math.max(matrix.rows, matrix.columns) > MANY || opensOneHead(matrix.heads, state);
  if (head === null && !small && matrix.heads > 1 && many && !state.mean) head = first();
  return {
    ...state,
    head,
    focus: head ?? Math.min(state.focus, matrix.heads - 1),
    query: Math.min(state.query, shown.rows - 1),
    key: state.key === null ? null : Math.min(state.key, shown.columns - 1),
  };
}

// The layer, head and row that the view opens with.

const MOST_COMPARED = 250_000; // weights of a map; of more, one layer is looked at, so that the page opens quickly
const SPECIAL_TOKEN = /^(\[.*\]|<.*>)$/; // tokens such as [CLS] and </s>

/**
 * The score of each head: its importance if that is known, otherwise the mean of its largest weights on other tokens.
 * @param {Pick<ViewData, "importance">} data @param {Pick<LayerData, "name" | "kind">} layer
 * @param {Matrix} matrix
 */
function openingScores({ importance }, { name, kind }, matrix) {
  const known = matrix.names ? undefined : importance?.[name];
  return matrix.slices.map((_, head) => (known ? (known[head]?.added ?? 0) : peak(matrix, head, kind)));
}

/**
 * The head with the largest score.
 * @param {Pick<ViewData, "importance">} data @param {Pick<LayerData, "name" | "kind">} layer
 * @param {Matrix} matrix
 */
export function clearestHead(data, layer, matrix) {
  const all = openingScores(data, layer, matrix);
  return Math.max(0, all.indexOf(Math.max(...all)));
}

/**
 * The layer with the head of the largest score, among the layers of one kind; `first` if the map is too large.
 * @param {Pick<ViewData, "importance">} data @param {MapData} map @param {LayerData} first
 * @param {Weights} weights
 */
export function clearestLayer(data, map, first, weights) {
  const layers = map.layers.filter((layer) => layer.kind === first.kind);
  const count = layers.reduce((sum, layer) => sum + headCount(layer) * layer.queries.length * layer.keys.length, 0);
  if (map.opens || count > MOST_COMPARED) return first;
  const best = layers.map((layer) => Math.max(...openingScores(data, layer, weights.of(layer, false))));
  return layers[best.indexOf(Math.max(...best))] ?? first;
}

/**
 * The row that the view opens with. A causal step sees least in the first row and most in the last one. In other
 * self-attention: the row with the largest weight on another token that is not special; otherwise the first row.
 * @param {Matrix} matrix @param {number} head @param {LayerData["kind"]} kind
 */
export function openingRow(matrix, head, kind) {
  if (matrix.causal) return matrix.rows - 1;
  if (kind === "cross" || matrix.relevant?.length) return 0;
  let [row, largest] = [0, 0];
  for (let query = 0; query < matrix.rows; query += 1) {
    for (let key = 1; key < matrix.columns; key += 1) {
      const special = SPECIAL_TOKEN.test(matrix.keys[key]) || SPECIAL_TOKEN.test(matrix.queries[query]);
      if (special || key === query || matrix.at(head, query, key) <= largest) continue;
      [row, largest] = [query, matrix.at(head, query, key)];
    }
  }
  return row;
}

// The view's state in the page's address: it survives a reload, and a link shows others the same view.

/** @typedef {{ beam: number, branch: number }} Written how wide the search for the answer is that is shown, and what is looked at in it */
/** @typedef {"importance" | "roles"} Asked a computation that takes a while */

const NUMBERS = ["map", "head", "query", "key", "focus", "frame", "top"];
const SHARES = ["least"];
const LISTS = ["off", "also"];
const SWITCHES = ["words", "change", "mean", "sorted", "sum", "aside", "all"];
/** @type {Asked[]} */
const COMPUTATIONS = ["importance", "roles"];
const MODES_IN_ADDRESS = ["picture", "heatmap", "lines", "arcs", "flow", "table", "overview"];

/**
 * The content of an address; `input`, `touched` and `written` are null if absent.
 * @typedef {object} Addressed
 * @property {Partial<State>} state
 * @property {string | null} input
 * @property {InterventionData[] | null} touched
 * @property {Written | null} written
 * @property {Asked[]} asked
 */

/**
 * The part of an address after "#", with all values that differ from the initial state.
 * @param {Readonly<State>} state
 * @param {{ input?: string, touched?: InterventionData[], written?: Written, asked?: Asked[] }} more
 */
export function formatAddress(state, { input, touched, written, asked } = {}) {
  const parameters = new URLSearchParams();
  if (input !== undefined) parameters.set("input", input);
  for (const [name, value] of Object.entries(state)) {
    const usual = START[/** @type {keyof State} */ (name)];
    if (value !== null && value !== usual) parameters.set(name, String(value));
  }
  if (touched?.length) parameters.set("touched", JSON.stringify(touched));
  if (written) parameters.set("written", `${written.beam},${written.branch}`);
  if (asked?.length) parameters.set("asked", asked.join(","));
  return `#${parameters}`;
}

/** Parses the result of `addressOf`; invalid values are ignored. @param {string} hash @returns {Addressed} */
export function readAddress(hash) {
  const parameters = new URLSearchParams(hash.slice(1));
  /** @type {Record<string, unknown>} */
  const state = {};
  for (const [name, value] of parameters) {
    if (NUMBERS.includes(name) && /^\d{1,6}$/.test(value)) state[name] = Number(value);
    else if (SHARES.includes(name) && /^0\.\d{1,4}$/.test(value)) state[name] = Number(value);
    else if (name === "temperature" && /^\d{1,3}(\.\d{1,4})?$/.test(value))
      state[name] = clampTemperature(Number(value));
    else if (LISTS.includes(name) && /^\d{1,6}(,\d{1,6})*$/.test(value)) state[name] = value;
    else if (SWITCHES.includes(name)) state[name] = value === "true";
    else if (name === "beside" && /^(original|(model|input|snapshot)-\d{1,4})$/.test(value)) state[name] = value;
    else if (name === "measure" && MEASURE_NAMES.some((measure) => measure === value)) state[name] = value;
    else if (name === "chart" && ["bars", "matrix"].includes(value)) state[name] = value;
    else if (name === "scale" && SCALE_NAMES.some((scale) => scale === value)) state[name] = value;
    else if (name === "layer" || (name === "mode" && MODES_IN_ADDRESS.includes(value))) state[name] = value;
  }
  const asked = parameters.get("asked")?.split(",") ?? [];
  return {
    state,
    input: parameters.get("input"),
    touched: parseList(parameters.get("touched")),
    written: parseSearch(parameters.get("written")),
    asked: COMPUTATIONS.filter((name) => asked.includes(name)),
  };
}

/** Clamps a temperature to the allowed range. @param {number} value */
function clampTemperature(value) {
  return Math.min(Math.max(value, 0.1), 10);
}

/** @param {string | null} text @returns {Written | null} */
function parseSearch(text) {
  const match = /^(\d{1,2}),(\d{1,6})$/.exec(text ?? "");
  return match && { beam: Number(match[1]), branch: Number(match[2]) };
}

/** @param {string | null} text */
function parseList(text) {
  try {
    const list = JSON.parse(text ?? "null");
    return Array.isArray(list) ? list : null;
  } catch {
    return null;
  }
}

/** Replaces the address without a new history entry. @param {string} hash */
export function replaceAddress(hash) {
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

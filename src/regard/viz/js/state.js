// The state of the view: input, layer, head, display mode, and the selected query and key.

/** @import { MapData } from "./data.js" */

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
 *
 * @param {MapData} map
 * @param {string | null} name
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

/**
 * Whether one of a layer's heads is opened.
 *
 * @param {number} heads
 * @param {State} state
 */
export function opensOneHead(heads, { all }) {
  return heads > MOST_OPENED && !all;
}

/**
 * The state, with a head, query and key that `matrix` contains.
 *
 * @param {State} state
 * @param {{ heads: number, rows: number, columns: number }} matrix
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

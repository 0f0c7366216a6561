// What is chosen: input, layer, head, how it is drawn, and the query and key that are looked at.

/** @import { MapData } from "./data.js" */

/** @typedef {"picture" | "heatmap" | "lines" | "arcs" | "flow" | "table" | "overview"} Mode */

/**
 * @typedef {object} State
 * @property {number} map number of the input
 * @property {string | null} layer its name; null where there is none
 * @property {number | null} head null: all heads
 * @property {Mode | null} mode null: what is usual for the layer
 * @property {boolean} words whether weights are shown between words
 * @property {number} query
 * @property {number | null} key null: none
 * @property {number} focus the head in which the query was chosen
 * @property {boolean} change whether differences to the original are shown
 * @property {number | null} frame number of the snapshot; null: the map itself
 * @property {string} off numbers of the heads that are left out, of all
 * @property {boolean} mean whether the heads that are drawn are averaged
 * @property {string} also numbers of the queries that are summed up with the one that is looked at
 * @property {number} least weights below this are left out as lines
 * @property {number} top of each query only so many lines are drawn, the strongest; 0: all
 * @property {string} beside what stands beside the map, by its key; empty: nothing
 * @property {boolean} sorted whether the heads of the overview are sorted by what they are worth
 * @property {boolean} sum whether it is shown how the weight comes about
 * @property {number} temperature of the softmax in that sum; 1: the model's own
 */

const MANY = 80; // queries or keys: of more, one head is shown at a time

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
  top: 0,
  beside: "",
  sorted: false,
  sum: false,
  temperature: 1,
};

/**
 * The layer that is chosen; else the one that the map names, which aligns best; else one that reads the input, which is
 * what most people look for first.
 *
 * @param {MapData} map
 * @param {string | null} name
 */
export function layerOf({ layers, opens }, name) {
  return (
    layers.find((layer) => layer.name === name) ??
    layers.find((layer) => layer.name === opens) ??
    layers.find((layer) => layer.kind === "cross") ??
    layers.at(0) ??
    null
  );
}

/**
 * The state, with head, query and key that `matrix` has.
 *
 * @param {State} state
 * @param {{ heads: number, rows: number, columns: number }} matrix
 * @param {{ rows: number, columns: number }} shown the same, or that between words
 * @param {boolean} [small] whether a head takes little room, however many weights it has
 * @returns {State}
 */
export function fitted(state, matrix, shown, small = false) {
  let head = state.head !== null && state.head >= matrix.heads ? null : state.head;
  if (head === null && !small && matrix.heads > 1 && Math.max(matrix.rows, matrix.columns) > MANY) head = 0;
  return {
    ...state,
    head,
    focus: head ?? Math.min(state.focus, matrix.heads - 1),
    query: Math.min(state.query, shown.rows - 1),
    key: state.key === null ? null : Math.min(state.key, shown.columns - 1),
  };
}

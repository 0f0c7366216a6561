// What is selected: one object that every part of the page follows, and its form in the address.

import { clearestRelation, hasRelations, MEASURE_NAMES, MOST_COMPARED, peak, weightCount } from "./measures.js";

/** @import { InterventionData, LayerData, MapData, ViewData } from "./data.js" */
/** @import { Matrix, Weights } from "./matrix.js" */

/** @typedef {"picture" | "heatmap" | "lines" | "flow"} Mode */
/** @typedef {"shared" | "own"} ScaleName */
/** @typedef {"importance" | "role" | "relevant" | "relation" | "peak" | "entropy" | "distance"} MeasureName */

/**
 * @typedef {object} State
 * @property {number} map index of the input
 * @property {string | null} layer name; null: the layer that the view opens with
 * @property {number | null} head null: the clearest head of the layer
 * @property {boolean | null} all whether all heads of the layer are drawn; null: if they are few
 * @property {number} query
 * @property {number | null} key null: none, a whole row is selected
 * @property {Mode | null} mode null: the default of the layer
 * @property {ScaleName} scale of the colours
 * @property {boolean} aside whether the first key is left out of the colour scale
 * @property {boolean} words whether word pieces are merged
 * @property {boolean} spaces whether the spaces before words are shown
 * @property {number} top number of lines for each query but the selected one; 0: all
 * @property {boolean} change whether differences to the original are drawn
 * @property {string} beside key of the map drawn for comparison; empty: none
 * @property {number | null} frame index of the snapshot; null: the map itself
 * @property {MeasureName | ""} measure that ranks the heads; empty: the first known
 * @property {boolean} sum whether the computation of the weight is open
 * @property {boolean} why whether the reasons of the weight are open
 * @property {number} temperature of the softmax in the computation; 1: the model's
 */

/** @typedef {Partial<Pick<State, "layer" | "head" | "query" | "key">>} Hover what the pointer is at */

/** @type {Readonly<State>} */
export const START = {
  map: 0,
  layer: null,
  head: null,
  all: null,
  query: 0,
  key: null,
  mode: null,
  scale: "shared",
  aside: false,
  words: false,
  spaces: false,
  top: 3,
  change: false,
  beside: "",
  frame: null,
  measure: "",
  sum: false,
  why: false,
  temperature: 1,
};

/** The selection, and what the pointer adds to it for a moment. */
export class Selection {
  /** @param {State} chosen */
  constructor(chosen) {
    this.chosen = chosen;
    /** @type {Hover | null} */
    this.hover = null;
    /** @type {((chosen: boolean) => void)[]} */
    this.listeners = [];
  }

  /** What every part of the page shows. @returns {State} */
  get current() {
    return this.hover ? { ...this.chosen, ...this.hover } : this.chosen;
  }

  /** @param {(chosen: boolean) => void} listener is told whether the selection or only the hovering has changed */
  subscribe(listener) {
    this.listeners.push(listener);
  }

  /** @param {State} state */
  choose(state) {
    this.chosen = state;
    this.hover = null;
    for (const listener of this.listeners) listener(true);
  }

  /** @param {Hover | null} hover */
  point(hover) {
    const names = /** @type {(keyof Hover)[]} */ (["layer", "head", "query", "key"]);
    if (names.every((name) => this.hover?.[name] === hover?.[name])) return;
    this.hover = hover;
    for (const listener of this.listeners) listener(false);
  }
}

export const FEW_HEADS = 4; // a layer of at most so many heads is drawn whole

/** Whether all heads of a layer are drawn. @param {Pick<State, "all" | "beside" | "mode">} state @param {number} heads */
export function drawsAll({ all, beside, mode }, heads) {
  return heads > 1 && !beside && mode !== "flow" && (all ?? heads <= FEW_HEADS);
}

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

// The layer, head and row that the view opens with.

/**
 * The score of each head: its importance if that is known, otherwise the mean of its largest weights on other tokens.
 * @param {Pick<ViewData, "importance">} data @param {Pick<LayerData, "name" | "kind" | "measures">} layer
 * @param {() => Matrix} matrix
 */
function openingScores({ importance }, { name, kind, measures }, matrix) {
  const known = importance?.[name];
  if (known) return known.map(({ added }) => added);
  if (measures?.peak) return measures.peak;
  const weights = matrix();
  return Array.from({ length: weights.heads }, (_, head) => peak(weights, head, kind));
}

/**
 * The state with a layer, head, query and key that exist; where none is selected yet, those of the clearest finding.
 * @param {State} state @param {ViewData} data @param {MapData} map @param {Weights} weights
 * @returns {{ layer: LayerData, state: State } | null} null without layers
 */
export function fitState(state, data, map, weights) {
  const usual = currentLayer(map, state.layer);
  if (!usual) return null;
  const fresh = state.layer === null && state.head === null;
  /** @type {Finding} */
  const found = fresh ? findOpening(data, map, usual, weights) : { layer: usual };
  const { layer } = found;
  const matrix = weights.of(layer, state);
  const wanted = state.head ?? found.head ?? (layer.name === map.opens ? map.head : null);
  const scores = () => openingScores(data, layer, () => matrix);
  const head = wanted !== null && wanted < matrix.heads ? wanted : largestAt(scores());
  const opening = state.layer === null && state.query === START.query && state.key === null;
  return {
    layer,
    state: {
      ...state,
      layer: layer.name,
      head,
      query: opening
        ? (found.query ?? openingRow(matrix, head, layer.kind))
        : Math.max(0, Math.min(state.query, matrix.rows - 1)),
      key: state.key === null ? null : Math.max(0, Math.min(state.key, matrix.columns - 1)),
    },
  };
}

/** @param {number[]} values */
function largestAt(values) {
  return Math.max(0, values.indexOf(Math.max(...values)));
}

/** @typedef {{ layer: LayerData, head?: number, query?: number }} Finding */

/**
 * Among the layers of one kind, a clear relation of two words, otherwise the layer with the head of the largest score;
 * `first` if the map is too large.
 * @param {ViewData} data @param {MapData} map @param {LayerData} first @param {Weights} weights @returns {Finding}
 */
function findOpening(data, map, first, weights) {
  const layers = map.layers.filter((layer) => layer.kind === first.kind);
  if (map.opens || weightCount(layers) > MOST_COMPARED) return { layer: first };
  const heads = hasRelations(map, data)
    ? layers.flatMap((layer) => weights.of(layer, START).slices.map((_, head) => ({ layer, head })))
    : [];
  const found = heads.map(({ layer, head }) => clearestRelation(weights.of(layer, START), head));
  const clearest = largestAt(found.map(({ score }) => score));
  if (found[clearest]?.score) return { ...heads[clearest], query: found[clearest].query };
  const best = layers.map((layer) => Math.max(...openingScores(data, layer, () => weights.of(layer, START))));
  return { layer: layers[largestAt(best)] ?? first };
}

/**
 * The row that the view opens with. A causal step sees least in the first row and most in the last one. In other
 * self-attention: the row with the clearest relation; otherwise the first row.
 * @param {Matrix} matrix @param {number} head @param {LayerData["kind"]} kind
 */
export function openingRow(matrix, head, kind) {
  if (matrix.causal) return matrix.rows - 1;
  return kind === "cross" || matrix.relevant?.length ? 0 : clearestRelation(matrix, head, 0).query;
}

// The selection in the page's address: it survives a reload, and a link shows others the same view.

/** @typedef {{ beam: number, branch: number }} Written the width of the displayed search, and the branch looked at */
/** @typedef {"importance" | "roles"} Asked a computation that takes a while */

/** @param {string} value */
const number = (value) => (/^\d{1,6}$/.test(value) ? Number(value) : undefined);
/** @param {string} value */
const flag = (value) => value === "true";
/** @param {RegExp} form */
const text = (form) => (/** @type {string} */ value) => (form.test(value) ? value : undefined);

/** @type {Partial<Record<keyof State, (value: string) => unknown>>} how each parameter of an address is read */
const PARAMETERS = {
  map: number,
  head: number,
  query: number,
  key: number,
  frame: number,
  top: number,
  layer: (value) => value,
  all: flag,
  words: flag,
  spaces: flag,
  change: flag,
  sum: flag,
  why: flag,
  aside: flag,
  mode: text(/^(picture|heatmap|lines|flow)$/),
  scale: text(/^(shared|own)$/),
  measure: text(new RegExp(`^(${MEASURE_NAMES.join("|")})$`)),
  beside: text(/^(original|(model|input|snapshot)-\d{1,4})$/),
  temperature: (value) =>
    /^\d{1,3}(\.\d{1,4})?$/.test(value) ? Math.min(Math.max(Number(value), 0.1), 10) : undefined,
};
/** @type {Asked[]} */
export const COMPUTATIONS = ["importance", "roles"];

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

/** Parses the result of `formatAddress`; invalid values are ignored. @param {string} hash */
export function readAddress(hash) {
  const parameters = new URLSearchParams(hash.slice(1));
  const entries = Object.entries(PARAMETERS)
    .filter(([name]) => parameters.has(name))
    .map(([name, read]) => [name, read(parameters.get(name) ?? "")])
    .filter(([, value]) => value !== undefined);
  const search = /^(\d{1,2}),(\d{1,6})$/.exec(parameters.get("written") ?? "");
  const asked = parameters.get("asked")?.split(",") ?? [];
  return {
    state: /** @type {Partial<State>} */ (Object.fromEntries(entries)),
    input: parameters.get("input"),
    touched: parseList(parameters.get("touched")),
    written: search && { beam: Number(search[1]), branch: Number(search[2]) },
    asked: COMPUTATIONS.filter((name) => asked.includes(name)),
  };
}

/** @param {string | null} text @returns {InterventionData[] | null} */
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

// The scene: all data of one drawing, and the actions that its parts can trigger.

import { cached, largestValue } from "./arithmetic.js";
import { averageHeads, hasRollout, rollout } from "./matrix.js";
import { layersOnScale, Scale, scaledAlike, usualScale } from "./scale.js";

/** @import { Palette } from "./colours.js" */
/** @import { InterventionData, LayerData, MapData, ViewData } from "./data.js" */
/** @import { Matrix, Weights } from "./matrix.js" */
/** @import { Mode, State } from "./state.js" */

/** @type {Mode[]} */
const COMPARING = ["heatmap", "table"]; // display modes that can show a difference
const ROLLOUT =
  "Rollout: the share of each input in each state, layer by layer. Heads are averaged, and half of each state " +
  "comes from the residual connection (Abnar and Zuidema 2020).";

/** @typedef {State & { mode: Mode }} Chosen what is chosen, with the way to draw */
/** @typedef {Required<Omit<InterventionData, "to">>} Placed which weight it is */

/**
 * @typedef {object} Scene
 * @property {ViewData} data
 * @property {MapData} map the displayed map, of an input or a snapshot
 * @property {LayerData} layer
 * @property {Readonly<Chosen>} state
 * @property {Matrix} matrix the displayed weights of the layer, between words if selected
 * @property {(layer: LayerData) => Matrix} shown the same for another layer
 * @property {string | null} derived description of the displayed weights, if they are not those of heads
 * @property {Matrix | null} before the layer's weights without interventions, if the tokens are the same
 * @property {Beside | null} beside the map shown for comparison
 * @property {boolean} [effect] whether it shows what an intervention changed elsewhere
 * @property {string} [title] of a heatmap, if it is not its head
 * @property {Float32Array[] | null} changes differences of each head, if they are displayed instead of weights
 * @property {boolean} [preview] whether the user set a weight for which the model has not answered yet
 * @property {number} largest the weight of the strongest colour, if it is the same for the whole drawing
 * @property {Scale} scale the colours of weights
 */

/**
 * The matching layer of another map.
 * @typedef {object} Beside
 * @property {string} name
 * @property {Matrix} matrix
 * @property {Float32Array[] | null} changes displayed weights minus these, if both have the same tokens
 * @property {number} most the largest absolute difference
 */

/**
 * The surface of a drawing.
 * @typedef {object} Surface
 * @property {Palette} colours
 * @property {number} width in pixels
 * @property {number | null} height in pixels; null: as much as the drawing takes
 * @property {number} whole width of the whole view
 * @property {number | null} high height of the whole view in pixels; null: as much as it takes
 * @property {number} factor of the text on a large screen
 * @property {boolean} [onPaper] whether it is printed and must be drawn at once
 */

/**
 * @typedef {object} Actions
 * @property {(change: Partial<State>) => void} choose changes the state
 * @property {(query: number, key: number | null, head: number | null) => void} point highlights a query, and optionally a key
 * @property {() => void} rest removes the highlight
 * @property {(change: InterventionData, undo: boolean) => void} touch adds or removes an intervention
 * @property {(place: Placed, to: number) => void} preview shows a dragged weight before the model answers
 * @property {() => void} untouch removes all interventions
 * @property {() => void} undo takes back the last intervention
 * @property {(layer: string, head: number) => void} open shows a head
 */

/**
 * @param {ViewData} data @param {MapData} map @param {LayerData} layer
 * @param {Readonly<State>} selection the selected state
 * @param {Weights} weights @returns {Scene}
 */
export function makeScene(data, map, layer, selection, weights) {
  /** @param {LayerData} source */
  const shown = (source) => weights.of(source, selection.words);
  const before = originalLayer(data, layer);
  const derived = deriveMatrix(map, layer, selection, shown);
  const state = derived ? derived.state : { ...selection, mode: currentMode(map, layer, selection.mode) };
  const matrix = derived ? derived.matrix : shown(layer);
  const flow = state.mode === "flow";
  const original = before && !flow ? (derived ? averageHeads(shown(before), derived.heads) : shown(before)) : null;
  const changed = original && state.change && COMPARING.includes(state.mode) ? differences(matrix, original) : null;
  const patches = state.mode === "picture" ? imagePatches(map, layer) : null;
  const scale = () =>
    patches
      ? [largestOnPatches(matrix, matrix.shown(state), Math.min(state.query, matrix.rows - 1), patches)]
      : layersOnScale(data, map, layer, state).map((source) => shown(source).scale);
  const beside = derived ? null : compareWith(layerBeside(data, map, layer, state), matrix, shown);
  const largest = changed ? changed.map((source) => largestValue(source, true)) : flow ? [matrix.scale] : scale();
  const top = Math.max(...largest, beside?.matrix.scale ?? 0, 1e-9);
  const alike = derived ? undefined : scaledAlike(data, layer, shown, beside);
  return {
    data,
    map,
    layer,
    state,
    matrix,
    derived: derived?.said ?? null,
    shown,
    before: original,
    beside,
    changes: changed,
    largest: top,
    scale: new Scale(state.scale || usualScale(data, selection.map, weights), top, state.aside, alike),
  };
}

/**
 * The selected display mode if the layer supports it (arcs require self-attention), otherwise the default.
 * @param {MapData} map @param {LayerData} layer @param {Mode | null} mode @returns {Mode}
 */
export function currentMode(map, layer, mode) {
  const all = availableModes(map, layer);
  return mode && all.includes(mode) ? mode : all[0];
}

/** The display modes of a layer, the default first. @param {MapData} map @param {LayerData} layer @returns {Mode[]} */
export function availableModes(map, layer) {
  // Arcs show each token once, but the symbols written at a step differ from those read there.
  const arcs = layer.kind !== "cross" && !layer.written && layer.queries.length === layer.keys.length;
  /** @type {Mode[]} */
  const own = [
    ...(arcs ? /** @type {Mode[]} */ (["arcs"]) : []),
    ...(hasRollout(map, layer.kind) ? /** @type {Mode[]} */ (["flow"]) : []),
  ];
  /** @type {Mode[]} */
  const upon = imagePatches(map, layer) ? ["picture"] : [];
  return [...upon, "heatmap", "lines", ...own, "table", "overview"];
}

/**
 * Values derived from several heads or layers with the matching state, or null.
 * @param {MapData} map @param {LayerData} layer @param {Readonly<State>} state
 * @param {(layer: LayerData) => Matrix} shown
 */
function deriveMatrix(map, layer, state, shown) {
  const own = shown(layer);
  if (currentMode(map, layer, state.mode) === "flow") {
    const matrix = rollout(map, layer, shown);
    /** @type {Chosen} */
    const fitting = { ...state, mode: "flow", head: null, off: "", key: null, focus: matrix.heads - 1, change: false };
    return { matrix, heads: [], state: fitting, said: ROLLOUT };
  }
  if (!state.mean || own.heads === 1 || state.head !== null || state.mode === "overview") return null;
  const heads = own.shown(state);
  const matrix = averageHeads(own, heads);
  const fitting = { ...state, mode: currentMode(map, layer, state.mode), focus: 0, off: "" };
  return { matrix, heads, state: fitting, said: `This is the ${matrix.name(0)}.` };
}

/**
 * @param {{ name: string, layer: LayerData } | null} compared @param {Matrix} matrix
 * @param {(layer: LayerData) => Matrix} shown @returns {Beside | null}
 */
function compareWith(compared, matrix, shown) {
  if (!compared) return null;
  const weights = shown(compared.layer);
  const same = String(weights.queries) === String(matrix.queries) && String(weights.keys) === String(matrix.keys);
  const changed =
    same && weights.heads === matrix.heads ? cached(matrix, compared.name, () => differences(matrix, weights)) : null;
  const largest = Math.max(...(changed ?? []).map((slice) => largestValue(slice, true)), 1e-9);
  return { name: compared.name, matrix: weights, changes: changed, most: largest };
}

// Maps that can be compared with the displayed one: without interventions, another input, snapshot or model.

const MOST_SNAPSHOTS = 12; // snapshots offered for comparison

/** @typedef {{ key: string, name: string, map: MapData }} Other */

/**
 * All maps that can be compared with the displayed one.
 * @param {ViewData} data
 * @param {MapData} map the displayed map
 * @returns {Other[]}
 */
export function comparableMaps({ maps, original, playback, beside }, map) {
  const same = (beside ?? []).filter((entry) => maps.length === 1 || entry.map.input === map.input);
  const candidates = same.map((candidate, number) => ({
    key: `model-${number}`,
    name: candidate.name,
    map: candidate.map,
  }));
  if (original) candidates.push({ key: "original", name: "without interventions", map: original });
  maps.forEach((map, number) => candidates.push({ key: `input-${number}`, name: map.input, map }));
  const frames = playback?.frames ?? [];
  const every = Math.ceil(frames.length / MOST_SNAPSHOTS) || 1;
  frames.forEach((frame, number) => {
    if (number % every !== 0) return;
    const steps = playback?.steps[number].toLocaleString("en");
    candidates.push({ key: `snapshot-${number}`, name: `after ${steps} training steps`, map: frame });
  });
  return candidates.filter((candidate) => candidate.map !== map && candidate.map.layers.length);
}

/**
 * The map chosen for comparison, or null.
 * @param {ViewData} data @param {MapData} map @param {Pick<State, "beside">} state
 */
export function comparedMap(data, map, { beside }) {
  return (beside && comparableMaps(data, map).find((map) => map.key === beside)) || null;
}

/**
 * The layer of the compared map that matches a displayed layer: by name, or if no names match, by position within a
 * kind that has the same number of layers in both. Null if there is none. `match_layers` in subject.py does the
 * same.
 * @param {ViewData} data @param {MapData} map @param {LayerData} layer @param {Pick<State, "beside">} state
 */
export function layerBeside(data, map, layer, state) {
  const compared = comparedMap(data, map, state);
  const match = compared && matchLayer(map.layers, compared.map.layers, layer);
  if (!compared || !match) return null;
  return { name: match.name === layer.name ? compared.name : `${compared.name}, ${match.title}`, layer: match };
}

/** @param {LayerData[]} own @param {LayerData[]} others @param {LayerData} layer one of `own` */
function matchLayer(own, others, layer) {
  const named = new Map(others.map((entry) => [entry.name, entry]));
  if (own.some((candidate) => named.has(candidate.name))) return named.get(layer.name);
  const [ours, theirs] = [own, others].map((layers) => layers.filter((candidate) => candidate.kind === layer.kind));
  const place = ours.findIndex((candidate) => candidate.name === layer.name);
  return ours.length === theirs.length ? theirs[place] : undefined;
}

// The effect of an intervention: the weights minus the original ones.

/**
 * The layer without interventions, if its tokens are the same; another answer has other tokens.
 * @param {ViewData} data @param {LayerData} layer
 */
export function originalLayer({ original }, layer) {
  const before = original?.layers.find((candidate) => candidate.name === layer.name);
  return before && sameLabels(before.queries, layer.queries) && sameLabels(before.keys, layer.keys) ? before : null;
}

/** The difference of the weights of each head. @param {Matrix} now @param {Matrix} before */
export function differences(now, before) {
  return now.slices.map((slice, head) => slice.map((value, index) => value - before.slices[head][index]));
}

/** @param {string[]} first @param {string[]} second */
function sameLabels(first, second) {
  return first.length === second.length && first.every((label, index) => label === second[index]);
}

// The steps of a layer that are patches of an image, and their weights.

/** @typedef {{ first: number, rows: number, columns: number }} Patches */

/**
 * The patches of a layer; null without patches or without an image.
 * @param {Pick<MapData, "picture">} map @param {Pick<LayerData, "patches">} layer @returns {Patches | null}
 */
export function imagePatches({ picture }, { patches }) {
  return picture && patches ? { first: patches[0], rows: patches[1], columns: patches[2] } : null;
}

/**
 * The largest weight of a query on any patch, over some heads.
 * @param {Matrix} matrix @param {number[]} heads @param {number} query @param {Patches} patches
 */
export function largestOnPatches(matrix, heads, query, { first, rows, columns }) {
  const all = heads.map((head) => matrix.row(matrix.slices[head], query).subarray(first, first + rows * columns));
  return all.reduce((largest, row) => row.reduce((maximum, weight) => Math.max(maximum, weight), largest), 0);
}

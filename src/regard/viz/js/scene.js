// The scene: all data of one drawing, and the actions that its parts can trigger.

import { largestValue } from "./arithmetic.js";
import { hasRollout, rollout } from "./matrix.js";
import { layerScale } from "./scale.js";
import { drawsAll } from "./state.js";

/** @import { Palette } from "./colours.js" */
/** @import { InterventionData, LayerData, MapData, ViewData } from "./data.js" */
/** @import { Matrix, Weights } from "./matrix.js" */
/** @import { Scale } from "./scale.js" */
/** @import { Hover, Mode, State } from "./state.js" */

const ROLLOUT =
  "Rollout: the share of each input in each state up to this layer. Heads are averaged, and half of each state comes " +
  "from the residual connection (Abnar and Zuidema 2020).";

/** @typedef {State & { layer: string, head: number, mode: Mode }} Chosen what is selected, with a layer, head and mode */
/** @typedef {Required<Omit<InterventionData, "to">>} Placed which weight it is */

/**
 * @typedef {object} Scene
 * @property {ViewData} data
 * @property {MapData} map the displayed map, of an input or a snapshot
 * @property {LayerData} layer
 * @property {Readonly<Chosen>} state
 * @property {Matrix} matrix the displayed weights of the layer, between words if selected
 * @property {number} head the slice of `matrix` that is selected
 * @property {number[]} heads the slices that are drawn
 * @property {(layer: LayerData) => Matrix} shown the weights of another layer
 * @property {string | null} derived description of the displayed weights, if they are not those of heads
 * @property {Matrix | null} before the layer's weights without interventions, if the tokens are the same
 * @property {Beside | null} beside the map shown for comparison
 * @property {string} [title] of a picture, if it is not its head
 * @property {Float32Array[] | null} changes differences of each head, if they are displayed instead of weights
 * @property {boolean} [hovering] whether it shows what the pointer is at for a moment
 * @property {boolean} [preview] whether the user set a weight for which the model has not answered yet
 * @property {number} largest the largest difference, or the largest weight on a patch
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
 * @typedef {object} Surface
 * @property {Palette} colours
 * @property {number} width in pixels
 * @property {number} height in pixels
 * @property {number} [largest] pixels of the picture of a head
 * @property {boolean} [onPaper] whether it is printed and must be drawn at once
 */

/**
 * @typedef {object} Actions
 * @property {(change: Partial<State>) => void} choose changes the selection
 * @property {(hover: Hover | null) => void} point shows what the pointer is at; null: the selection again
 * @property {(change: InterventionData, undo: boolean) => void} touch adds or removes an intervention
 * @property {(place: Placed, to: number) => void} preview shows a dragged weight before the model answers
 * @property {() => void} untouch removes all interventions
 * @property {() => void} undo takes back the last intervention
 * @property {(layer: string, head: number) => void} open shows a head
 */

/**
 * @param {ViewData} data @param {MapData} map @param {LayerData} layer
 * @param {Readonly<State>} selection with a layer and a head
 * @param {Weights} weights @returns {Scene}
 */
export function makeScene(data, map, layer, selection, weights) {
  /** @param {LayerData} source */
  const shown = (source) => weights.of(source, selection);
  const mode = currentMode(map, layer, selection.mode);
  const state = /** @type {Chosen} */ ({ ...selection, layer: layer.name, mode });
  const flow = mode === "flow";
  const matrix = flow ? rollout(map, layer, shown) : shown(layer);
  const head = flow ? 0 : Math.min(state.head, matrix.heads - 1);
  const original = flow ? null : originalLayer(data, layer);
  const before = original && shown(original);
  const changed = before && state.change && mode === "heatmap" ? differences(matrix, before) : null;
  const compared = flow ? null : layerBeside(data, map, layer, state);
  const beside = compareWith(compared, matrix, shown);
  const patches = mode === "picture" ? imagePatches(map, layer) : null;
  const heads = drawsAll({ ...state, mode }, matrix.heads) ? matrix.slices.map((_, index) => index) : [head];
  const largest = changed
    ? Math.max(...changed.map((slice) => largestValue(slice, true)))
    : patches
      ? largestOnPatches(matrix, heads, Math.min(state.query, matrix.rows - 1), patches)
      : 0;
  return {
    ...{ data, map, layer, state, matrix, head, heads, shown, before, beside },
    derived: flow ? ROLLOUT : null,
    changes: changed,
    largest: Math.max(largest, 1e-9),
    scale: layerScale(data, map, layer, state, flow ? () => matrix : shown, beside?.matrix ?? null),
  };
}

/**
 * The selected display mode if the layer supports it, otherwise the default.
 * @param {MapData} map @param {LayerData} layer @param {Mode | null} mode @returns {Mode}
 */
export function currentMode(map, layer, mode) {
  const all = availableModes(map, layer);
  return mode && all.includes(mode) ? mode : all[0];
}

/** The display modes of a layer, the default first. @param {MapData} map @param {LayerData} layer @returns {Mode[]} */
export function availableModes(map, layer) {
  /** @type {Mode[]} */
  const modes = imagePatches(map, layer) ? ["picture", "heatmap", "lines"] : ["heatmap", "lines"];
  return hasRollout(map, layer.kind) ? [...modes, "flow"] : modes;
}

/**
 * @param {{ name: string, layer: LayerData } | null} compared @param {Matrix} matrix
 * @param {(layer: LayerData) => Matrix} shown @returns {Beside | null}
 */
function compareWith(compared, matrix, shown) {
  if (!compared) return null;
  const weights = shown(compared.layer);
  const same = sameLabels(weights.queries, matrix.queries) && sameLabels(weights.keys, matrix.keys);
  const changed = same && weights.heads === matrix.heads ? differences(matrix, weights) : null;
  const largest = Math.max(...(changed ?? []).map((slice) => largestValue(slice, true)), 1e-9);
  return { name: compared.name, matrix: weights, changes: changed, most: largest };
}

/** Whether a head is switched off. @param {Pick<Scene, "map" | "layer" | "matrix">} scene @param {number} head */
export function isOff({ map, layer, matrix }, head) {
  return map.interventions.includes(`${layer.name}: ${matrix.name(head)} off`);
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

/** @type {WeakMap<Matrix, WeakMap<Matrix, Float32Array[]>>} */
const differencesKnown = new WeakMap();

/** The difference of the weights of each head. @param {Matrix} now @param {Matrix} before */
export function differences(now, before) {
  const known = differencesKnown.get(now) ?? new WeakMap();
  differencesKnown.set(now, known);
  const changes =
    known.get(before) ??
    now.slices.map((slice, head) => slice.map((value, index) => value - before.slices[head][index]));
  known.set(before, changes);
  return changes;
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

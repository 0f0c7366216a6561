// One drawing: everything that its parts need to know, and what they can ask for.

import { greatest } from "./arithmetic.js";
import { averaged } from "./average.js";
import { besideOf } from "./beside.js";
import { changes, originalOf } from "./difference.js";
import { once } from "./once.js";
import { largestOnPatches, patchesOf } from "./patches.js";
import { flows, rollout } from "./rollout.js";

/** @import { Palette } from "./colours.js" */
/** @import { InterventionData, LayerData, MapData, ViewData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Mode, State } from "./state.js" */
/** @import { Weights } from "./weights.js" */

/** @type {Mode[]} */
const COMPARING = ["heatmap", "table"]; // ways to draw that can show a difference
const ROLLOUT =
  "Rollout: how much of each input is in each state, layer by layer. Heads are averaged, and half of each state is " +
  "handed on as it was, by the residual (Abnar and Zuidema 2020).";

/** @typedef {State & { mode: Mode }} Chosen what is chosen, with the way to draw */
/** @typedef {Required<Omit<InterventionData, "to">>} Placed which weight it is */

/**
 * @typedef {object} Scene
 * @property {ViewData} data
 * @property {MapData} map the map that is shown: of an input, or of a snapshot
 * @property {LayerData} layer
 * @property {Readonly<Chosen>} state
 * @property {Matrix} matrix the layer's weights as they are shown: between words, if that was chosen
 * @property {(layer: LayerData) => Matrix} shown the same of another layer
 * @property {string | null} derived what is shown, where that is not the weights of heads
 * @property {Matrix | null} before the layer's weights before it was touched, where these are of the same tokens
 * @property {Beside | null} beside what stands beside it
 * @property {string} [title] of a heatmap, where it is not that of its head
 * @property {Float32Array[] | null} changes of each head, where these are drawn instead of weights
 * @property {number} largest what the strongest colour stands for, the same for all that is drawn
 */

/**
 * The same layer of another map.
 *
 * @typedef {object} Beside
 * @property {string} name
 * @property {Matrix} matrix
 * @property {Float32Array[] | null} changes what is shown less this, where both have the same tokens
 * @property {number} most the largest of these, by size
 */

/**
 * What the drawing is made on.
 *
 * @typedef {object} Surface
 * @property {Palette} colours
 * @property {number} width in pixels
 * @property {boolean} [onPaper] whether it is printed, and so has to be drawn at once
 */

/**
 * @typedef {object} Actions
 * @property {(change: Partial<State>) => void} choose change what is shown
 * @property {(query: number, key: number | null, head: number | null) => void} point at a query, and perhaps a key
 * @property {() => void} rest point at nothing any more
 * @property {(change: InterventionData, undo: boolean) => void} touch add an intervention, or take one away
 * @property {(place: Placed, to: number) => void} preview show a weight as it is dragged, before that is answered
 * @property {() => void} untouch take all interventions away
 */

/**
 * @param {ViewData} data
 * @param {MapData} map
 * @param {LayerData} layer
 * @param {Readonly<State>} given what is chosen
 * @param {Weights} weights
 * @returns {Scene}
 */
export function sceneOf(data, map, layer, given, weights) {
  /** @param {LayerData} each */
  const shown = (each) => weights.of(each, given.words);
  const before = originalOf(data, layer);
  const derived = derivedOf(map, layer, given, shown);
  const state = derived ? derived.state : { ...given, mode: modeOf(map, layer, given.mode) };
  const matrix = derived ? derived.matrix : shown(layer);
  const flow = state.mode === "flow";
  const original = before && !flow ? (derived ? averaged(shown(before), derived.heads) : shown(before)) : null;
  const changed = original && state.change && COMPARING.includes(state.mode) ? changes(matrix, original) : null;
  const patches = state.mode === "picture" ? patchesOf(map, layer) : null;
  const scale = () =>
    patches
      ? [largestOnPatches(matrix, matrix.shown(state), Math.min(state.query, matrix.rows - 1), patches)]
      : layersOnScale(data, map, layer, state).map((each) => shown(each).scale);
  const beside = derived ? null : standing(besideOf(data, map, layer, state), matrix, shown);
  const largest = changed ? changed.map((each) => greatest(each, true)) : flow ? [matrix.scale] : scale();
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
    largest: Math.max(...largest, beside?.matrix.scale ?? 0, 1e-9),
  };
}

/**
 * The way to draw that is chosen, where the layer has it: arcs are of tokens that look at each other. Else the usual one.
 *
 * @param {MapData} map
 * @param {LayerData} layer
 * @param {Mode | null} mode
 * @returns {Mode}
 */
export function modeOf(map, layer, mode) {
  const all = modesOf(map, layer);
  return mode && all.includes(mode) ? mode : all[0];
}

/**
 * The ways to draw that a layer has, the usual one first.
 *
 * @param {MapData} map
 * @param {LayerData} layer
 * @returns {Mode[]}
 */
export function modesOf(map, layer) {
  // Arcs name each token once, and what is written at a step is not what is read there.
  const arcs = layer.kind !== "cross" && !layer.written && layer.queries.length === layer.keys.length;
  /** @type {Mode[]} */
  const own = [
    ...(arcs ? /** @type {Mode[]} */ (["arcs"]) : []),
    ...(flows(map, layer.kind) ? /** @type {Mode[]} */ (["flow"]) : []),
  ];
  /** @type {Mode[]} */
  const upon = patchesOf(map, layer) ? ["picture"] : [];
  return [...upon, "heatmap", "lines", ...own, "table", "overview"];
}

/**
 * What is worked out of the weights of several heads or layers, and the state that fits it; null: nothing is.
 *
 * @param {MapData} map
 * @param {LayerData} layer
 * @param {Readonly<State>} state
 * @param {(layer: LayerData) => Matrix} shown
 */
function derivedOf(map, layer, state, shown) {
  const own = shown(layer);
  if (modeOf(map, layer, state.mode) === "flow") {
    const matrix = rollout(map, layer, shown);
    /** @type {Chosen} */
    const fitting = {
      ...state,
      mode: "flow",
      head: null,
      off: "",
      key: null,
      focus: matrix.heads - 1,
      change: false,
    };
    return { matrix, heads: [], state: fitting, said: ROLLOUT };
  }
  if (!state.mean || own.heads === 1 || state.head !== null || state.mode === "overview") return null;
  const heads = own.shown(state);
  const matrix = averaged(own, heads);
  const fitting = { ...state, mode: modeOf(map, layer, state.mode), focus: 0, off: "" };
  return { matrix, heads, state: fitting, said: `This is the ${matrix.name(0)}.` };
}

/**
 * @param {{ name: string, layer: LayerData } | null} other
 * @param {Matrix} matrix
 * @param {(layer: LayerData) => Matrix} shown
 * @returns {Beside | null}
 */
function standing(other, matrix, shown) {
  if (!other) return null;
  const found = shown(other.layer);
  const same = String(found.queries) === String(matrix.queries) && String(found.keys) === String(matrix.keys);
  const changed =
    same && found.heads === matrix.heads ? once(matrix, other.name, () => changes(matrix, found)) : null;
  const most = Math.max(...(changed ?? []).map((each) => greatest(each, true)), 1e-9);
  return { name: other.name, matrix: found, changes: changed, most };
}

/**
 * The layers that are drawn on one scale: all of the overview, else the one that is shown; and the same after each
 * snapshot, so that the colours mean the same all through the training.
 *
 * @param {ViewData} data
 * @param {MapData} map
 * @param {LayerData} layer
 * @param {Readonly<State>} state
 */
function layersOnScale({ playback }, map, layer, state) {
  const frames = playback?.frames.flatMap((frame) => frame.layers) ?? [];
  if (state.mode === "overview") return [...map.layers, ...frames];
  return [layer, ...frames.filter((each) => each.name === layer.name)];
}

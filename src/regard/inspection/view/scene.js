// One drawing: everything that its parts need to know, and what they can ask for.

import { greatest } from "./arithmetic.js";
import { changes, originalOf } from "./difference.js";

/** @import { Palette } from "./colours.js" */
/** @import { InterventionData, LayerData, MapData, ViewData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Mode, State } from "./state.js" */
/** @import { Weights } from "./weights.js" */

/** @type {Mode[]} */
const COMPARING = ["heatmap", "table"]; // ways to draw that can show a difference

/**
 * @typedef {object} Scene
 * @property {ViewData} data
 * @property {MapData} map the map that is shown: of an input, or of a snapshot
 * @property {LayerData} layer
 * @property {Readonly<State>} state
 * @property {Matrix} matrix the layer's weights as they are shown: between words, if that was chosen
 * @property {(layer: LayerData) => Matrix} shown the same of another layer
 * @property {Matrix | null} before the layer's weights before it was touched, where these are of the same tokens
 * @property {Float32Array[] | null} changes of each head, where these are drawn instead of weights
 * @property {number} largest what the strongest colour stands for, the same for all that is drawn
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
 * @property {(change: InterventionData, undo: boolean) => void} touch add an intervention, or take one away
 * @property {() => void} untouch take all interventions away
 */

/**
 * @param {ViewData} data
 * @param {MapData} map
 * @param {LayerData} layer
 * @param {Readonly<State>} state
 * @param {Weights} weights prepared for `layersNeeded`
 * @returns {Scene}
 */
export function sceneOf(data, map, layer, state, weights) {
  /** @param {LayerData} each */
  const shown = (each) => weights.of(each, state.words);
  const before = originalOf(data, layer);
  const matrix = shown(layer);
  const original = before && shown(before);
  const changed = original && state.change && COMPARING.includes(state.mode) ? changes(matrix, original) : null;
  const largest = changed
    ? changed.map((each) => greatest(each, true))
    : layersOnScale(data, map, layer, state).map((each) => shown(each).largest);
  return {
    data,
    map,
    layer,
    state,
    matrix,
    shown,
    before: original,
    changes: changed,
    largest: Math.max(...largest, 1e-9),
  };
}

/**
 * The layers whose weights a scene asks for.
 *
 * @param {ViewData} data
 * @param {MapData} map
 * @param {LayerData} layer
 * @param {Readonly<State>} state
 */
export function layersNeeded(data, map, layer, state) {
  const before = originalOf(data, layer);
  return [layer, ...(before ? [before] : []), ...layersOnScale(data, map, layer, state)];
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

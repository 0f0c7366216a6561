// The colour scale of a drawing: which layers, snapshots and maps share it.

import { cached } from "./cache.js";
import { headCount } from "./packing.js";
import { chooseScale, Scale } from "./scale.js";

/** @import { LayerData, MapData, ViewData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Weights } from "./weights.js" */

const MOST_WEIGHED = 200_000; // weights from which the scale is chosen: of more, those of every n-th layer
const LEAST_LAYERS = 4; // layers from which it is chosen: the first one of a deep model differs from the others

/**
 * The scale that shows most heads of an input; the same for all its layers, snapshots and interventions.
 *
 * @param {ViewData} data
 * @param {number} input
 * @param {Weights} weights
 */
export function usualScale({ maps, original }, input, weights) {
  const map = original ?? maps[input];
  // By the outputs, which stay the same when whole layers replace thumbnails: so do the colours.
  return cached(map.outputs, "scale", () => {
    const largest = Math.max(
      ...map.layers.map((layer) => layer.queries.length * layer.keys.length * headCount(layer)),
    );
    const wanted = Math.max(LEAST_LAYERS, Math.floor(MOST_WEIGHED / Math.max(largest, 1)));
    const every = Math.ceil(map.layers.length / wanted);
    const matrices = map.layers
      .filter((_, index) => index % every === 0)
      .map((layer) => weights.of(layer, false));
    return chooseScale(matrices, Math.max(...matrices.map((matrix) => matrix.scale)));
  });
}

/**
 * The matrices whose heads have the same scale as those of a layer: in all snapshots and in the compared map.
 *
 * @param {ViewData} data
 * @param {LayerData} layer
 * @param {(layer: LayerData) => Matrix} shown
 * @param {{ matrix: Matrix } | null} beside the compared matrix
 * @returns {(matrix: Matrix) => Matrix[]}
 */
export function scaledAlike({ playback }, layer, shown, beside) {
  const frames = playback?.frames.flatMap((frame) => frame.layers) ?? [];
  const compared = beside ? [beside.matrix, shown(layer)] : [];
  return (matrix) => {
    if (matrix !== shown(layer) && !compared.includes(matrix)) return [matrix];
    return [matrix, ...frames.filter((frame) => frame.name === layer.name).map(shown), ...compared];
  };
}

/**
 * The layers that share a colour scale: all in the overview, otherwise the displayed one, in all snapshots, so that
 * colours keep their meaning during the playback.
 *
 * @param {ViewData} data
 * @param {MapData} map
 * @param {LayerData} layer
 * @param {{ mode: string | null }} state
 */
export function layersOnScale({ playback }, map, layer, state) {
  const frames = playback?.frames.flatMap((frame) => frame.layers) ?? [];
  if (state.mode === "overview") return [...map.layers, ...frames];
  return [layer, ...frames.filter((frame) => frame.name === layer.name)];
}

/**
 * The scale of a layer's small pictures: if heads share it, over all layers of the same kind. The other kinds
 * can have 1,500 keys where this one has four, and would be white.
 *
 * @param {{ map: MapData, scale: Scale, shown: (layer: LayerData) => Matrix }} scene
 * @param {LayerData["kind"]} kind
 */
export function posterScale({ map, scale, shown }, kind) {
  const layers = map.layers.filter((layer) => layer.kind === kind);
  const largest = scale.name === "shared" ? layers.map((layer) => shown(layer).scale) : [scale.largest];
  return new Scale(scale.name, Math.max(...largest, 1e-9), scale.aside, scale.alike);
}

// Whole weights of layers of which only thumbnails were sent, since the others of many weights come when needed.

/** @import { LayerData, MapData } from "./js/data.js" */
/** @import { Scene } from "./js/scene.js" */

/**
 * Names of the layers that a view shows as thumbnails though it needs all weights.
 *
 * @param {Pick<Scene, "map" | "layer" | "state">} scene
 */
export function neededLayers({ map, layer, state }) {
  const all = state.mode === "overview" || state.mode === "flow" || state.words;
  const shown = all ? map.layers : map.layers.filter(({ name }) => name === layer.name);
  return thumbnails(shown);
}

/**
 * The names of the thumbnails among layers.
 *
 * @param {LayerData[]} layers
 */
export function thumbnails(layers) {
  return layers.filter(({ weights }) => !Array.isArray(weights) && weights.side > 1).map(({ name }) => name);
}

/**
 * A map with some layers in place of their thumbnails.
 *
 * @param {MapData} map
 * @param {LayerData[]} whole
 * @returns {MapData}
 */
export function withLayers(map, whole) {
  const byName = new Map(whole.map((layer) => [layer.name, layer]));
  return { ...map, layers: map.layers.map((layer) => byName.get(layer.name) ?? layer) };
}

// What the two sides of a matrix of weights are called.

/** @import { LayerData, MapData } from "./data.js" */

const SIDES = {
  encoder: ["inputs that look", "inputs looked at"],
  decoder: ["outputs that look", "outputs looked at"],
  cross: ["outputs that look", "inputs looked at"],
};
const TOKENS = ["tokens that look", "tokens looked at"]; // of records, which know of no outputs

/**
 * Names of rows and columns.
 *
 * @param {{ map: Pick<MapData, "prediction">, layer: Pick<LayerData, "kind"> }} scene
 */
export function axesOf({ map, layer }) {
  return map.prediction === null && layer.kind !== "cross" ? TOKENS : SIDES[layer.kind];
}

// What the two sides of a matrix of weights are called.

/** @import { LayerData, MapData } from "./data.js" */

const SIDES = {
  encoder: ["inputs that look", "inputs looked at"],
  decoder: ["outputs that look", "outputs looked at"],
  cross: ["outputs that look", "inputs looked at"],
};
const TOKENS = ["tokens that look", "tokens looked at"]; // of what is read, such as a prompt

/**
 * Names of rows and columns: what a model reads is tokens, unless it writes outputs as well or answers with numbers.
 *
 * @param {{ map: Pick<MapData, "prediction" | "layers">, layer: Pick<LayerData, "kind" | "written"> }} scene
 */
export function axesOf({ map, layer }) {
  const [down, across] = SIDES[layer.kind];
  const answers = Array.isArray(map.prediction);
  if (layer.kind === "cross")
    return [answers || layer.written || map.prediction === null ? down : TOKENS[0], across];
  const outputs = layer.kind === "encoder" ? map.layers.some((each) => each.written) : layer.written;
  return answers || outputs ? [down, across] : TOKENS;
}

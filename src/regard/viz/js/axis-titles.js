// Titles of the rows and columns of a weight matrix.

/** @import { LayerData, MapData } from "./data.js" */

const SIDES = {
  encoder: ["inputs (queries)", "inputs (keys)"],
  decoder: ["outputs (queries)", "outputs (keys)"],
  cross: ["outputs (queries)", "inputs (keys)"],
};
const TOKENS = ["tokens (queries)", "tokens (keys)"]; // for text that is read, such as a prompt

/**
 * Titles of rows and columns: tokens for text that the model reads, unless it also writes outputs or answers with
 * numbers.
 *
 * @param {{ map: Pick<MapData, "prediction" | "layers">, layer: Pick<LayerData, "kind" | "written"> }} scene
 */
export function axisTitles({ map, layer }) {
  const [down, across] = SIDES[layer.kind];
  const answers = Array.isArray(map.prediction);
  if (layer.kind === "cross")
    return [answers || layer.written || map.prediction === null ? down : TOKENS[0], across];
  const outputs = layer.kind === "encoder" ? map.layers.some((layer) => layer.written) : layer.written;
  return answers || outputs ? [down, across] : TOKENS;
}

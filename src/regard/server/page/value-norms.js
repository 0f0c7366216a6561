// Weights times the norms of the values that they weigh (Kobayashi et al. 2020), as a picture instead of weights.

import { unpack } from "./js/packing.js";

/** @import { LayerData, MapData } from "./js/data.js" */

/** @typedef {{ norms: Record<string, number[][]>, left_out: Record<string, string> }} ValueNorms norms by layer, head and key */

export const SAID =
  "Each weight is multiplied by the norm of the value that it weighs, ‖v W‖, and each row is divided by its sum " +
  "(Kobayashi et al. 2020). Weights that you set are those of the model.";

/**
 * The map with weighted values, or the reason why they are not known.
 *
 * @param {MapData} map
 * @param {ValueNorms} values
 * @returns {MapData | string}
 */
export function weighValues(map, { norms, left_out: reasons }) {
  const missing = map.layers.filter((layer) => !norms[layer.name] || layer.square > 1);
  if (missing.length) {
    const [{ name, square }] = missing;
    const more = missing.length > 1 ? ` and ${missing.length - 1} more` : "";
    return `Values cannot be weighed in ${name}${more}: ${square > 1 ? "the input is long" : (reasons[name] ?? "its values are not recorded")}.`;
  }
  const layers = map.layers.map((layer) => ({ ...layer, weights: weighed(layer, norms[layer.name]) }));
  return { ...map, layers, note: [map.note, SAID].filter(Boolean).join(" "), sums: undefined };
}

/**
 * @param {LayerData} layer
 * @param {number[][]} norms by head and key
 */
function weighed(layer, norms) {
  const matrix = unpack(layer);
  return matrix.slices.map((slice, head) =>
    layer.queries.map((_, query) => {
      const row = Array.from(matrix.row(slice, query), (weight, key) => weight * norms[head][key]);
      const sum = row.reduce((before, value) => before + value, 0);
      return sum > 0 ? row.map((value) => value / sum) : row;
    }),
  );
}

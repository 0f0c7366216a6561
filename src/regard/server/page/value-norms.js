// Weights times the norms of the values that they weigh (Kobayashi et al. 2020), as a picture instead of weights.

import { unpack } from "./js/packing.js";

/** @import { LayerData, MapData } from "./js/data.js" */

/** @typedef {{ norms: Record<string, number[][]>, left_out: Record<string, string> }} ValueNorms norms by layer, head and key */

const SAID =
  "Weights are multiplied by the norms of their values, and rows are divided by their sums (Kobayashi et al. 2020).";

/**
 * The reason why weights cannot be multiplied by the norms of values; empty if they can.
 *
 * @param {MapData} map
 * @param {ValueNorms} values
 */
export function missingValues(map, { norms, left_out: reasons }) {
  if (isLong(map)) return "Value-weighted: the input is too long.";
  const missing = map.layers.filter((layer) => !norms[layer.name]);
  if (!missing.length) return "";
  const [{ name }] = missing;
  const more = missing.length > 1 ? ` and ${missing.length - 1} more` : "";
  return `Value-weighted: the values of ${name}${more} are not known: ${reasons[name] ?? "they are not recorded"}.`;
}

/**
 * Whether the input is so long that the map holds the largest weights of squares.
 *
 * @param {MapData} map
 */
export function isLong(map) {
  return map.layers.some((layer) => layer.square > 1);
}

/**
 * The map with weighted values.
 *
 * @param {MapData} map
 * @param {ValueNorms} values
 * @returns {MapData}
 */
export function weighValues(map, { norms }) {
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

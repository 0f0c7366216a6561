// The layer, head and row that the view opens with.

import { headCount } from "./packing.js";
import { peak } from "./measures.js";

/** @import { LayerData, MapData, ViewData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Weights } from "./weights.js" */

const MOST_COMPARED = 250_000; // weights of a map; of more, one layer is looked at, so that the page opens quickly
const SPECIAL_TOKEN = /^(\[.*\]|<.*>)$/; // tokens such as [CLS] and </s>

/**
 * The score of each head: its importance if that is known, otherwise the mean of its largest weights on other tokens.
 *
 * @param {Pick<ViewData, "importance">} data
 * @param {Pick<LayerData, "name" | "kind">} layer
 * @param {Matrix} matrix
 */
function openingScores({ importance }, { name, kind }, matrix) {
  const known = matrix.names ? undefined : importance?.[name];
  return matrix.slices.map((_, head) => (known ? (known[head]?.added ?? 0) : peak(matrix, head, kind)));
}

/**
 * The head with the largest score.
 *
 * @param {Pick<ViewData, "importance">} data
 * @param {Pick<LayerData, "name" | "kind">} layer
 * @param {Matrix} matrix
 */
export function clearestHead(data, layer, matrix) {
  const all = openingScores(data, layer, matrix);
  return Math.max(0, all.indexOf(Math.max(...all)));
}

/**
 * The layer with the head of the largest score, among the layers of one kind; `first` if the map is too large.
 *
 * @param {Pick<ViewData, "importance">} data
 * @param {MapData} map
 * @param {LayerData} first
 * @param {Weights} weights
 */
export function clearestLayer(data, map, first, weights) {
  const layers = map.layers.filter((layer) => layer.kind === first.kind);
  const count = layers.reduce(
    (sum, layer) => sum + headCount(layer) * layer.queries.length * layer.keys.length,
    0,
  );
  if (map.opens || count > MOST_COMPARED) return first;
  const best = layers.map((layer) => Math.max(...openingScores(data, layer, weights.of(layer, false))));
  return layers[best.indexOf(Math.max(...best))] ?? first;
}

/**
 * The row that the view opens with. A causal step sees least in the first row and most in the last one. In other
 * self-attention: the row with the largest weight on another token that is not special; otherwise the first row.
 *
 * @param {Matrix} matrix
 * @param {number} head
 * @param {LayerData["kind"]} kind
 */
export function openingRow(matrix, head, kind) {
  if (matrix.causal) return matrix.rows - 1;
  if (kind === "cross" || matrix.relevant?.length) return 0;
  let [row, largest] = [0, 0];
  for (let query = 0; query < matrix.rows; query += 1) {
    for (let key = 1; key < matrix.columns; key += 1) {
      const special = SPECIAL_TOKEN.test(matrix.keys[key]) || SPECIAL_TOKEN.test(matrix.queries[query]);
      if (special || key === query || matrix.at(head, query, key) <= largest) continue;
      [row, largest] = [query, matrix.at(head, query, key)];
    }
  }
  return row;
}

// What an intervention changed: the weights less those of the original.

/** @import { LayerData, ViewData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */

/**
 * The layer before it was touched, where its weights are of the same tokens: another answer has others.
 *
 * @param {ViewData} data
 * @param {LayerData} layer
 */
export function originalOf({ original }, layer) {
  const before = original?.layers.find((each) => each.name === layer.name);
  return before && same(before.queries, layer.queries) && same(before.keys, layer.keys) ? before : null;
}

/**
 * For each head, the weights less those of before.
 *
 * @param {Matrix} now
 * @param {Matrix} before
 */
export function changes(now, before) {
  return now.slices.map((slice, head) => slice.map((value, index) => value - before.slices[head][index]));
}

/**
 * @param {string[]} one
 * @param {string[]} other
 */
function same(one, other) {
  return one.length === other.length && one.every((label, index) => label === other[index]);
}

// The effect of an intervention: the weights minus the original ones.

/** @import { LayerData, ViewData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */

/**
 * The layer without interventions, if its tokens are the same; another answer has other tokens.
 *
 * @param {ViewData} data
 * @param {LayerData} layer
 */
export function originalLayer({ original }, layer) {
  const before = original?.layers.find((candidate) => candidate.name === layer.name);
  return before && sameLabels(before.queries, layer.queries) && sameLabels(before.keys, layer.keys)
    ? before
    : null;
}

/**
 * The difference of the weights of each head.
 *
 * @param {Matrix} now
 * @param {Matrix} before
 */
export function differences(now, before) {
  return now.slices.map((slice, head) => slice.map((value, index) => value - before.slices[head][index]));
}

/**
 * @param {string[]} first
 * @param {string[]} second
 */
function sameLabels(first, second) {
  return first.length === second.length && first.every((label, index) => label === second[index]);
}

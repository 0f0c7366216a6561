// The head that is opened of many.

import { sampledRows, sinks } from "./scale.js";

/** @import { LayerData, ViewData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */

/**
 * The most important head if that is known; otherwise the one whose rows have the largest weights outside sinks.
 *
 * @param {Pick<ViewData, "importance">} data
 * @param {Pick<LayerData, "name">} layer
 * @param {Matrix} matrix
 */
export function clearestHead({ importance }, { name }, matrix) {
  const known = matrix.names ? undefined : importance?.[name];
  const scores = matrix.slices.map((slice, head) => {
    if (known) return known[head]?.added ?? 0;
    const left = new Set(sinks(matrix, head));
    let sum = 0;
    for (const query of sampledRows(matrix).slice(1)) {
      let largest = 0;
      matrix.row(slice, query).forEach((weight, key) => {
        if (weight > largest && !left.has(key)) largest = weight;
      });
      sum += largest;
    }
    return sum;
  });
  return Math.max(0, scores.indexOf(Math.max(...scores)));
}

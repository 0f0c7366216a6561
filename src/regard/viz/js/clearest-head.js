// The head that is opened of many.

import { peak } from "./measures.js";

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
  const scores = matrix.slices.map((_, head) => (known ? (known[head]?.added ?? 0) : peak(matrix, head)));
  return Math.max(0, scores.indexOf(Math.max(...scores)));
}

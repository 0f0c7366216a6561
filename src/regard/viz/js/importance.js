// Head importance as text: the loss increase when a head is ablated.

import { signedNumber } from "./labels.js";

/** @import { ViewData, WorthData } from "./data.js" */

/**
 * The importance of a head; undefined if unknown, or if `named` says that the slice is not a head.
 *
 * @param {Pick<ViewData, "importance">} data
 * @param {string} layer
 * @param {number} head
 * @param {unknown} [named]
 */
export function headImportance({ importance }, layer, head, named = null) {
  return named ? undefined : importance?.[layer]?.[head];
}

/** In brackets where 0 is in its interval, as in the terminal. @param {WorthData} found */
export function shortImportance({ added, low, high }) {
  return low !== null && high !== null && low <= 0 && high >= 0
    ? `(${signedNumber(added)})`
    : signedNumber(added);
}

/** With how sure that is. @param {WorthData} found */
export function importanceSentence({ added, low, high }) {
  const sure =
    low === null || high === null ? "" : `, 95% interval ${signedNumber(low)} to ${signedNumber(high)}`;
  return `Without it, the loss changes by ${signedNumber(added)} (head importance${sure}).`;
}

// Head importance as text: the loss increase when a head is ablated.

import { signed } from "./labels.js";

/** @import { ViewData, WorthData } from "./data.js" */

/**
 * The importance of a head; undefined if unknown, or if `named` says that the slice is not a head.
 *
 * @param {Pick<ViewData, "importance">} data
 * @param {string} layer
 * @param {number} head
 * @param {unknown} [named]
 */
export function worthOf({ importance }, layer, head, named = null) {
  return named ? undefined : importance?.[layer]?.[head];
}

/** In brackets where 0 is in its interval, as in the terminal. @param {WorthData} found */
export function inShort({ added, low, high }) {
  return low !== null && high !== null && low <= 0 && high >= 0 ? `(${signed(added)})` : signed(added);
}

/** With how sure that is. @param {WorthData} found */
export function worthSentence({ added, low, high }) {
  const sure = low === null || high === null ? "" : `, 95% interval ${signed(low)} to ${signed(high)}`;
  return `Without it, the loss changes by ${signed(added)} (head importance${sure}).`;
}

// Roles of heads over many samples, as text.

/** @import { RoleData, ViewData } from "./data.js" */

/**
 * The role of a head; null if it was not computed.
 *
 * @param {Pick<ViewData, "roles">} data
 * @param {string} layer
 * @param {number} head
 */
export function headRole({ roles }, layer, head) {
  return roles?.[layer]?.[head] ?? null;
}

/**
 * The role in a few words.
 *
 * @param {RoleData} found
 */
export function shortRole({ role, strength, reliable }) {
  if (role === null || !strength) return "no role found";
  return `${reliable ? "" : "cannot be told, perhaps "}${role}: ${strength.mean.toFixed(2)}`;
}

/**
 * The role with its confidence interval.
 *
 * @param {RoleData} found
 */
export function roleSentence({ role, strength, untrained, error, reliable }) {
  if (role === null || !strength) return "Over many samples, no significant role was found for this head.";
  const { mean, low, high } = strength;
  const sure = `${mean.toFixed(2)}, from ${low.toFixed(2)} to ${high.toFixed(2)}`;
  if (role === EVEN_ROLE)
    return `Over many samples, this head attends uniformly (to other tokens: ${sure}; ${error}).`;
  const scale = "0: uniform attention, 1: this role alone";
  const claim = reliable
    ? `this head attends to ${role}`
    : `it cannot be told whether this head attends to ${role}`;
  return `Over many samples, ${claim}: ${sure} (${scale}; before training at most ${untrained.toFixed(2)}; ${error}).`;
}

const EVEN_ROLE = "everything alike";

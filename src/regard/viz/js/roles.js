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
export function shortRole({ role, strength }) {
  return role === null || !strength ? "no role found" : `${role}: ${strength.mean.toFixed(2)}`;
}

/**
 * The role with its confidence interval.
 *
 * @param {RoleData} found
 */
export function roleSentence({ role, strength, untrained }) {
  if (role === null || !strength) return "Over many samples, no significant role was found for this head.";
  const { mean, low, high } = strength;
  const sure = `${mean.toFixed(2)}, from ${low.toFixed(2)} to ${high.toFixed(2)}`;
  if (role === EVEN_ROLE) return `Over many samples, this head attends uniformly (to other tokens: ${sure}).`;
  const scale = "0: uniform attention, 1: this role alone";
  return `Over many samples, this head attends to ${role}: ${sure} (${scale}; before training at most ${untrained.toFixed(2)}).`;
}

const EVEN_ROLE = "everything alike";

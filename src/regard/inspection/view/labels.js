// How numbers and tokens are written.

const SHOWN = 160; // tokens written out at once

/** @param {number} share */
export function percent(share) {
  return `${(100 * share).toFixed(1)}%`;
}

/** @param {number} value */
export function signed(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
}

/**
 * A label of at most `most` characters, and of two at least.
 *
 * @param {string} label
 * @param {number} most
 */
export function shorten(label, most) {
  const length = Math.max(most, 2);
  return label.length > length ? `${label.slice(0, length - 1)}…` : label;
}

/**
 * Indices of at most `most` of `count` things, around one of them.
 *
 * @param {number} count
 * @param {number} at
 */
export function around(count, at, most = SHOWN) {
  const first = Math.max(0, Math.min(at - Math.floor(most / 2), count - most));
  return Array.from({ length: Math.min(count, most) }, (_, index) => first + index);
}

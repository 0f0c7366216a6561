// Arithmetic.

/**
 * Limits a value to a range.
 *
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

/**
 * The largest value, at least 0; `bySize`: the largest absolute value.
 *
 * @param {Float32Array} values
 */
export function largestValue(values, bySize = false) {
  let largest = 0;
  for (let index = 0; index < values.length; index += 1) {
    const value = bySize ? Math.abs(values[index]) : values[index];
    if (value > largest) largest = value;
  }
  return largest;
}

// Weights at 1/2, 1/4, 1/8 of the resolution, for drawing more weights than pixels. Each value is the maximum of
// four, so that strong weights are not lost.

/** @typedef {{ values: Float32Array, rows: number, columns: number }} Level */

/** Levels of one head, made as they are asked for; `bySize`: the greatest whatever its sign. */
export class Pyramid {
  /**
   * @param {Level} bottom
   * @param {boolean} bySize
   */
  constructor(bottom, bySize = false) {
    this.levels = [bottom];
    this.bySize = bySize;
  }

  /**
   * @param {number} number number of halvings
   */
  level(number) {
    while (this.levels.length <= number) {
      this.levels.push(halve(this.levels[this.levels.length - 1], this.bySize));
    }
    return this.levels[number];
  }
}

/**
 * Half as many rows and columns.
 *
 * @param {Level} level
 * @returns {Level}
 */
export function halve({ values, rows, columns }, bySize = false) {
  const high = Math.ceil(rows / 2);
  const wide = Math.ceil(columns / 2);
  const maxima = new Float32Array(high * wide);
  for (let row = 0; row < high; row += 1) {
    const upper = 2 * row * columns;
    const lower = Math.min(2 * row + 1, rows - 1) * columns;
    for (let column = 0; column < wide; column += 1) {
      const left = 2 * column;
      const right = Math.min(left + 1, columns - 1);
      const four = [values[upper + left], values[upper + right], values[lower + left], values[lower + right]];
      let best = four[0];
      for (const value of four) {
        if (Number.isNaN(value) || (bySize ? Math.abs(value) > Math.abs(best) : value > best)) best = value;
      }
      maxima[row * wide + column] = best;
    }
  }
  return { values: maxima, rows: high, columns: wide };
}

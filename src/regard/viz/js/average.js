// The average of several heads, as a matrix with one head.

import { Matrix } from "./matrix.js";
import { cached } from "./cache.js";

/**
 * @param {Matrix} matrix
 * @param {number[]} heads
 */
export function averageHeads(matrix, heads) {
  const name = `average of heads ${heads.join(", ")}`;
  return cached(matrix, name, () => {
    const slice = meanSlice(heads.map((head) => matrix.slices[head]));
    const { queries, keys, relevant } = matrix;
    return new Matrix([slice], queries, keys, relevant, false, [name]);
  });
}

/** @param {Float32Array[]} slices */
export function meanSlice(slices) {
  return slices[0].map((_, index) => slices.reduce((sum, slice) => sum + slice[index], 0) / slices.length);
}

// The average of several heads, as a matrix with one head.

import { Matrix } from "./matrix.js";
import { once } from "./once.js";

/**
 * @param {Matrix} matrix
 * @param {number[]} heads
 */
export function averaged(matrix, heads) {
  const name = `average of heads ${heads.join(", ")}`;
  return once(matrix, name, () => {
    const slice = meanOf(heads.map((head) => matrix.slices[head]));
    const { queries, keys, relevant } = matrix;
    return new Matrix([slice], queries, keys, relevant, false, [name]);
  });
}

/** @param {Float32Array[]} slices */
export function meanOf(slices) {
  return slices[0].map((_, index) => slices.reduce((sum, slice) => sum + slice[index], 0) / slices.length);
}

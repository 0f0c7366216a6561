// The steps of a layer that are patches of an image, and their weights.

/** @import { LayerData, MapData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */

/** @typedef {{ first: number, rows: number, columns: number }} Patches */

/**
 * The patches of a layer; null without patches or without an image.
 *
 * @param {Pick<MapData, "picture">} map
 * @param {Pick<LayerData, "patches">} layer
 * @returns {Patches | null}
 */
export function imagePatches({ picture }, { patches }) {
  return picture && patches ? { first: patches[0], rows: patches[1], columns: patches[2] } : null;
}

/**
 * The largest weight of a query on any patch, over some heads.
 *
 * @param {Matrix} matrix
 * @param {number[]} heads
 * @param {number} query
 * @param {Patches} patches
 */
export function largestOnPatches(matrix, heads, query, { first, rows, columns }) {
  const all = heads.map((head) => matrix.row(matrix.slices[head], query).subarray(first, first + rows * columns));
  return all.reduce((largest, row) => row.reduce((maximum, weight) => Math.max(maximum, weight), largest), 0);
}

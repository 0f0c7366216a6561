// Preview of a dragged weight: its row is known before the model answers.

import { Matrix } from "./matrix.js";
import { Scale } from "./scale.js";

/** @import { Placed, Scene } from "./scene.js" */

const MOST_COPIED = 250_000; // weights of a head; for more, the preview is skipped

/**
 * The scene with one weight set; other weights of its row keep their proportions, as in the model. Null if that is
 * not defined, or differences are displayed.
 *
 * @param {Scene} scene
 * @param {Placed} place
 * @param {number} to
 * @returns {Scene | null}
 */
export function previewScene(scene, { layer, heads, query, key }, to) {
  const { matrix, before, changes } = scene;
  const slice = matrix.slices[heads[0]];
  if (layer !== scene.layer.name || changes || !slice || slice.length > MOST_COPIED) return null;
  const row =
    setWeight(matrix.row(slice, query), key, to) ?? (before && originalRow(before, heads[0], query, key, to));
  if (!row) return null;
  const slices = [...matrix.slices];
  slices[heads[0]] = slice.slice();
  slices[heads[0]].set(row, query * matrix.columns);
  const { queries, keys, relevant, names } = matrix;
  const changed = new Matrix(slices, queries, keys, relevant, false, names); // until the model answers
  const largest = Math.max(scene.largest, to);
  const { name, aside } = scene.scale;
  const scale = new Scale(name, largest, aside, (shown) => (shown === changed ? [matrix, changed] : [shown]));
  return { ...scene, matrix: changed, largest, scale, preview: true };
}

/**
 * @param {Matrix} before
 * @param {number} head
 * @param {number} query
 * @param {number} key
 * @param {number} to
 */
function originalRow(before, head, query, key, to) {
  return setWeight(before.row(before.slices[head], query), key, to);
}

/**
 * A row with one weight set; null if the other weights are all 0 and cannot be scaled.
 *
 * @param {Float32Array} row
 * @param {number} key
 * @param {number} to
 */
export function setWeight(row, key, to) {
  const others = row.reduce((sum, weight, index) => sum + (index === key ? 0 : weight), 0);
  if (others < 1e-4) return null;
  return row.map((weight, index) => (index === key ? to : (weight * (1 - to)) / others));
}

// Rollout: the share of each input in each state, layer by layer (Abnar and Zuidema 2020, section 3).
//
//   A_l = ½ mean over heads of W_l + ½ I        the residual connection passes on half of each state
//   R_l = A_l R_(l-1),   R_0 = I
//
// If outputs attend to inputs, their weights refer to the last state of each input: mean over heads of W, times R of
// the encoder.

import { meanSlice } from "./average.js";
import { Matrix } from "./matrix.js";
import { cached } from "./cache.js";

/** @import { LayerData, MapData } from "./data.js" */

/** @typedef {Pick<Matrix, "rows" | "columns"> & { values: Float32Array }} Product */

/**
 * Whether there is a rollout: several layers of a kind, or layers before the one that reads the input. Not for the
 * decoder of an encoder-decoder: its states also depend on the weights of other layers.
 *
 * @param {Pick<MapData, "layers">} map
 * @param {LayerData["kind"]} kind
 */
export function hasRollout({ layers }, kind) {
  const same = layers.filter((layer) => layer.kind === kind).length;
  if (kind === "cross") return layers.some((layer) => layer.kind === "encoder");
  return same > 1 && (kind === "encoder" || !layers.some((layer) => layer.kind === "cross"));
}

/**
 * The rollout of all layers of a kind, a slice for each layer.
 *
 * @param {MapData} map
 * @param {LayerData} layer
 * @param {(layer: LayerData) => Matrix} shown
 */
export function rollout(map, layer, shown) {
  return cached(shown(layer), "rollout", () => computeRollout(map, layer, shown));
}

/**
 * @param {MapData} map
 * @param {LayerData} layer
 * @param {(layer: LayerData) => Matrix} shown
 */
function computeRollout(map, layer, shown) {
  const alike = map.layers.filter((candidate) => candidate.kind === layer.kind);
  const { queries, keys, relevant } = shown(layer);
  if (layer.kind !== "cross") {
    const slices = accumulate(alike.map(shown));
    return new Matrix(
      slices,
      queries,
      keys,
      relevant,
      false,
      alike.map((_, number) => `after layer ${number}`),
    );
  }
  const encoder = accumulate(map.layers.filter((layer) => layer.kind === "encoder").map(shown)).at(-1);
  const slices = alike.map((candidate) => {
    const mean = meanSlice(shown(candidate).slices);
    return encoder ? projectWeights(mean, encoder, keys.length) : mean;
  });
  return new Matrix(
    slices,
    queries,
    keys,
    relevant,
    false,
    alike.map((_, number) => `layer ${number}, through the encoder`),
  );
}

/**
 * R after each of some layers, from the first on.
 *
 * @param {Matrix[]} layers
 */
export function accumulate(layers) {
  /** @type {Float32Array[]} */
  const states = [];
  for (const { slices, columns: size } of layers) {
    const step = meanSlice(slices).map((weight, index) => weight / 2 + (index % (size + 1) === 0 ? 0.5 : 0));
    const before = states.at(-1);
    states.push(before ? matrixProduct(step, before, size) : step);
  }
  return states;
}

/**
 * Converts weights on states to weights on inputs; keys after the states (a rest position) stay.
 *
 * @param {Float32Array} weights (rows, columns)
 * @param {Float32Array} states (size, size), where size is at most `columns`
 * @param {number} columns
 */
function projectWeights(weights, states, columns) {
  const size = Math.round(Math.sqrt(states.length));
  const whole = new Float32Array(columns * columns);
  for (let row = 0; row < columns; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const inside = row < size && column < size;
      whole[row * columns + column] = inside ? states[row * size + column] : Number(row === column);
    }
  }
  return matrixProduct(weights, whole, columns);
}

/**
 * @param {Float32Array} left (any, size)
 * @param {Float32Array} right (size, size)
 * @param {number} size
 */
function matrixProduct(left, right, size) {
  const rows = left.length / size;
  const result = new Float32Array(left.length);
  for (let row = 0; row < rows; row += 1) {
    for (let middle = 0; middle < size; middle += 1) {
      const weight = left[row * size + middle];
      if (weight === 0) continue;
      for (let column = 0; column < size; column += 1) {
        result[row * size + column] += weight * right[middle * size + column];
      }
    }
  }
  return result;
}

// Loss and gradient of the query model without encoder, heads and positions, written out.
//
//   key_l   = E_l + b                      for each letter l; also its value
//   p_l     = n_l exp(q.key_l / sqrt(D)) / Z
//   context = sum_l p_l key_l
//   y       = norm(q + context)            logits = W y + d
//
// Equal letters have equal keys, so the weights of a sample are summed by letter: p_l is the weight of all n_l steps.

import { probabilitiesOf } from "./rows.js";

/** @typedef {{ letters: number, outputs: number, classes: number, hidden: number }} Sizes */
/** @typedef {Record<string, Float64Array>} Weights of the model by their names in PyTorch */
/** @typedef {{ counts: number[], targets: number[] }} Sample number of each letter, and the class of each output */

const EPSILON = 1e-5; // of the normalization

/** The shape of each parameter. @param {Sizes} sizes @returns {Record<string, number[]>} */
export function shapesOf({ letters, outputs, classes, hidden }) {
  return {
    queries: [outputs, hidden],
    "embedding.weight": [hidden, letters],
    "embedding.bias": [hidden],
    "cross_norm.weight": [hidden],
    "cross_norm.bias": [hidden],
    "output.weight": [classes, hidden],
    "output.bias": [classes],
  };
}

/** Zero for each parameter. @param {Sizes} sizes @returns {Weights} */
export function zeros(sizes) {
  const shapes = Object.entries(shapesOf(sizes));
  return Object.fromEntries(
    shapes.map(([name, shape]) => [name, new Float64Array(shape.reduce((size, length) => size * length, 1))]),
  );
}

/** The keys of all letters. @param {Weights} weights @param {Sizes} sizes */
function letterKeys(weights, { letters }) {
  return Array.from({ length: letters }, (_, letter) =>
    weights["embedding.bias"].map((bias, index) => bias + weights["embedding.weight"][index * letters + letter]),
  );
}

/** @param {ArrayLike<number>} first @param {ArrayLike<number>} second */
function dot(first, second) {
  let sum = 0;
  for (let index = 0; index < first.length; index += 1) sum += first[index] * second[index];
  return sum;
}

/** Adds a multiple of a row to another. @param {Float64Array} row @param {number} factor @param {Float64Array} other */
function addTo(row, factor, other) {
  for (let index = 0; index < row.length; index += 1) row[index] += factor * other[index];
}

/**
 * One output of a sample: its logits and what the gradient needs.
 *
 * @param {Weights} weights
 * @param {Float64Array} query
 * @param {Float64Array[]} keys of the letters
 * @param {readonly number[]} counts
 */
function forwardOutput(weights, query, keys, counts) {
  const hidden = query.length;
  const powers = keys.map((key, letter) => counts[letter] * Math.exp(dot(query, key) / Math.sqrt(hidden)));
  const sum = powers.reduce((first, second) => first + second, 0);
  const shares = powers.map((power) => power / sum);
  const state = query.slice();
  keys.forEach((key, letter) => addTo(state, shares[letter], key));
  const mean = state.reduce((first, second) => first + second, 0) / hidden;
  for (let index = 0; index < hidden; index += 1) state[index] -= mean;
  const inverse = 1 / Math.sqrt(dot(state, state) / hidden + EPSILON);
  const normal = state.map((value) => value * inverse);
  const [gain, bias] = [weights["cross_norm.weight"], weights["cross_norm.bias"]];
  const output = normal.map((value, index) => value * gain[index] + bias[index]);
  const matrix = weights["output.weight"];
  const logits = weights["output.bias"].map((value, row) => {
    let logit = value;
    for (let index = 0, place = row * hidden; index < hidden; index += 1, place += 1) {
      logit += matrix[place] * output[index];
    }
    return logit;
  });
  return { shares, inverse, normal, output, logits };
}

/**
 * The classes that the model answers. @param {Weights} weights @param {Sizes} sizes @param {Sample} sample
 */
export function predicted(weights, sizes, { counts }) {
  const keys = letterKeys(weights, sizes);
  return queryRows(weights, sizes).map((query) => {
    const { logits } = forwardOutput(weights, query, keys, counts);
    return logits.indexOf(Math.max(...logits));
  });
}

/** @param {Weights} weights @param {Sizes} sizes */
function queryRows({ queries }, { outputs, hidden }) {
  return Array.from({ length: outputs }, (_, row) => queries.subarray(row * hidden, (row + 1) * hidden));
}

/**
 * The mean cross-entropy of a batch in nats, and its gradient.
 *
 * @param {Weights} weights
 * @param {Sizes} sizes
 * @param {readonly Sample[]} batch
 */
export function lossAndGradient(weights, sizes, batch) {
  const { letters, outputs, hidden } = sizes;
  const gradient = zeros(sizes);
  const keys = letterKeys(weights, sizes);
  const keyGradients = keys.map(() => new Float64Array(hidden));
  const scoreGradients = Array.from({ length: outputs }, () => new Float64Array(letters));
  const rows = queryRows(weights, sizes);
  const rowGradients = queryRows(gradient, sizes);
  const [matrix, matrixGradient] = [weights["output.weight"], gradient["output.weight"]];
  const [gain, gainGradient] = [weights["cross_norm.weight"], gradient["cross_norm.weight"]];
  const scale = 1 / (batch.length * outputs);
  let loss = 0;
  for (const { counts, targets } of batch) {
    rows.forEach((query, output) => {
      const step = forwardOutput(weights, query, keys, counts);
      const errors = probabilitiesOf(step.logits);
      loss -= Math.log(Math.max(errors[targets[output]], 1e-300)) * scale;
      errors[targets[output]] -= 1;
      const toOutput = new Float64Array(hidden);
      errors.forEach((error, row) => {
        const part = error * scale;
        gradient["output.bias"][row] += part;
        for (let index = 0, place = row * hidden; index < hidden; index += 1, place += 1) {
          matrixGradient[place] += part * step.output[index];
          toOutput[index] += part * matrix[place];
        }
      });
      const toNormal = toOutput.map((value, index) => value * gain[index]);
      addTo(gradient["cross_norm.bias"], 1, toOutput);
      for (let index = 0; index < hidden; index += 1) gainGradient[index] += toOutput[index] * step.normal[index];
      const mean = toNormal.reduce((first, second) => first + second, 0) / hidden;
      const along = dot(toNormal, step.normal) / hidden;
      const toState = toNormal.map((value, index) => step.inverse * (value - mean - along * step.normal[index]));
      addTo(rowGradients[output], 1, toState);
      const toShares = keys.map((key) => dot(toState, key));
      const average = dot(toShares, step.shares);
      step.shares.forEach((share, letter) => {
        addTo(keyGradients[letter], share, toState);
        scoreGradients[output][letter] += (share * (toShares[letter] - average)) / Math.sqrt(hidden);
      });
    });
  }
  scoreGradients.forEach((ofLetters, output) =>
    ofLetters.forEach((value, letter) => {
      addTo(rowGradients[output], value, keys[letter]);
      addTo(keyGradients[letter], value, rows[output]);
    }),
  );
  keyGradients.forEach((row, letter) => {
    addTo(gradient["embedding.bias"], 1, row);
    for (let index = 0; index < hidden; index += 1)
      gradient["embedding.weight"][index * letters + letter] += row[index];
  });
  return { loss, gradient };
}

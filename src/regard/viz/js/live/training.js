// Training of the query model on Counting and Difference, with the recipe of `regard train`.

import { trueCounts } from "./tasks.js";
import { largestIndex, probabilitiesOf, sumOf } from "./rows.js";

/** @import { LetterTask } from "./tasks.js" */

/**
 * @typedef {object} Recipe
 * @property {number} steps
 * @property {number} batchsize
 * @property {number} lr peak learning rate
 * @property {number} output_lr factor for the output layer
 * @property {number[]} betas of Adam
 * @property {number | null} warmup share of the steps
 */

const ADAM_EPSILON = 1e-8;
const TESTED = 2000; // samples of a test

/** Uniform numbers from 0 to 1 (mulberry32, Ettinger 2017): JavaScript's own cannot be seeded. @param {number} seed */
export function randomNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/**
 * The factor on the peak learning rate: a linear warm-up, then a cosine to zero.
 * @param {number} step from 0
 * @param {Recipe} recipe
 */
export function scheduled(step, { steps, warmup }) {
  if (warmup === null) return 1;
  const rise = warmup * steps;
  if (step + 1 < rise) return (step + 1) / rise;
  return (1 + Math.cos((Math.PI * (step + 1 - rise)) / (steps + 1 - rise))) / 2;
}

export class Training {
  /** @param {LetterTask} task @param {number} hidden @param {Recipe} recipe @param {number} seed */
  constructor(task, hidden, recipe, seed) {
    this.task = task;
    this.recipe = recipe;
    /** @type {Sizes} */
    this.sizes = { letters: task.vocabulary.length, outputs: task.outputs, classes: task.classes, hidden };
    this.random = randomNumbers(seed);
    this.weights = this.drawn();
    this.means = zeros(this.sizes);
    this.squares = zeros(this.sizes);
    this.step = 0;
  }

  /** Parameters drawn as in `regard.models.query`: matrices from Glorot's uniform distribution, the others zero. */
  drawn() {
    const weights = zeros(this.sizes);
    weights["cross_norm.weight"].fill(1);
    for (const name of ["embedding.weight", "output.weight"]) {
      const [rows, columns] = shapesOf(this.sizes)[name];
      const bound = Math.sqrt(6 / (rows + columns));
      weights[name].forEach((_, index) => (weights[name][index] = bound * (2 * this.random() - 1)));
    }
    return weights;
  }

  /** @returns {Sample} */
  sample() {
    const { vocabulary, max_len: length } = this.task;
    const letters = Array.from({ length }, () => Math.floor(this.random() * vocabulary.length));
    const counts = new Array(vocabulary.length).fill(0);
    for (const letter of letters) counts[letter] += 1;
    return { counts, targets: trueCounts(this.task, letters) };
  }

  /** One step on a new batch; returns its loss. */
  advance() {
    const { recipe, sizes, weights } = this;
    const batch = Array.from({ length: recipe.batchsize }, () => this.sample());
    const { loss, gradient } = lossAndGradient(weights, sizes, batch);
    const rate = recipe.lr * scheduled(this.step, recipe);
    this.step += 1;
    for (const name of Object.keys(weights)) {
      this.adam(name, gradient[name], name.startsWith("output.") ? rate * recipe.output_lr : rate);
    }
    return loss;
  }

  // A step of Adam (Kingma and Ba 2015).
  /** @param {string} name @param {Float64Array} gradient @param {number} rate */
  adam(name, gradient, rate) {
    const [first, second] = this.recipe.betas;
    const [weights, means, squares] = [this.weights[name], this.means[name], this.squares[name]];
    const [corrected, spread] = [1 - first ** this.step, 1 - second ** this.step];
    for (let index = 0; index < weights.length; index += 1) {
      means[index] += (1 - first) * (gradient[index] - means[index]);
      squares[index] += (1 - second) * (gradient[index] ** 2 - squares[index]);
      weights[index] -= ((rate / corrected) * means[index]) / (Math.sqrt(squares[index] / spread) + ADAM_EPSILON);
    }
  }

  /** The share of new samples whose answers are all right. */
  exactMatch() {
    let right = 0;
    for (let number = 0; number < TESTED; number += 1) {
      const sample = this.sample();
      const answers = predicted(this.weights, this.sizes, sample);
      right += Number(answers.every((answer, output) => answer === sample.targets[output]));
    }
    return right / TESTED;
  }
}

// Loss and gradient of the query model without encoder, heads and positions, written out.
//
//   key_l   = E_l + b                      for each letter l; also its value
//   p_l     = n_l exp(q.key_l / sqrt(D)) / Z
//   context = sum_l p_l key_l
//   y       = norm(q + context)            logits = W y + d
//
// Equal letters have equal keys, so the weights of a sample are summed by letter: p_l is the weight of all n_l steps.

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

// Rows that are written again for each output: new ones would take a quarter of the time to collect.
/** @param {Sizes} sizes */
function scratch({ letters, classes, hidden }) {
  const [normal, output, toNormal, toState] = Array.from({ length: 4 }, () => new Float64Array(hidden));
  return { shares: new Float64Array(letters), normal, output, logits: new Float64Array(classes), toNormal, toState };
}

/**
 * Computes one output of a sample into the rows of `step`; returns the factor of the normalization.
 * @param {Weights} weights @param {Float64Array} query
 * @param {Float64Array[]} keys of the letters
 * @param {readonly number[]} counts @param {ReturnType<typeof scratch>} step
 */
function forwardOutput(weights, query, keys, counts, { shares, normal, output, logits }) {
  const hidden = query.length;
  for (let letter = 0; letter < keys.length; letter += 1) {
    shares[letter] = counts[letter] && counts[letter] * Math.exp(dot(query, keys[letter]) / Math.sqrt(hidden));
  }
  const sum = sumOf(shares);
  normal.set(query);
  for (let letter = 0; letter < keys.length; letter += 1) {
    shares[letter] /= sum;
    addTo(normal, shares[letter], keys[letter]);
  }
  const mean = sumOf(normal) / hidden;
  for (let index = 0; index < hidden; index += 1) normal[index] -= mean;
  const inverse = 1 / Math.sqrt(dot(normal, normal) / hidden + EPSILON);
  const [gain, bias] = [weights["cross_norm.weight"], weights["cross_norm.bias"]];
  for (let index = 0; index < hidden; index += 1) {
    normal[index] *= inverse;
    output[index] = normal[index] * gain[index] + bias[index];
  }
  const [matrix, offsets] = [weights["output.weight"], weights["output.bias"]];
  for (let row = 0, place = 0; row < logits.length; row += 1) {
    let logit = offsets[row];
    for (let index = 0; index < hidden; index += 1, place += 1) logit += matrix[place] * output[index];
    logits[row] = logit;
  }
  return inverse;
}

/** The classes that the model answers. @param {Weights} weights @param {Sizes} sizes @param {Sample} sample */
export function predicted(weights, sizes, { counts }) {
  const [keys, step] = [letterKeys(weights, sizes), scratch(sizes)];
  return queryRows(weights, sizes).map((query) => {
    forwardOutput(weights, query, keys, counts, step);
    return largestIndex(step.logits);
  });
}

/** @param {Weights} weights @param {Sizes} sizes */
function queryRows({ queries }, { outputs, hidden }) {
  return Array.from({ length: outputs }, (_, row) => queries.subarray(row * hidden, (row + 1) * hidden));
}

/**
 * The mean cross-entropy of a batch in nats, and its gradient.
 * @param {Weights} weights @param {Sizes} sizes @param {readonly Sample[]} batch
 */
export function lossAndGradient(weights, sizes, batch) {
  const { letters, outputs, hidden } = sizes;
  const gradient = zeros(sizes);
  const keys = letterKeys(weights, sizes);
  const keyGradients = keys.map(() => new Float64Array(hidden));
  const scoreGradients = Array.from({ length: outputs }, () => new Float64Array(letters));
  const rows = queryRows(weights, sizes);
  const rowGradients = queryRows(gradient, sizes);
  const step = scratch(sizes);
  const scale = 1 / (batch.length * outputs);
  let loss = 0;
  for (const { counts, targets } of batch) {
    for (let output = 0; output < outputs; output += 1) {
      const inverse = forwardOutput(weights, rows[output], keys, counts, step);
      loss += scale * backwardOutput(weights, gradient, step, targets[output], scale, inverse);
      addTo(rowGradients[output], 1, step.toState);
      const toShares = keys.map((key) => dot(step.toState, key));
      const average = dot(toShares, step.shares);
      for (let letter = 0; letter < letters; letter += 1) {
        const share = step.shares[letter];
        addTo(keyGradients[letter], share, step.toState);
        scoreGradients[output][letter] += (share * (toShares[letter] - average)) / Math.sqrt(hidden);
      }
    }
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

/**
 * Adds the gradients of the output layer and of the normalization for one output; `step.toState` becomes that of the
 * sum of query and context. Returns the cross-entropy.
 * @param {Weights} weights @param {Weights} gradient @param {ReturnType<typeof scratch>} step
 * @param {number} target
 * @param {number} scale of the loss
 * @param {number} inverse
 */
function backwardOutput(weights, gradient, { normal, output, logits, toNormal, toState }, target, scale, inverse) {
  const hidden = normal.length;
  const [matrix, toMatrix, offsets] = [weights["output.weight"], gradient["output.weight"], gradient["output.bias"]];
  const [gain, toGain, toBias] = [
    weights["cross_norm.weight"],
    gradient["cross_norm.weight"],
    gradient["cross_norm.bias"],
  ];
  const errors = probabilitiesOf(logits);
  const loss = -Math.log(Math.max(errors[target], Number.MIN_VALUE));
  errors[target] -= 1;
  toState.fill(0);
  for (let row = 0, place = 0; row < errors.length; row += 1) {
    const part = errors[row] * scale;
    offsets[row] += part;
    for (let index = 0; index < hidden; index += 1, place += 1) {
      toMatrix[place] += part * output[index];
      toState[index] += part * matrix[place];
    }
  }
  for (let index = 0; index < hidden; index += 1) {
    toBias[index] += toState[index];
    toGain[index] += toState[index] * normal[index];
    toNormal[index] = toState[index] * gain[index];
  }
  const mean = sumOf(toNormal) / hidden;
  const along = dot(toNormal, normal) / hidden;
  for (let index = 0; index < hidden; index += 1) {
    toState[index] = inverse * (toNormal[index] - mean - along * normal[index]);
  }
  return loss;
}

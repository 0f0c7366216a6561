// Training of the query model on Counting and Difference, with the recipe of `regard train`.

import { lossAndGradient, predicted, shapesOf, zeros } from "./gradient.js";
import { trueCounts } from "./tasks.js";

/** @import { Sample, Sizes } from "./gradient.js" */
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

/**
 * Uniform numbers from 0 to 1 (mulberry32, Ettinger 2017): JavaScript's own cannot be seeded.
 *
 * @param {number} seed
 */
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
 *
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
  /**
   * @param {LetterTask} task
   * @param {number} hidden
   * @param {Recipe} recipe
   * @param {number} seed
   */
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

  /**
   * A step of Adam (Kingma and Ba 2015).
   *
   * @param {string} name
   * @param {Float64Array} gradient
   * @param {number} rate
   */
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

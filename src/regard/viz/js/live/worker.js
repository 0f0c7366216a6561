// A worker that trains a model until it is stopped, and reports its parameters.

import { Training } from "./training.js";

/** @import { Recipe, Weights } from "./training.js" */
/** @import { LetterTask } from "./tasks.js" */

/** @typedef {{ task: LetterTask, hidden: number, recipe: Recipe, seed: number }} Start */
/** @typedef {{ step: number, loss: number, weights: Weights, match: number | null }} Progress `match`: exact match at the end */

const REPORT = 200; // milliseconds between reports

addEventListener("message", ({ data }) => {
  /** @type {Start} */
  const { task, hidden, recipe, seed } = data;
  const training = new Training(task, hidden, recipe, seed);
  const work = () => {
    const begin = performance.now();
    let loss = 0;
    while (training.step < recipe.steps && performance.now() - begin < REPORT) loss = training.advance();
    const done = training.step >= recipe.steps;
    /** @type {Progress} */
    const progress = {
      step: training.step,
      loss,
      weights: training.weights,
      match: done ? training.exactMatch() : null,
    };
    postMessage(progress);
    if (!done) setTimeout(work, 0);
  };
  work();
});

import assert from "node:assert/strict";
import test from "node:test";

import {
  lossAndGradient,
  predicted,
  randomNumbers,
  scheduled,
  Training,
  zeros,
} from "../../../src/regard/viz/js/live/training.js";

const sizes = { letters: 3, outputs: 2, classes: 5, hidden: 7 };
const batch = [
  { counts: [1, 2, 1], targets: [2, 1] },
  { counts: [0, 0, 4], targets: [0, 4] },
];

function drawn() {
  const random = randomNumbers(5);
  const weights = zeros(sizes);
  for (const row of Object.values(weights)) row.forEach((_, index) => (row[index] = 2 * random() - 1));
  return weights;
}

test("the gradient is the limit of differences", () => {
  const weights = drawn();
  const { gradient } = lossAndGradient(weights, sizes, batch);
  const step = 1e-5;
  for (const [name, row] of Object.entries(weights)) {
    row.forEach((value, index) => {
      const losses = [value + step, value - step].map((moved) => {
        row[index] = moved;
        return lossAndGradient(weights, sizes, batch).loss;
      });
      row[index] = value;
      const expected = (losses[0] - losses[1]) / (2 * step);
      assert.ok(Math.abs(gradient[name][index] - expected) < 1e-7, `${name} ${index}`);
    });
  }
});

test("the rate rises, then falls to zero", () => {
  const recipe = { steps: 4, warmup: 0.5, lr: 1, output_lr: 1, betas: [0.9, 0.98], batchsize: 1 };
  const rates = [0, 1, 2, 3].map((step) => Number(scheduled(step, recipe).toFixed(2)));
  assert.deepEqual(rates, [0.5, 1, 0.75, 0.25]); // as in regard.training.config
  assert.equal(scheduled(3, { ...recipe, warmup: null }), 1);
});

test("a seed repeats a training, and a short one learns", () => {
  const task = { name: "counting", vocabulary: " A", signals: 0, max_len: 3, outputs: 1, classes: 4, accepts: "" };
  const recipe = { steps: 150, batchsize: 30, lr: 0.05, output_lr: 8, betas: [0.95, 0.98], warmup: 0.2 };
  const trained = [7, 7, 8].map((seed) => {
    const training = new Training(task, 8, recipe, seed);
    for (let step = 0; step < recipe.steps; step += 1) training.advance();
    return training;
  });
  assert.deepEqual(trained[0].weights, trained[1].weights);
  assert.notDeepEqual(trained[0].weights, trained[2].weights);
  assert.ok(trained[0].exactMatch() > 0.95);
  assert.deepEqual(predicted(trained[0].weights, trained[0].sizes, { counts: [1, 2], targets: [2] }), [2]);
});

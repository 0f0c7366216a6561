import assert from "node:assert/strict";
import { test } from "node:test";
import { answerAt, insertPoint } from "../../src/regard/viz/js/interventions.js";
import { latest } from "../../src/regard/viz/js/arithmetic.js";
import { map } from "./examples.js";

test("points are in the order of their weights, one for each", () => {
  const point = (weight, probability) => ({ weight, probability, answer: "1" });
  const points = insertPoint(insertPoint(insertPoint([], point(0.5, 0.1)), point(0.2, 0.3)), point(0.50001, 0.9));
  assert.deepEqual(points, [point(0.2, 0.3), point(0.50001, 0.9)]);
});

test("the answer of an output, or of all where inputs look", () => {
  const numbers = map([], { prediction: [3, 1], outputs: ["p", "q"], probabilities: [0.5, 0.25] });
  assert.deepEqual(answerAt(numbers, "cross", 1), { answer: "1", probability: 0.25 });
  assert.deepEqual(answerAt(numbers, "encoder", 1), { answer: "3 1", probability: 0.125 });
  const text = map([], { prediction: "ab", outputs: ["a", "b"], probabilities: [0.5, 0.25] });
  assert.deepEqual(answerAt(text, "decoder", 0), { answer: "a", probability: 0.5 });
});

test("of what is asked while there is work, the last counts", async () => {
  const done = [];
  let free = () => {};
  const ask = latest(async (argument) => {
    await new Promise((resolve) => (free = resolve));
    done.push(argument);
  });
  const all = ask(1);
  ask(2);
  ask(3);
  free();
  await new Promise(setImmediate);
  free();
  await all;
  assert.deepEqual(done, [1, 3]);
});

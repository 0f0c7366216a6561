import assert from "node:assert/strict";
import { test } from "node:test";
import { answered, withPoint } from "../../src/regard/viz/js/dragged.js";
import { latest } from "../../src/regard/viz/js/latest.js";
import { toggled } from "../../src/regard/viz/js/numbers.js";
import { rowsOf, together } from "../../src/regard/viz/js/rows.js";
import { Matrix } from "../../src/regard/viz/js/matrix.js";
import { map } from "./examples.js";

test("points are in the order of their weights, one for each", () => {
  const point = (weight, probability) => ({ weight, probability, answer: "1" });
  const points = withPoint(withPoint(withPoint([], point(0.5, 0.1)), point(0.2, 0.3)), point(0.50001, 0.9));
  assert.deepEqual(points, [point(0.2, 0.3), point(0.50001, 0.9)]);
});

test("the answer of an output, or of all where inputs look", () => {
  const numbers = map([], { prediction: [3, 1], outputs: ["p", "q"], probabilities: [0.5, 0.25] });
  assert.deepEqual(answered(numbers, "cross", 1), { answer: "1", probability: 0.25 });
  assert.deepEqual(answered(numbers, "encoder", 1), { answer: "3 1", probability: 0.125 });
  const text = map([], { prediction: "ab", outputs: ["a", "b"], probabilities: [0.5, 0.25] });
  assert.deepEqual(answered(text, "decoder", 0), { answer: "a", probability: 0.5 });
});

test("of what is asked while there is work, the last counts", async () => {
  const done = [];
  let free = () => {};
  const ask = latest(async (given) => {
    await new Promise((resolve) => (free = resolve));
    done.push(given);
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

test("rows are summed up", () => {
  const slice = Float32Array.of(0.5, 0.5, 0, 0.25, 0, 0.75);
  const matrix = new Matrix([slice], ["p", "q"], ["a", "b", "c"], null);
  assert.deepEqual(rowsOf({ also: "1,7" }, 0, 2), [0, 1]);
  assert.match(
    together(matrix, 0, [0, 1]),
    /“p”, “q” together, head 0: of 2 rows, most on “a” \(step 0, 0\.75\)/,
  );
  assert.equal(toggled("", 3), "3");
  assert.equal(toggled("3", 1), "1,3");
  assert.equal(toggled("1,3", 1), "3");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { clamp, largestValue } from "../../src/regard/viz/js/arithmetic.js";
import { Matrix } from "../../src/regard/viz/js/matrix.js";

const first = Float32Array.of(0.5, 0.25, 0.25, 0, 0.25, 0.75);
const second = Float32Array.of(0, 1, 0, 0.5, 0.5, 0);
const matrix = new Matrix([first, second], ["p", "q"], ["a", "b", "c"], null);

test("weights by head, query and key", () => {
  assert.equal(matrix.at(0, 1, 2), 0.75);
  assert.equal(matrix.at(1, 0, 1), 1);
  assert.equal(matrix.largest, 1);
});

test("the strongest key, and the first of equals", () => {
  assert.equal(matrix.strongest(0, 1), 2);
  assert.equal(matrix.strongest(1, 1), 0);
});

test("nothing at all still has a scale", () => {
  assert.equal(new Matrix([new Float32Array(6)], ["p", "q"], ["a", "b", "c"], null).largest, 1e-9);
});

test("the greatest, and the greatest by size", () => {
  assert.equal(largestValue(Float32Array.of(-0.75, 0.5)), 0.5);
  assert.equal(largestValue(Float32Array.of(-0.75, 0.5), true), 0.75);
  assert.equal(largestValue(Float32Array.of(-0.75)), 0);
});

test("within a range", () => {
  assert.deepEqual([clamp(-1, 0, 5), clamp(2, 0, 5), clamp(7, 0, 5)], [0, 2, 5]);
  assert.equal(clamp(3, 0, -2), 0); // of a range that is empty, the low end
});

test("a first step that sees itself alone leaves no others pale", () => {
  const labels = ["a", "b", "c"];
  const causal = Float32Array.of(1, 0, 0, 0.75, 0.25, 0, 0.25, 0.5, 0.25);
  assert.deepEqual([new Matrix([causal], labels, labels, null).largest, matrix.scale], [1, 1]);
  assert.equal(new Matrix([causal], labels, labels, null).scale, 0.75);
  const both = Float32Array.of(1, 0, 0, 0.25, 0.25, 0.5, 0.25, 0.5, 0.25); // the second sees the third
  assert.equal(new Matrix([both], labels, labels, null).scale, 1);
});

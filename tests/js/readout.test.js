import assert from "node:assert/strict";
import { test } from "node:test";
import { Matrix } from "../../src/regard/viz/js/matrix.js";
import { describeWeight } from "../../src/regard/viz/js/details.js";
import { START } from "../../src/regard/viz/js/state.js";
import { layer } from "./examples.js";

const slice = Float32Array.of(0.5, 0.25, 0.25, 0.1, 0.15, 0.75);
const matrix = (exact) => new Matrix([slice], ["p", "q"], ["a", "b", "c"], null, exact);
const told = (query, key, fields = {}, exactly = undefined) =>
  describeWeight(
    { matrix: matrix(false), state: { ...START, query, key }, before: null, head: 0, layer: layer(), ...fields },
    exactly,
  );

test("a weight; of a row alone, how to read one", () => {
  assert.equal(told(1, 2), "q → c (step 2): 0.7500");
  assert.equal(told(1, null), "Point at a weight to read it.");
});

test("what has changed", () => {
  const before = new Matrix([Float32Array.of(0.5, 0.25, 0.25, 0.1, 0.65, 0.25)], ["p", "q"], ["a", "b", "c"], null);
  assert.equal(told(1, 1, { before }), "q → b (step 1): 0.1500 (was 0.6500, −0.500)");
});

test("what is chosen is told as it was computed, if that is at hand", () => {
  assert.equal(told(1, 0, { matrix: matrix(true) }), "q → a (step 0): 0.100000001 exactly");
  assert.equal(told(1, 0, {}, "0.1234567 exactly"), "q → a (step 0): 0.1234567 exactly");
  assert.equal(told(1, null, { matrix: matrix(true) }), "Point at a weight to read it.");
});

test("of squares, which steps they are of", () => {
  const wide = told(1, 1, { layer: layer({ square: 4 }) });
  assert.equal(wide, "q → b (steps 4 to 7, the largest weight): 0.1500");
});

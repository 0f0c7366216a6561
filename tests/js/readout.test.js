import assert from "node:assert/strict";
import { test } from "node:test";
import { Matrix } from "../../src/regard/viz/js/matrix.js";
import { describeWeight } from "../../src/regard/viz/js/drawing.js";
import { START } from "../../src/regard/viz/js/state.js";

const slice = Float32Array.of(0.5, 0.25, 0.25, 0.1, 0.15, 0.75);
const matrix = (exact) => new Matrix([slice], ["p", "q"], ["a", "b", "c"], null, exact);
const scene = (fields = {}) => ({ matrix: matrix(false), state: START, before: null, ...fields });

test("nothing is pointed at", () => {
  const invitation = "Point at a weight, or use the arrow keys on a heatmap. 2 × 3 weights in each of 1 head.";
  assert.equal(describeWeight(scene(), 0, null, null), invitation);
});

test("a weight", () => {
  assert.equal(describeWeight(scene(), 1, 2, 0), "head 0: q → c (step 2): 0.7500");
});

test("a query alone is told by its strongest key", () => {
  assert.equal(describeWeight(scene(), 1, null, 0), "head 0: q → mainly c (step 2): 0.7500");
});

test("what has changed, also of what is chosen", () => {
  const before = new Matrix([Float32Array.of(0.5, 0.25, 0.25, 0.1, 0.65, 0.25)], ["p", "q"], ["a", "b", "c"], null);
  assert.equal(describeWeight(scene({ before }), 1, 1, 0), "head 0: q → b (step 1): 0.1500 (was 0.6500, −0.500)");
  const state = { ...START, query: 1, key: 2 };
  const chosen = scene({ before, state, matrix: matrix(true) });
  assert.equal(describeWeight(chosen, 1, 2, 0), "head 0: q → c (step 2): 0.75 exactly (was 0.2500, +0.500)");
});

test("what is chosen is told as it was computed, if that is at hand", () => {
  const state = { ...START, query: 1, key: 0 };
  assert.equal(
    describeWeight(scene({ state, matrix: matrix(true) }), 1, 0, null),
    "head 0: q → a (step 0): 0.100000001 exactly",
  );
  assert.equal(describeWeight(scene({ state }), 1, 0, null), "head 0: q → a (step 0): 0.1000");
  assert.equal(describeWeight(scene({ state, matrix: matrix(true) }), 1, 1, 0), "head 0: q → b (step 1): 0.1500");
  const words = { ...state, words: true };
  assert.equal(
    describeWeight(scene({ state: words, matrix: matrix(true) }), 1, 0, null),
    "head 0: q → a (step 0): 0.1000",
  );
});

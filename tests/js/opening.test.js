import assert from "node:assert/strict";
import { test } from "node:test";
import { Matrix } from "../../src/regard/viz/js/matrix.js";
import { clearestHead, openingRow } from "../../src/regard/viz/js/state.js";

const labels = ["[CLS]", "the", "animal", "it", "[SEP]"];

/** @param {number[][]} places the key of each query, for each head */
function pointing(places) {
  const slices = places.map((keys) => {
    const slice = new Float32Array(labels.length ** 2);
    keys.forEach((key, query) => {
      slice[query * labels.length + key] = 1 - 0.1 * query;
    });
    return slice;
  });
  return new Matrix(slices, labels, labels, null);
}

test("a head that attends to other tokens is opened before one that attends to the own token", () => {
  const matrix = pointing([
    [0, 1, 2, 3, 4],
    [1, 2, 3, 2, 3],
  ]);
  assert.equal(clearestHead({}, { name: "layer", kind: "encoder" }, matrix), 1);
});

test("the first row is one with a large weight on another token that is not special", () => {
  assert.equal(openingRow(pointing([[4, 1, 4, 2, 2]]), 0, "encoder"), 3);
  assert.equal(openingRow(pointing([[4, 1, 2, 3, 4]]), 0, "encoder"), 0);
});

test("in causal attention the last row is opened, between outputs and inputs the first one", () => {
  assert.equal(openingRow(pointing([[0, 0, 1, 2, 3]]), 0, "decoder"), 4);
  assert.equal(openingRow(pointing([[4, 1, 4, 2, 2]]), 0, "cross"), 0);
});

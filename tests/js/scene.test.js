import assert from "node:assert/strict";
import { test } from "node:test";
import { differences, makeScene, originalLayer } from "../../src/regard/viz/js/scene.js";
import { START } from "../../src/regard/viz/js/state.js";
import { Weights } from "../../src/regard/viz/js/matrix.js";
import { frozen, layer, map } from "./examples.js";

/** Weights of one head, the same for both queries. */
const even = (...row) => [[row, row]];

async function scene(data, fields = {}, index = 0) {
  const state = { ...START, head: 0, ...fields };
  const weights = new Weights();
  const shown = data.maps[0];
  const chosen = shown.layers[index];
  return makeScene(data, shown, chosen, state, weights);
}

test("the heads that are drawn, and no changes without an original", async () => {
  const data = frozen({ maps: [map([layer({ weights: [...even(1, 0, 0), ...even(0, 1, 0)] })])] });
  const together = await scene(data);
  assert.deepEqual([together.heads, together.head, together.changes, together.before], [[0, 1], 0, null, null]);
  assert.deepEqual((await scene(data, { all: false, head: 1 })).heads, [1]);
});

test("changes: now less before, and their scale is the largest by size", async () => {
  const original = map([layer({ weights: even(0.25, 0.75, 0) })]);
  const data = frozen({ maps: [map([layer({ weights: even(0.5, 0.125, 0.375) })])], original });
  const compared = await scene(data, { change: true });
  assert.deepEqual([...compared.changes[0].slice(0, 3)], [0.25, -0.625, 0.375]);
  assert.equal(compared.largest, 0.625);
  assert.deepEqual([...compared.before.slices[0].slice(0, 3)], [0.25, 0.75, 0]);
  assert.equal((await scene(data, { change: true, mode: "lines" })).changes, null);
  assert.equal((await scene(data)).changes, null);
});

test("another answer has other tokens, which are not compared", () => {
  const data = { maps: [], original: map([layer({ queries: ["p", "r"] })]) };
  assert.equal(originalLayer(data, layer()), null);
  assert.equal(originalLayer({ maps: [], original: map([layer()]) }, layer()).name, "cross");
  assert.equal(originalLayer({ maps: [] }, layer()), null);
});

test("changes leave the weights as they are", () => {
  const now = { slices: [Float32Array.of(1, 0)] };
  const before = { slices: [Float32Array.of(0.25, 0.75)] };
  assert.deepEqual(differences(now, before), [Float32Array.of(0.75, -0.75)]);
  assert.deepEqual(now.slices, [Float32Array.of(1, 0)]);
});

test("between words, if that is chosen", async () => {
  const data = frozen({ maps: [map([layer({ key_words: [[0, 1], [2]] })])] });
  assert.deepEqual((await scene(data)).matrix.columns, 3);
  assert.deepEqual((await scene(data, { words: true })).matrix.columns, 2);
});

test("weights are unpacked once, and merged once", async () => {
  const weights = new Weights();
  const split = layer({ key_words: [[0, 1], [2]] });
  const [before, merged] = [weights.of(split, START), weights.of(split, { words: true })];
  assert.equal(weights.of(split, START), before);
  assert.equal(weights.of(split, { words: true }), merged);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { hasWordPieces, Matrix, mergeWords } from "../../src/regard/viz/js/matrix.js";
import { frozen, layer } from "./examples.js";

const weights = [
  [0.5, 0.25, 0.25],
  [0, 0.25, 0.75],
];
const matrix = new Matrix([Float32Array.from(weights.flat())], ["␣go", "es"], ["␣läu", "ft", "."], [[1, 2]]);

test("a word is given the weight of all its pieces", () => {
  const merged = mergeWords(matrix, frozen({ query_words: null, key_words: [[0, 1], [2]] }));
  assert.deepEqual(merged.slices, [Float32Array.of(0.75, 0.25, 0.25, 0.75)]);
  assert.deepEqual(merged.keys, ["läuft", "."]);
  assert.deepEqual(merged.queries, ["go", "es"]);
  assert.deepEqual(merged.relevant, [[1, 1]]);
});

test("a word gives the mean of what its pieces give", () => {
  const merged = mergeWords(matrix, frozen({ query_words: [[0, 1]], key_words: null }));
  assert.deepEqual(merged.slices, [Float32Array.of(0.25, 0.25, 0.5)]);
  assert.deepEqual(merged.queries, ["goes"]);
  assert.deepEqual(merged.relevant, [[0, 2]]);
});

test("both, and every row still sums to 1", () => {
  const merged = mergeWords(matrix, frozen({ query_words: [[0, 1]], key_words: [[0, 1], [2]] }));
  assert.deepEqual(merged.slices, [Float32Array.of(0.5, 0.5)]);
  assert.equal(merged.largest, 0.5);
});

test("only the blank that begins a word is taken away, and a blank alone is seen", () => {
  const single = new Matrix([Float32Array.of(0.5, 0.5)], ["x"], ["␣", "a␣b"], null);
  assert.deepEqual(mergeWords(single, { query_words: null, key_words: [[0], [1]] }).keys, ["␣", "a␣b"]);
  assert.deepEqual(mergeWords(single, { query_words: null, key_words: [[0, 1]] }).keys, ["a␣b"]);
  assert.equal(mergeWords(single, { query_words: null, key_words: [[0, 1]] }).relevant, null);
});

test("a layer is in pieces where its queries or its keys are", () => {
  assert.equal(hasWordPieces(layer()), false);
  assert.equal(hasWordPieces(layer({ query_words: [[0, 1]] })), true);
  assert.equal(hasWordPieces(layer({ key_words: [[0, 1], [2]] })), true);
});

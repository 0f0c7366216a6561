import assert from "node:assert/strict";
import { test } from "node:test";
import { strongest } from "../../src/regard/viz/js/lines.js";
import { Matrix } from "../../src/regard/viz/js/matrix.js";

const first = Float32Array.of(0.5, 0.25, 0.25, 0, 0.004, 1);
const second = Float32Array.of(0, 0.75, 0.25, 0.125, 0.375, 0.5);
const matrix = new Matrix([first, second], ["p", "q"], ["a", "b", "c"], null);

test("the strongest first, and none that is hardly seen", () => {
  const { lines: strongestLines, seen, all } = strongest(matrix, [0], [0, 1], [0, 1, 2]);
  assert.deepEqual([seen, all], [4, 6]);
  assert.deepEqual(
    strongestLines.map(({ weight, query, key }) => [weight, query, key]),
    [
      [1, 1, 2],
      [0.5, 0, 0],
      [0.25, 0, 1],
      [0.25, 0, 2],
    ],
  );
});

test("of the heads, queries and keys that are asked for", () => {
  assert.deepEqual(strongest(matrix, [1], [1], [0, 1]).lines, [
    { weight: 0.375, head: 1, query: 1, key: 1 },
    { weight: 0.125, head: 1, query: 1, key: 0 },
  ]);
});

test("so many at most, and how many there are is said", () => {
  const { lines: strongestLines, ...counts } = strongest(matrix, [0, 1], [0, 1], [0, 1, 2], undefined, 2);
  assert.deepEqual(
    strongestLines.map(({ weight, head }) => [weight, head]),
    [
      [1, 0],
      [0.75, 1],
    ],
  );
  assert.deepEqual(counts, { seen: 9, all: 12, weakest: 0.75 });
});

test("only what is asked for: the largest of each row, and from some weight on", () => {
  const named = ({ lines: strongestLines }) => strongestLines.map(({ head, query, key }) => [head, query, key]);
  assert.deepEqual(named(strongest(matrix, [0], [0, 1], [0, 1, 2], { least: 0, top: 1 })), [
    [0, 1, 2],
    [0, 0, 0],
  ]);
  assert.deepEqual(named(strongest(matrix, [0], [0, 1], [0, 1, 2], { least: 0.5, top: 0 })), [
    [0, 1, 2],
    [0, 0, 0],
  ]);
  assert.equal(strongest(matrix, [0], [0, 1], [0, 1, 2], { least: 0.6, top: 0 }).all, 6);
});

test("heads that are switched off are not shown, unless all are", () => {
  assert.deepEqual(matrix.shown({ head: null, off: "0" }), [1]);
  assert.deepEqual(matrix.shown({ head: 0, off: "0" }), [0]);
  assert.deepEqual(matrix.shown({ head: null, off: "0,1" }), [0, 1]);
});

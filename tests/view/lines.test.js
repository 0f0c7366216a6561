import assert from "node:assert/strict";
import { test } from "node:test";
import { strongest } from "../../src/regard/inspection/view/lines.js";
import { Matrix } from "../../src/regard/inspection/view/matrix.js";

const first = Float32Array.of(0.5, 0.25, 0.25, 0, 0.004, 1);
const second = Float32Array.of(0, 0.75, 0.25, 0.125, 0.375, 0.5);
const matrix = new Matrix([first, second], ["p", "q"], ["a", "b", "c"], null);

test("the strongest first, and none that is hardly seen", () => {
  const { lines: found, seen, all } = strongest(matrix, [0], [0, 1], [0, 1, 2]);
  assert.deepEqual([seen, all], [4, 6]);
  assert.deepEqual(
    found.map(({ weight, query, key }) => [weight, query, key]),
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
  const { lines: found, ...counts } = strongest(matrix, [0, 1], [0, 1], [0, 1, 2], 2);
  assert.deepEqual(
    found.map(({ weight, head }) => [weight, head]),
    [
      [1, 0],
      [0.75, 1],
    ],
  );
  assert.deepEqual(counts, { seen: 9, all: 12, weakest: 0.75 });
});

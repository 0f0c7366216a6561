import assert from "node:assert/strict";
import { test } from "node:test";
import { omittedLines, strongest } from "../../src/regard/viz/js/lines.js";
import { Matrix } from "../../src/regard/viz/js/matrix.js";

const first = Float32Array.of(0.5, 0.25, 0.25, 0, 0.004, 1);
const second = Float32Array.of(0, 0.75, 0.25, 0.125, 0.375, 0.5);
const matrix = new Matrix([first, second], ["p", "q"], ["a", "b", "c"], null);
const ALL = { top: 0, aside: false };
const named = ({ lines }) => lines.map(({ weight, query, key }) => [weight, query, key]);

test("the selected row first, then the largest, and none that is hardly seen", () => {
  const expected = [
    [0.5, 0, 0],
    [0.25, 0, 1],
    [0.25, 0, 2],
    [1, 1, 2],
  ];
  assert.deepEqual(named(strongest(matrix, 0, 0, ALL)), expected);
  assert.deepEqual(named(strongest(matrix, 0, 1, ALL))[0], [1, 1, 2]);
});

test("of other rows only the largest; without the first key if it is left out", () => {
  assert.deepEqual(named(strongest(matrix, 1, 0, { top: 1, aside: false })), [
    [0.75, 0, 1],
    [0.25, 0, 2],
    [0.5, 1, 2],
  ]);
  assert.ok(strongest(matrix, 1, 1, { top: 0, aside: true }).lines.every(({ key }) => key > 0));
});

test("so many at most, and how many are left out is said", () => {
  const selection = strongest(matrix, 1, 0, ALL, 2);
  assert.deepEqual(named(selection), [
    [0.75, 0, 1],
    [0.25, 0, 2],
  ]);
  assert.equal(omittedLines(selection), "3 weaker lines are left out");
  assert.equal(omittedLines(strongest(matrix, 1, 0, ALL)), "");
});

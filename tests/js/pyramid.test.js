import assert from "node:assert/strict";
import { test } from "node:test";
import { halve, Pyramid } from "../../src/regard/viz/js/matrix.js";

test("of four the greatest is kept, at an edge of two, in a corner of one", () => {
  const values = Float32Array.of(1, 4, 2, 9, 3, 5, 6, 7, 8);
  assert.deepEqual(halve({ values, rows: 3, columns: 3 }), {
    values: Float32Array.of(9, 5, 7, 8),
    rows: 2,
    columns: 2,
  });
});

test("of changes the greatest whatever its sign", () => {
  const values = Float32Array.of(0.25, -0.5, 0, 0.125);
  assert.deepEqual([...halve({ values, rows: 2, columns: 2 }, true).values], [-0.5]);
  assert.deepEqual([...halve({ values, rows: 2, columns: 2 }).values], [0.25]);
});

test("levels, until one value is left", () => {
  const values = Float32Array.from({ length: 35 }, (_, index) => index);
  const pyramid = new Pyramid({ values, rows: 5, columns: 7 });
  const sizes = [0, 1, 2, 3].map((number) => [pyramid.level(number).rows, pyramid.level(number).columns]);
  assert.deepEqual(sizes, [
    [5, 7],
    [3, 4],
    [2, 2],
    [1, 1],
  ]);
  assert.deepEqual([...pyramid.level(3).values], [34]);
  assert.equal(pyramid.level(0).values, values);
});

test("a pyramid of changes stays one", () => {
  const values = Float32Array.of(0, 0, 0, -1, 0.5, 0, 0, 0);
  assert.deepEqual([...new Pyramid({ values, rows: 1, columns: 8 }, true).level(3).values], [-1]);
});

test("of four with one that is not finite, that one", () => {
  const values = Float32Array.of(1, 4, NaN, 9);
  assert.deepEqual([...halve({ values, rows: 2, columns: 2 }).values], [NaN]);
  assert.deepEqual([...halve({ values, rows: 2, columns: 2 }, true).values], [NaN]);
});

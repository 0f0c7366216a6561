import assert from "node:assert/strict";
import { test } from "node:test";
import { labelledIndices } from "../../src/regard/viz/js/heatmap.js";
import { moved } from "../../src/regard/viz/js/viewport.js";

const matrix = { rows: 3, columns: 5 };

test("keys lead from cell to cell", () => {
  const from = { query: 1, key: 2 };
  assert.deepEqual(moved("ArrowUp", from, matrix), { query: 0, key: 2 });
  assert.deepEqual(moved("ArrowDown", from, matrix), { query: 2, key: 2 });
  assert.deepEqual(moved("ArrowLeft", from, matrix), { query: 1, key: 1 });
  assert.deepEqual(moved("ArrowRight", from, matrix), { query: 1, key: 3 });
  assert.deepEqual(moved("Home", from, matrix), { query: 1, key: 0 });
  assert.deepEqual(moved("End", from, matrix), { query: 1, key: 4 });
});

test("and not beyond the edge", () => {
  assert.deepEqual(moved("ArrowUp", { query: 0, key: 0 }, matrix), { query: 0, key: 0 });
  assert.deepEqual(moved("ArrowRight", { query: 2, key: 4 }, matrix), { query: 2, key: 4 });
});

test("the first one chooses a key", () => {
  assert.deepEqual(moved("ArrowDown", { query: 1, key: null }, matrix), { query: 1, key: 0 });
});

test("other keys lead nowhere", () => {
  assert.equal(moved("a", { query: 1, key: 2 }, matrix), null);
});

test("large cells all have labels", () => {
  assert.deepEqual(labelledIndices(0, 4, 112, 28, []), [0, 1, 2, 3]);
  assert.deepEqual(labelledIndices(0, 4, 112, 28, [2]), [0, 1, 2, 3]);
});

test("of small ones every second or third", () => {
  assert.deepEqual(labelledIndices(0, 7, 42, 6, []), [0, 2, 4, 6]);
  assert.deepEqual(labelledIndices(0, 7, 28, 4, []), [0, 3, 6]);
});

test("what is marked is named, and its neighbours make room", () => {
  assert.deepEqual(labelledIndices(0, 7, 28, 4, [4]), [0, 4]);
  assert.deepEqual(labelledIndices(0, 10, 40, 4, [4]), [0, 4, 9]);
});

test("of what is zoomed, those that are seen", () => {
  assert.deepEqual(labelledIndices(2.5, 100, 56, 28, []), [3, 4]);
});

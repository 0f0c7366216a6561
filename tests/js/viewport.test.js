import assert from "node:assert/strict";
import { test } from "node:test";
import { Viewport } from "../../src/regard/viz/js/viewport.js";

const margins = { left: 40, top: 20 };
const small = () => new Viewport({ rows: 3, columns: 5 }, margins, 1000);
// (446 - 40 - 6) / 100: four pixels for each of 100 columns.
const large = () => new Viewport({ rows: 50, columns: 100 }, margins, 446);

test("few weights are large, many as large as there is room", () => {
  assert.deepEqual([small().cell, small().width, small().height], [40, 200, 120]);
  assert.deepEqual([large().cell, large().width, large().height], [4, 400, 200]);
  assert.equal(small().zoomable, false);
  assert.equal(large().zoomable, true);
});

test("many rows are no taller than the screen", () => {
  const many = new Viewport({ rows: 540, columns: 2 }, margins, 1000);
  assert.equal(many.rowCell, 1); // (560 - 20) / 540
  assert.equal(many.cell, 14); // two columns of one pixel would not be read
  assert.deepEqual(many.under(40 + 15, 20.5), { query: 0, key: 1 });
  assert.equal(new Viewport({ rows: 540, columns: 500 }, margins, 1000).stretch, 1);
});

test("without room there is still something", () => {
  const hidden = new Viewport({ rows: 3, columns: 5 }, { left: 0, top: 20 }, 0);
  assert.ok(hidden.cell > 0);
  assert.deepEqual([hidden.width, hidden.height], [8, 8]);
});

test("the cell at a place", () => {
  const viewport = small();
  assert.deepEqual(viewport.under(40, 20), { query: 0, key: 0 });
  assert.deepEqual(viewport.under(40 + 40 * 4 + 39, 20 + 40 * 2), { query: 2, key: 4 });
  assert.equal(viewport.under(39, 20), null);
  assert.equal(viewport.under(40, 19), null);
  assert.equal(viewport.under(40 + 40 * 5, 20), null);
  assert.equal(viewport.under(40, 20 + 40 * 3), null);
});

test("zoomed, a place is in the middle", () => {
  const viewport = large();
  viewport.zoom(2, { query: 25, key: 50 });
  // 400 by 200 pixels now hold 50 by 25 cells of 8 pixels.
  assert.deepEqual([viewport.cell, viewport.row, viewport.column], [8, 12.5, 25]);
  assert.equal(viewport.zoomed, true);
  assert.deepEqual([viewport.x(25), viewport.y(12.5), viewport.x(26)], [40, 20, 48]);
  assert.deepEqual(viewport.under(40 + 200, 20 + 100), { query: 25, key: 50 });
});

test("zoomed without a place, the middle stays", () => {
  const viewport = large();
  viewport.zoom(2);
  assert.deepEqual([viewport.row, viewport.column], [12.5, 25]);
  viewport.zoom(0.5);
  assert.deepEqual([viewport.cell, viewport.row, viewport.column], [4, 0, 0]);
});

test("zoomed in a corner, nothing beyond it is shown", () => {
  const viewport = large();
  viewport.zoom(2, { query: 0, key: 0 });
  assert.deepEqual([viewport.row, viewport.column], [0, 0]);
  viewport.move(1000, 1000);
  assert.deepEqual([viewport.row, viewport.column], [25, 50]);
});

test("neither too large nor too small", () => {
  const viewport = large();
  viewport.zoom(100);
  assert.equal(viewport.cell, 48);
  viewport.zoom(0.001);
  assert.equal(viewport.cell, 4);
  viewport.zoom(3);
  viewport.fit();
  assert.deepEqual([viewport.cell, viewport.row, viewport.column, viewport.zoomed], [4, 0, 0, false]);
});

test("with other room it stays where it is", () => {
  const viewport = large();
  viewport.zoom(2, { query: 25, key: 50 });
  viewport.fitInto({ left: 40, top: 20 }, 246); // two pixels for each column
  assert.deepEqual([viewport.cell, viewport.row, viewport.column], [4, 12.5, 25]);
});

test("without rows or columns nothing breaks", () => {
  const empty = new Viewport({ rows: 0, columns: 0 }, margins, 0);
  assert.ok(Number.isFinite(empty.cell) && Number.isFinite(empty.width));
  assert.equal(empty.under(40, 20), null);
});

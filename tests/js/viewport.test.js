import assert from "node:assert/strict";
import { test } from "node:test";
import { Viewport } from "../../src/regard/viz/js/viewport.js";

function fitted(rows, columns, width, height) {
  const viewport = new Viewport({ rows, columns });
  viewport.fitInto({ left: 40, top: 20 }, width, height);
  return viewport;
}

const small = () => fitted(3, 5, 244, 144); // cells of 40 by 40 pixels
const large = () => fitted(50, 100, 444, 224); // cells of 4 by 4

test("cells fill their room in both directions, and few rows are not arbitrarily high", () => {
  const wide = fitted(3, 5, 444, 144);
  assert.deepEqual([wide.cell, wide.rowCell], [80, 40]);
  assert.equal(fitted(1, 5, 444, 2000).rowCell, 240);
  assert.deepEqual([small().zoomable, large().zoomable], [false, true]);
});

test("without room, rows or columns nothing breaks", () => {
  const hidden = fitted(3, 5, 0, 0);
  assert.ok(hidden.cell > 0 && hidden.width === 8 && hidden.height === 8);
  const empty = fitted(0, 0, 0, 0);
  assert.ok(Number.isFinite(empty.cell));
  assert.equal(empty.under(40, 20), null);
});

test("the cell at a place", () => {
  const viewport = small();
  assert.deepEqual(viewport.under(40, 20), { query: 0, key: 0 });
  assert.deepEqual(viewport.under(40 + 40 * 4 + 39, 20 + 40 * 2), { query: 2, key: 4 });
  for (const [x, y] of [
    [39, 20],
    [40, 19],
    [240, 20],
    [40, 140],
  ])
    assert.equal(viewport.under(x, y), null);
});

test("zoomed, a place is in the middle; without a place, the middle stays", () => {
  const viewport = large();
  viewport.zoom(2, { query: 25, key: 50 });
  // 400 by 200 pixels now hold 50 by 25 cells of 8 pixels.
  assert.deepEqual([viewport.cell, viewport.row, viewport.column], [8, 12.5, 25]);
  assert.deepEqual([viewport.x(25), viewport.y(12.5), viewport.x(26)], [40, 20, 48]);
  assert.deepEqual(viewport.under(240, 120), { query: 25, key: 50 });
  viewport.zoom(0.5);
  assert.deepEqual([viewport.cell, viewport.row, viewport.column], [4, 0, 0]);
});

test("nothing beyond the corner is shown, and cells are neither too large nor too small", () => {
  const viewport = large();
  viewport.zoom(2, { query: 0, key: 0 });
  assert.deepEqual([viewport.row, viewport.column], [0, 0]);
  viewport.move(1000, 1000);
  assert.deepEqual([viewport.row, viewport.column], [25, 50]);
  viewport.zoom(100);
  assert.equal(viewport.cell, 48);
  viewport.zoom(0);
  assert.deepEqual([viewport.cell, viewport.factor, viewport.row], [4, 1, 0]);
});

test("with other room it stays where it is", () => {
  const viewport = large();
  viewport.zoom(2, { query: 25, key: 50 });
  viewport.fitInto({ left: 40, top: 20 }, 244, 124);
  assert.deepEqual([viewport.cell, viewport.row, viewport.column], [4, 12.5, 25]);
});

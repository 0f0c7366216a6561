import assert from "node:assert/strict";
import { test } from "node:test";
import { gridGeometry } from "../../src/regard/viz/js/grid.js";
import { layer } from "./examples.js";

/** @type {any} what measures texts */
const measured = { measureText: (/** @type {string} */ text) => ({ width: 8 * text.length }) };
Object.assign(globalThis, { document: { createElement: () => ({ setAttribute() {}, getContext: () => measured }) } });

/** @param {number} count @param {number} heads @param {string} [kind] */
const layers = (count, heads, kind = "encoder") =>
  Array.from({ length: count }, (_, number) =>
    layer({ name: `${kind}.${number}`, kind, weights: Array(heads).fill([[1]]) }),
  );
const room = { width: 280, height: 650 };

test("heads are squares as large as the room allows, with layers beside each other if that makes them larger", () => {
  const wide = gridGeometry(layers(6, 12), room);
  assert.ok(wide.turned && wide.side >= 38 && wide.width <= 280 && wide.height <= 650);
  const [first, below] = wide.tiles;
  assert.ok(first.x === below.x && below.y - first.y === wide.row); // the heads of a layer are a column
  const deep = gridGeometry(layers(12, 6), room);
  assert.ok(!deep.turned && deep.side >= 38 && deep.tiles[1].y === deep.tiles[0].y);
});

test("all heads have a place of their own, and the numbers beside them do not touch", () => {
  for (const all of [layers(6, 12), layers(12, 12), layers(2, 40), [...layers(2, 4), ...layers(2, 4, "cross")]]) {
    const { tiles, titles, side } = gridGeometry(all, room);
    assert.equal(new Set(tiles.map(({ x, y }) => `${x} ${y}`)).size, tiles.length);
    assert.ok(side >= 7);
    const numbers = titles.filter(({ align }) => align === "middle");
    numbers.slice(1).forEach((number, index) => {
      const apart = number.x - numbers[index].x;
      if (number.y === numbers[index].y && apart > 0) assert.ok(apart >= 8 * number.text.length + 2);
    });
  }
});

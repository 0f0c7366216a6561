import assert from "node:assert/strict";
import { test } from "node:test";
import { cssColour, luminance, palette, shade } from "../../src/regard/viz/js/colours.js";

const light = palette(true);
const dark = palette(false);

test("from paper to the strongest colour", () => {
  assert.deepEqual(light.at(0), [255, 255, 255]);
  assert.deepEqual(light.at(1), [0x38, 0x24, 0x9b]);
  assert.deepEqual(dark.at(0), dark.paper);
  assert.deepEqual(dark.at(1), [0xec, 0xeb, 0xfe]);
});

test("at a stop its colour, between two of them their mean", () => {
  assert.deepEqual(light.at(1 / 8), [0xec, 0xee, 0xfc]);
  // Between #ffffff and #eceefc: 255 - 19 / 2, 255 - 17 / 2, 255 - 3 / 2, rounded.
  assert.deepEqual(light.at(1 / 16), [246, 247, 254]);
});

test("beyond the ends there is nothing more", () => {
  assert.deepEqual(light.at(-1), light.at(0));
  assert.deepEqual(light.at(2), light.at(1));
  assert.deepEqual(light.change(-3), light.change(-1));
});

test("less is brown, more is green, the same is paper", () => {
  assert.deepEqual(light.change(-1), [166, 97, 26]);
  assert.deepEqual(light.change(1), [1, 133, 113]);
  assert.deepEqual(light.change(0), [255, 255, 255]);
  assert.deepEqual(light.change(0.5), [128, 194, 184]);
});

test("tables hold the same colours as pixels, opaque, red in the lowest byte", () => {
  assert.equal(light.table[255], 0xff9b2438);
  assert.equal(light.table[0], 0xffffffff);
  assert.equal(light.changes[0], 0xff1a61a6);
  assert.equal(light.changes[255], 0xff718501);
});

test("the lighter, the less weight; in the dark, the more", () => {
  const shares = Array.from({ length: 21 }, (_, index) => index / 20);
  for (const [colours, sign] of [
    [light, -1],
    [dark, 1],
  ]) {
    const luminances = shares.map((share) => luminance(colours.at(share)));
    for (let index = 1; index < luminances.length; index += 1) {
      assert.ok(
        sign * (luminances[index] - luminances[index - 1]) > 0,
        `${index} of ${colours.dark ? "dark" : "light"}`,
      );
    }
  }
});

test("the place in a table", () => {
  assert.deepEqual(
    [0, 0.5, 1, 2, -1].map((share) => shade(share)),
    [0, 128, 255, 255, 0],
  );
  assert.deepEqual(
    [-1, 0, 1].map((share) => shade(share, true)),
    [0, 128, 255],
  );
});

test("a palette is mixed once", () => {
  assert.equal(palette(true), light);
  assert.notEqual(light, dark);
});

test("as CSS", () => assert.equal(cssColour([1, 2, 3]), "rgb(1, 2, 3)"));

test("what is not finite has a colour of its own", () => {
  for (const colours of [light, dark]) {
    assert.deepEqual([colours.at(NaN), colours.change(NaN)], [colours.broken, colours.broken]);
    for (const [table, signed] of /** @type {[Uint32Array, boolean][]} */ ([
      [colours.table, false],
      [colours.changes, true],
    ])) {
      const broken = table[shade(NaN, signed)];
      assert.ok(broken !== undefined && [-1, 0, 0.5, 1].every((share) => table[shade(share, signed)] !== broken));
    }
  }
});

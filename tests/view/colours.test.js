import assert from "node:assert/strict";
import { test } from "node:test";
import { css, hue, luminance, palette, shade } from "../../src/regard/inspection/view/colours.js";

const light = palette(true);
const dark = palette(false);

test("from paper to the strongest colour", () => {
  assert.deepEqual(light.at(0), [255, 255, 255]);
  assert.deepEqual(light.at(1), [0x08, 0x30, 0x6b]);
  assert.deepEqual(dark.at(0), dark.paper);
  assert.deepEqual(dark.at(1), [255, 255, 255]);
});

test("at a stop its colour, between two of them their mean", () => {
  assert.deepEqual(light.at(1 / 8), [0xde, 0xeb, 0xf7]);
  // Between #ffffff and #deebf7: 255 - 33 / 2, 255 - 20 / 2, 255 - 8 / 2, rounded.
  assert.deepEqual(light.at(1 / 16), [239, 245, 251]);
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
  assert.equal(light.table[255], 0xff6b3008);
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
    const found = shares.map((share) => luminance(colours.at(share)));
    for (let index = 1; index < found.length; index += 1) {
      assert.ok(sign * (found[index] - found[index - 1]) > 0, `${index} of ${colours.dark ? "dark" : "light"}`);
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

test("heads have hues of their own; one alone has that of weights", () => {
  assert.equal(hue(0, 1, false), "#08519c");
  assert.equal(hue(0, 4, false), "hsl(210 65% 38%)");
  assert.equal(hue(2, 4, true), "hsl(30 65% 65%)");
  assert.equal(new Set([0, 1, 2, 3].map((head) => hue(head, 4, false))).size, 4);
});

test("as CSS", () => assert.equal(css([1, 2, 3]), "rgb(1, 2, 3)"));

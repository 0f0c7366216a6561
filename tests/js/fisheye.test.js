import assert from "node:assert/strict";
import { test } from "node:test";
import { fisheye, omittedLabels } from "../../src/regard/viz/js/lines.js";

test("few tokens are equally far apart, and all are labelled", () => {
  const { at, labelled, height } = fisheye(40, [3], 100, 19);
  assert.equal(height, 40 * 19);
  assert.ok(labelled.every(Boolean) && at.every((place, index) => index === 0 || place - at[index - 1] === 19));
});

test("many tokens fit the room; those around the chosen ones are labelled", () => {
  const places = fisheye(160, [80, 20], 600, 19);
  assert.ok(places.height <= 601);
  for (const index of [18, 19, 20, 21, 22, 78, 80, 82]) assert.ok(places.labelled[index], String(index));
  assert.ok(Math.abs(places.at[81] - places.at[80] - 19) < 1e-9);
  const at = places.at.filter((_, index) => places.labelled[index]);
  assert.ok(at.every((place, index) => index === 0 || place - at[index - 1] >= 11));
  assert.match(omittedLabels([places]), /labels are dots/);
});

test("the order stays, also without room", () => {
  const { at, height } = fisheye(160, [0, 159], 10, 19);
  assert.ok(at.every((place, index) => index === 0 || place > at[index - 1]));
  assert.ok(height >= 160 * 2);
});

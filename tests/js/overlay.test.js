import assert from "node:assert/strict";
import { test } from "node:test";
import { overlayColour } from "../../src/regard/viz/js/overlay.js";
import { availableModes, makeScene, largestOnPatches } from "../../src/regard/viz/js/scene.js";
import { START } from "../../src/regard/viz/js/state.js";
import { Weights } from "../../src/regard/viz/js/matrix.js";
import { frozen, layer, map } from "./examples.js";

const ROW = [0.5, 0.125, 0.25, 0.0625, 0.0625]; // one step for the whole picture, and four patches
const LABELS = ["[CLS]", "0,0", "0,1", "1,0", "1,1"];

/** A layer over a picture of two by two patches. */
function seeing(fields = {}) {
  const weights = [[ROW, ROW, ROW, ROW, [0, 0.1, 0.2, 0.3, 0.4]]];
  return layer({ kind: "encoder", queries: LABELS, keys: LABELS, weights, patches: [1, 2, 2], ...fields });
}

async function scene(fields = {}) {
  const data = frozen({ maps: [map([seeing()], { picture: "data:image/png;base64,AA==" })] });
  const weights = new Weights();
  const [shown] = data.maps;
  const state = { ...START, head: 0, ...fields };
  return makeScene(data, shown, shown.layers[0], state, weights);
}

test("where there is a picture, weights lie upon it unless something else is chosen", async () => {
  assert.equal((await scene()).state.mode, "picture");
  assert.equal((await scene({ mode: "heatmap" })).state.mode, "heatmap");
});

test("without a picture or patches there is no such way to draw", () => {
  assert.ok(!availableModes(map([seeing()], { picture: null }), seeing()).includes("picture"));
  const plain = seeing({ patches: null });
  assert.ok(!availableModes(map([plain], { picture: "data:," }), plain).includes("picture"));
  assert.equal(availableModes(map([layer()]), layer())[0], "heatmap");
});

test("the strongest colour is the largest weight of the query on a patch", async () => {
  assert.equal((await scene()).largest, 0.25); // and not the half on [CLS]
  assert.ok(Math.abs((await scene({ query: 4 })).largest - 0.4) < 1e-6);
  const { matrix } = await scene();
  assert.equal(largestOnPatches(matrix, [0], 0, { first: 1, rows: 1, columns: 1 }), 0.125);
});

test("the scale goes from grey to colour", () => {
  assert.deepEqual(overlayColour(0), [150, 150, 150]);
  assert.ok(overlayColour(1)[0] > 230 && overlayColour(1)[2] < 30);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { fitState, currentLayer, START } from "../../src/regard/viz/js/state.js";
import { layer, map } from "./examples.js";

const small = { heads: 2, rows: 3, columns: 5 };

test("at first the layer that reads the input", () => {
  const encoder = layer({ name: "encoder.0", kind: "encoder" });
  const cross = layer();
  assert.equal(currentLayer(map([encoder, cross]), null), cross);
  assert.equal(currentLayer(map([encoder, cross]), "encoder.0"), encoder);
  assert.equal(currentLayer(map([encoder]), "gone"), encoder);
  assert.equal(currentLayer(map([]), null), null);
  const later = layer({ name: "decoder.1.cross" });
  assert.equal(currentLayer(map([cross, later], { opens: "decoder.1.cross" }), null), later);
  assert.equal(currentLayer(map([cross, later], { opens: "decoder.1.cross" }), "cross"), cross);
});

test("what is chosen stays chosen", () => {
  const state = { ...START, head: 1, query: 2, key: 4, focus: 1 };
  assert.deepEqual(fitState(state, small, small), state);
});

test("what there is no longer gives way to what there is", () => {
  const state = { ...START, head: 2, query: 7, key: 9, focus: 3 };
  assert.deepEqual(fitState(state, small, small), { ...START, head: null, query: 2, key: 4, focus: 1 });
});

test("query and key are among those that are shown", () => {
  const state = { ...START, words: true, query: 2, key: 4 };
  const state_ = fitState(state, small, { rows: 1, columns: 2 });
  assert.deepEqual([state_.query, state_.key], [0, 1]);
});

test("of many tokens one head is shown", () => {
  assert.equal(fitState(START, { heads: 2, rows: 81, columns: 3 }, small).head, 0);
  assert.equal(fitState(START, { heads: 2, rows: 80, columns: 80 }, small).head, null);
  assert.equal(fitState(START, { heads: 1, rows: 81, columns: 3 }, small).head, null);
});

test("the weight that is told is one of the head that is shown", () => {
  const all = { ...START, head: null, focus: 1 };
  assert.equal(fitState(all, { heads: 2, rows: 81, columns: 3 }, small).focus, 0);
  assert.equal(fitState(all, small, small).focus, 1);
  assert.equal(fitState({ ...all, head: 0 }, small, small).focus, 0);
});

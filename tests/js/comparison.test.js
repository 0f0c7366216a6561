// What stands beside a layer: that of the same name, or else that at the same place among those of its kind.

import assert from "node:assert/strict";
import { test } from "node:test";

import { layerBeside } from "../../src/regard/viz/js/scene.js";
import { layer, map } from "./examples.js";

const state = { beside: "model-0" };

/** What stands beside each layer of one map in view of another: its name, or null. */
function standing(own, others) {
  const shown = map(own);
  const data = { maps: [shown], beside: [{ name: "other", map: map(others) }] };
  return own.map((layer) => layerBeside(data, shown, layer, state)?.layer.name ?? null);
}

const named = (kind, ...names) => names.map((name) => layer({ name, kind }));

test("layers of one name stand beside each other, and no others then", () => {
  assert.deepEqual(standing(named("decoder", "a", "b"), named("decoder", "b", "c")), [null, "b"]);
});

test("a layer of another name is told by its own", () => {
  const data = { maps: [], beside: [{ name: "other", map: map([layer({ name: "x", title: "X" })]) }] };
  const [a, x] = [layer({ name: "a" }), layer({ name: "x" })];
  assert.equal(layerBeside({ ...data, maps: [map([a])] }, map([a]), a, state)?.name, "other, X");
  assert.equal(layerBeside({ ...data, maps: [map([x])] }, map([x]), x, state)?.name, "other");
});

test("layers of other names stand beside each other by kind and place, where there are as many", () => {
  const own = [...named("encoder", "a", "b"), ...named("decoder", "c")];
  assert.deepEqual(standing(own, [...named("decoder", "z"), ...named("encoder", "x", "y")]), ["x", "y", "z"]);
  assert.deepEqual(standing(own, [...named("encoder", "x"), ...named("decoder", "z")]), [null, null, "z"]);
});

import assert from "node:assert/strict";
import test from "node:test";

import { changedWeights, LiveAttention } from "../../../src/regard/viz/js/live/attention-layer.js";
import { Parameters } from "../../../src/regard/viz/js/live/rows.js";

const rows = (...numbers) => numbers.map((row) => Float64Array.from(row));
const change = (fields) => ({ layer: "cross", heads: [0], ...fields });

test("weights are a softmax of the scores, and the context their sum", () => {
  const layer = new LiveAttention(new Parameters(new Map()), "cross", { heads: null, score: "dot" }, []);
  layer.read(rows([0, 2], [Math.log(3), 0]));
  assert.deepEqual(
    layer.attend(rows([1, 0]))[0].map((value) => Number(value.toFixed(6))),
    Float64Array.from([0.75 * Math.log(3), 0.5], (value) => Number(value.toFixed(6))),
  );
  assert.ok(Math.abs(layer.heads[0].weights[0][1] - 0.75) < 1e-12);
});

test("weights that are changed", () => {
  const weights = Float64Array.of(0.5, 0.25, 0.25);
  assert.deepEqual([...changedWeights(weights, change({ to: "off" }), 0)], [0, 0, 0]);
  assert.deepEqual([...changedWeights(weights, change({ to: "uniform" }), 0)], [1 / 3, 1 / 3, 1 / 3]);
  assert.deepEqual([...changedWeights(weights, change({ to: 0.5, query: 0, key: 1 }), 0)], [1 / 3, 0.5, 1 / 6]);
  assert.equal(changedWeights(weights, change({ to: 0.5, query: 1, key: 1 }), 0), weights);
  assert.equal(changedWeights(weights, change({ to: 0.5, query: 0, key: 3 }), 0), weights); // not visible
  const one = Float64Array.of(1, 0, 0);
  assert.deepEqual([...changedWeights(one, change({ to: 0, query: 0, key: 0 }), 0)], [0, 0.5, 0.5]);
});

test("only changes of the layer and the head count", () => {
  const changes = [change({ to: "off" }), { ...change({ to: "off" }), layer: "encoder.0.self_attention" }];
  const parameters = new Parameters(new Map());
  const layer = new LiveAttention(
    parameters,
    "encoder.layers.0.self_attention",
    { heads: null, score: "dot" },
    changes,
  );
  layer.read(rows([1, 1]));
  assert.deepEqual([...layer.attend(rows([1, 1]))[0]], [0, 0]);
  assert.equal(layer.changes.length, 1);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { layerTitle, shortNames } from "../../src/regard/viz/js/layer-names.js";
import { Matrix } from "../../src/regard/viz/js/matrix.js";
import {
  availableMeasures,
  chosenMeasure,
  distance,
  entropy,
  relevantWeight,
} from "../../src/regard/viz/js/measures.js";
import { START } from "../../src/regard/viz/js/state.js";
import { layer, map } from "./examples.js";

const named = (name, kind = "encoder") => layer({ name, title: name, kind });

test("a layer is named by the part of its path that differs", () => {
  const layers = ["bert.encoder.layer.0.attention", "bert.encoder.layer.11.attention"].map((name) => named(name));
  assert.deepEqual([...shortNames(layers).values()], ["0", "11"]);
  assert.equal(layerTitle(layers[1], layers), "layer 11");
  assert.equal(layerTitle(layer(), [layer()]), "Encoder-decoder attention");
});

test("layers of a kind are numbered by themselves", () => {
  const layers = [
    named("decoder.0.self", "decoder"),
    named("decoder.0.cross", "cross"),
    named("decoder.1.cross", "cross"),
  ];
  assert.deepEqual([...shortNames(layers).values()], ["0", "0", "1"]);
});

const matrix = new Matrix(
  [Float32Array.of(0.25, 0.25, 0.25, 0.25, 0, 0, 0, 1)],
  ["p", "q"],
  ["a", "b", "c", "d"],
  [
    [0, 0],
    [0, 1],
  ],
);

test("entropy is 1 for a uniform row and 0 for a single key", () => {
  assert.equal(entropy(matrix, 0), 0.5);
});

test("distance and weight on relevant keys are means over the rows", () => {
  assert.equal(distance(matrix, 0), (0.25 * (0 + 1 + 2 + 3) + 2) / 2);
  assert.equal(relevantWeight(matrix, 0), 0.5);
});

test("importance is the first measure where it is known, and not for a snapshot", () => {
  const shown = map([layer({ relevant: [[0, 0]] })]);
  const data = { maps: [shown], importance: { cross: [{ added: 0.5, low: -0.1, high: 1 }] } };
  const scene = { data, map: shown, state: START, shown: () => matrix };
  assert.deepEqual(availableMeasures(scene), ["importance", "relevant", "entropy"]);
  const found = chosenMeasure(scene).of(shown.layers[0], 0);
  assert.deepEqual([found.value, found.sure, found.text], [0.5, false, "(+0.500)"]);
  assert.deepEqual(availableMeasures({ ...scene, state: { ...START, frame: 0 } }), ["relevant", "entropy"]);
  assert.equal(chosenMeasure({ ...scene, state: { ...START, measure: "entropy" } }).name, "entropy");
});

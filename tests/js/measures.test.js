import assert from "node:assert/strict";
import { test } from "node:test";
import { layerTitle, shortNames } from "../../src/regard/viz/js/labels.js";
import { Matrix } from "../../src/regard/viz/js/matrix.js";
import {
  availableMeasures,
  chosenMeasure,
  distance,
  entropy,
  peak,
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

test("the largest weight of each row counts outside attention sinks and early causal rows", () => {
  assert.equal(peak(matrix, 0, "cross"), (0.25 + 1) / 2);
  const size = 8;
  const labels = Array.from({ length: size }, (_, step) => `t${step}`);
  /** @param {(query: number, key: number) => number} weight */
  const square = (weight) =>
    new Matrix(
      [Float32Array.from({ length: size * size }, (_, at) => weight(Math.floor(at / size), at % size))],
      labels,
      labels,
      null,
    );
  const sink = square((query, key) =>
    key === 0 ? 0.5 : key === 1 && query > 1 ? 0.125 : query < 2 && key === 7 ? 0.5 : 0,
  );
  assert.equal(peak(sink, 0, "cross"), (2 * 0.5 + 6 * 0.125) / size);
  const causal = square((query, key) => (key <= query ? 1 / (query + 1) : 0));
  const late = [2, 3, 4, 5, 6, 7].map((query) => 1 / (query + 1));
  const sum = late.reduce((total, weight) => total + weight, 0);
  assert.ok(Math.abs(peak(causal, 0, "cross") - sum / 6) < 0.06); // its first column is a sink
  const own = square((query, key) => (key === query ? 0.75 : key === (query + 1) % size ? 0.25 : 0));
  assert.deepEqual([peak(own, 0, "encoder"), peak(own, 0, "cross")], [0.25, 0.75]);
});

test("distance and weight on relevant keys are means over the rows", () => {
  assert.equal(distance(matrix, 0), (0.25 * (0 + 1 + 2 + 3) + 2) / 2);
  assert.equal(relevantWeight(matrix, 0), 0.5);
});

test("importance is the first measure where it is known, and not for a snapshot", () => {
  const shown = map([layer({ relevant: [[0, 0]] })]);
  const data = { maps: [shown], importance: { cross: [{ added: 0.5, low: -0.1, high: 1 }] } };
  const scene = { data, map: shown, state: START, shown: () => matrix };
  assert.deepEqual(availableMeasures(scene), ["importance", "relevant", "peak", "entropy"]);
  const found = chosenMeasure(scene).of(shown.layers[0], 0);
  assert.deepEqual([found.value, found.sure, found.text], [0.5, false, "(+0.500)"]);
  assert.deepEqual(availableMeasures({ ...scene, state: { ...START, frame: 0 } }), ["relevant", "peak", "entropy"]);
  assert.equal(chosenMeasure({ ...scene, state: { ...START, measure: "entropy" } }).name, "entropy");
});

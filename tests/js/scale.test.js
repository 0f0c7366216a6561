import assert from "node:assert/strict";
import { test } from "node:test";
import { Matrix, Weights } from "../../src/regard/viz/js/matrix.js";
import { layerScale, Scale, shareOf, sinks } from "../../src/regard/viz/js/scale.js";
import { START } from "../../src/regard/viz/js/state.js";
import { layer, map } from "./examples.js";

const SIZE = 12;
const labels = Array.from({ length: SIZE }, (_, step) => `t${step}`);
const slice = (of) =>
  Float32Array.from({ length: SIZE ** 2 }, (_, index) => of(Math.floor(index / SIZE), index % SIZE));
const weak = slice(() => 1 / SIZE);
const sink = slice((query, key) => (key === 0 ? 0.9 : key === query ? 0.1 : 0));
const all = new Matrix([weak, sink], labels, labels, null);

test("small weights stay visible, larger ones are darker, and what is not finite is neither", () => {
  assert.ok(shareOf(0.04, 1) === 0.2 && shareOf(0.5, 1) < shareOf(0.6, 1));
  assert.deepEqual([shareOf(0, 1), shareOf(1, 1), Number.isNaN(shareOf(NaN, 1))], [0, 1, true]);
});

test("on the shared scale no weak head is as dark as a strong one; on its own scale the end says its largest weight", () => {
  const [shared, own] = [new Scale("shared", all.largest), new Scale("own", all.largest)];
  assert.ok(shareOf(1 / SIZE, shared.top(all, 0)) < 0.35);
  assert.deepEqual([own.end(all, [0]), own.end(all, [1]), shared.end(all, [0, 1])], ["0.08", "0.90", "0.90"]);
});

test("a bar whose end is exceeded says so", () => {
  const causal = new Matrix([slice((query, key) => (key <= query ? 1 / (query + 1) : 0))], labels, labels, null);
  assert.equal(new Scale("own", 1).end(causal, [0]), "≥ 0.50"); // the first row sees one key, and does not count
  const aside = new Scale("own", 1, true);
  assert.ok(Math.abs(aside.top(all, 1) - 0.1) < 1e-6); // without the first key, which is left out
  assert.equal(aside.end(all, [1]), "≥ 0.10");
});

test("all layers of all kinds, all snapshots and the compared map share one scale", () => {
  const reading = (name, weight, kind = "cross") =>
    layer({
      name,
      kind,
      weights: [
        [
          [weight, 1 - weight, 0],
          [0, 0, 0],
        ],
      ],
    });
  const first = reading("a", 0.75);
  const shown = map([first, reading("b", 0.8), reading("c", 0.6, "encoder")]);
  const weights = new Weights();
  const of = (source) => weights.of(source, START);
  const largest = (data, beside = null) => layerScale(data, shown, first, START, of, beside).largest;
  const tops = shown.layers.map((one) => layerScale({}, shown, one, START, of, null).top(of(one), 0));
  assert.deepEqual(tops, Array(3).fill(Math.fround(0.8))); // a weight of the encoder is as dark as one of a cross layer
  assert.ok(Math.abs(largest({}) - 0.8) < 1e-6);
  const playback = { frames: [map([reading("a", 0.9)]), map([])] };
  assert.ok(Math.abs(largest({ playback }) - 0.9) < 1e-6);
  assert.equal(largest({}, new Matrix([Float32Array.of(0.95)], ["q"], ["k"], null)), Math.fround(0.95));
});

test("columns that take a quarter of the weight are sinks", () => {
  assert.deepEqual([sinks(all, 0), sinks(all, 1)], [[], [0]]);
});

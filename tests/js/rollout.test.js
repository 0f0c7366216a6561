import assert from "node:assert/strict";
import { test } from "node:test";
import { accumulate, hasRollout, Matrix, rollout } from "../../src/regard/viz/js/matrix.js";
import { layer, map } from "./examples.js";

const size = 3;
const labels = ["a", "b", "c"];

/** Rows that sum to 1, drawn by a number. */
function drawn(seed, rows = size, columns = size) {
  const weights = Float32Array.from({ length: rows * columns }, (_, index) => 1 + Math.sin(seed + 7 * index) / 2);
  for (let row = 0; row < rows; row += 1) {
    const part = weights.subarray(row * columns, (row + 1) * columns);
    const total = part.reduce((sum, weight) => sum + weight, 0);
    part.forEach((weight, index) => (part[index] = weight / total));
  }
  return weights;
}

const matrixOf = (...slices) => new Matrix(slices, labels, labels, null);
const layers = [matrixOf(drawn(1), drawn(2)), matrixOf(drawn(3), drawn(4))];

/** The same as in the paper, with plain loops. */
function byHand(all) {
  let before = labels.map((_, row) => labels.map((__, column) => Number(row === column)));
  for (const { slices } of all) {
    const step = labels.map((_, row) =>
      labels.map((__, column) => {
        const mean = (slices[0][row * size + column] + slices[1][row * size + column]) / 2;
        return 0.5 * mean + 0.5 * Number(row === column);
      }),
    );
    before = step.map((row) =>
      labels.map((_, to) => row.reduce((sum, weight, at) => sum + weight * before[at][to], 0)),
    );
  }
  return before.flat();
}

const close = (first, second) => first.forEach((value, index) => assert.ok(Math.abs(value - second[index]) < 1e-6));

/** Whether the weights of every row sum to 1. @param {Float32Array} slice @param {number} columns */
const sumToOne = (slice, columns) =>
  slice.every(
    (_, index) =>
      index % columns ||
      Math.abs(slice.subarray(index, index + columns).reduce((sum, weight) => sum + weight) - 1) < 0.01,
  );

test("rollout is the product of the layers, with half of each the residual", () => {
  const [first, second] = accumulate(layers);
  close(first, byHand(layers.slice(0, 1)));
  close(second, byHand(layers));
  assert.ok(sumToOne(second, size));
});

test("where outputs look at inputs, through the last states of these; a place to rest on stays", () => {
  const keys = [...labels, "rest"];
  const cross = new Matrix([drawn(5, 2, 4), drawn(6, 2, 4)], ["p", "q"], keys, null);
  const encoders = ["encoder.0", "encoder.1"].map((name) => layer({ name, kind: "encoder" }));
  const reading = layer({ name: "cross", kind: "cross" });
  const shown = (source) => (source === reading ? cross : layers[encoders.indexOf(source)]);
  const rolled = rollout(map([...encoders, reading]), reading, shown);
  const states = byHand(layers);
  const mean = cross.slices[0].map((weight, index) => (weight + cross.slices[1][index]) / 2);
  close(
    rolled.slices[0],
    [0, 1].flatMap((row) => [
      ...labels.map((_, to) => labels.reduce((sum, __, at) => sum + mean[row * 4 + at] * states[at * size + to], 0)),
      mean[row * 4 + 3],
    ]),
  );
  assert.ok(sumToOne(rolled.slices[0], keys.length));
});

test("there is something to follow where there are several layers", () => {
  const single = layer({ kind: "encoder" });
  assert.ok(
    !hasRollout(map([single]), "encoder") &&
      hasRollout(map([single, single]), "encoder") &&
      hasRollout(map([single]), "cross"),
  );
  assert.ok(!hasRollout(map([layer()]), "cross"));
});

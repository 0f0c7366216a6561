import assert from "node:assert/strict";
import { test } from "node:test";
import { setWeight, updateInterventions } from "../../src/regard/viz/js/interventions.js";
import { frozen } from "./examples.js";

const off = frozen({ layer: "cross", heads: [0], to: "off" });
const uniform = frozen({ layer: "cross", heads: [0], to: "uniform" });
const second = frozen({ layer: "cross", heads: [1], to: "off" });
const elsewhere = frozen({ layer: "encoder.0", heads: [0], to: "off" });
const weight = (to, key = 2) => frozen({ layer: "cross", heads: [0], to, query: 1, key });

test("one more", () => {
  assert.deepEqual(updateInterventions(frozen([]), off, false), [off]);
  assert.deepEqual(updateInterventions(frozen([second, elsewhere]), off, false), [second, elsewhere, off]);
});

test("in place of an older one of the same head", () => {
  assert.deepEqual(updateInterventions(frozen([off, second]), uniform, false), [second, uniform]);
});

test("in place of an older one of the same weight", () => {
  assert.deepEqual(updateInterventions(frozen([weight(0.5), weight(0.5, 3)]), weight(0.25), false), [
    weight(0.5, 3),
    weight(0.25),
  ]);
});

test("a head and one of its weights are two things", () => {
  assert.deepEqual(updateInterventions(frozen([off]), weight(1), false), [off, weight(1)]);
  assert.deepEqual(updateInterventions(frozen([weight(0)]), off, false), [weight(0), off]);
});

test("taken away", () => {
  assert.deepEqual(updateInterventions(frozen([off, second]), off, true), [second]);
});

test("a row with one weight set: the others keep their proportions", () => {
  const row = Float32Array.of(0.5, 0.3, 0.2);
  const near = [0.25, 0.45, 0.3];
  for (const [index, value] of setWeight(row, 0, 0.25)?.entries() ?? [])
    assert.ok(Math.abs(value - near[index]) < 1e-6);
  assert.equal(setWeight(row, 0, 1)?.[1], 0);
  assert.equal(setWeight(Float32Array.of(1, 0, 0), 0, 0.5), null);
});

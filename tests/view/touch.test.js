import assert from "node:assert/strict";
import { test } from "node:test";
import { touched } from "../../src/regard/inspection/view/touch.js";
import { frozen } from "./examples.js";

const off = frozen({ layer: "cross", heads: [0], to: "off" });
const uniform = frozen({ layer: "cross", heads: [0], to: "uniform" });
const other = frozen({ layer: "cross", heads: [1], to: "off" });
const elsewhere = frozen({ layer: "encoder.0", heads: [0], to: "off" });
const weight = (to, key = 2) => frozen({ layer: "cross", heads: [0], to, query: 1, key });

test("one more", () => {
  assert.deepEqual(touched(frozen([]), off, false), [off]);
  assert.deepEqual(touched(frozen([other, elsewhere]), off, false), [other, elsewhere, off]);
});

test("in place of an older one of the same head", () => {
  assert.deepEqual(touched(frozen([off, other]), uniform, false), [other, uniform]);
});

test("in place of an older one of the same weight", () => {
  assert.deepEqual(touched(frozen([weight(0.5), weight(0.5, 3)]), weight(0.25), false), [
    weight(0.5, 3),
    weight(0.25),
  ]);
});

test("a head and one of its weights are two things", () => {
  assert.deepEqual(touched(frozen([off]), weight(1), false), [off, weight(1)]);
  assert.deepEqual(touched(frozen([weight(0)]), off, false), [weight(0), off]);
});

test("taken away", () => {
  assert.deepEqual(touched(frozen([off, other]), off, true), [other]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { around, percent, shorten, signed } from "../../src/regard/inspection/view/labels.js";

test("numbers", () => {
  assert.equal(percent(0.1234), "12.3%");
  assert.equal(signed(0.5), "+0.500");
  assert.equal(signed(-0.0625), "−0.063");
});

test("a label is cut where it is too long", () => {
  assert.equal(shorten("attention", 9), "attention");
  assert.equal(shorten("attention", 4), "att…");
  assert.equal(shorten("attention", -3), "a…");
});

test("those around one, as many as there are", () => {
  assert.deepEqual(around(3, 1, 5), [0, 1, 2]);
  assert.deepEqual(around(10, 0, 4), [0, 1, 2, 3]);
  assert.deepEqual(around(10, 5, 4), [3, 4, 5, 6]);
  assert.deepEqual(around(10, 9, 4), [6, 7, 8, 9]);
  assert.equal(around(1000, 500).length, 160);
});

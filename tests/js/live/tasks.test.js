import assert from "node:assert/strict";
import test from "node:test";

import { knownPair, readLetters, relevantSteps, trueCounts } from "../../../src/regard/viz/js/live/tasks.js";

const difference = {
  name: "difference",
  vocabulary: " ABC",
  signals: 0,
  max_len: 5,
  outputs: 4,
  classes: 6,
  accepts: "1 to 5 letters: '_' (null), A, B, C",
};

test("letters, nulls and small letters", () => {
  assert.deepEqual(readLetters(difference, "ab_ C"), [1, 2, 0, 0, 3]);
  assert.throws(() => readLetters(difference, "ABX"), /letter 'X' at step 2 is not in the vocabulary: use '_' /);
  assert.throws(() => readLetters(difference, "AAAAAA"), /has 6 steps: difference takes 1 to 5 letters/);
});

test("counts and what they depend on", () => {
  assert.deepEqual(trueCounts(difference, [1, 1, 2, 0, 3]), [2, 1, 1, 1]);
  assert.deepEqual(relevantSteps(difference, [1, 2, 0])[3], [true, true, false]);
  const signal = { ...difference, name: "signal", vocabulary: "ABC", signals: 1, outputs: 1 };
  assert.deepEqual(trueCounts(signal, [1, 1, 0, 1]), [2]);
});

test("pairs that a page knows", () => {
  const task = { name: "reverse", source: ["", "<s>", "</s>", "?", "A", "B"], target: [], most_source: 4 };
  assert.deepEqual(knownPair(task, "AB", []), { source: "AB", target: "BA", alignment: [[1], [0]] });
  assert.equal(knownPair(task, "AX", []), null);
  assert.equal(knownPair({ ...task, name: "dates" }, "AB", []), null);
});

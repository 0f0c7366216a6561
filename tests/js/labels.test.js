import assert from "node:assert/strict";
import { test } from "node:test";
import { fitLabel, isolate, revealHidden, percent, signedNumber, tokenLabel } from "../../src/regard/viz/js/labels.js";

test("numbers", () => {
  assert.equal(percent(0.1234), "12.3%");
  assert.equal(signedNumber(0.5), "+0.500");
  assert.equal(signedNumber(-0.0625), "−0.063");
});

const letters = (text) => [...text].length; // as if all were equally wide

test("a label is cut where there is no room", () => {
  assert.equal(fitLabel("attention", 9, letters), "attention");
  assert.equal(fitLabel("attention", 4, letters), "at…n");
  assert.equal(fitLabel("attention", -3, letters), "a…");
  assert.equal(fitLabel("", 0, letters), "");
});

test("by its width, whatever its letters, and never within one", () => {
  const wide = (text) => [...text].reduce((sum, character) => sum + (character > "\u3000" ? 2 : 1), 0);
  assert.equal(fitLabel("注意機構", 8, wide), "注意機構");
  assert.equal(fitLabel("注意機構", 7, wide), "注意…構");
  assert.equal(fitLabel("😀😀😀😀", 3, letters), "😀…😀");
});

test("every token is seen", () => {
  assert.equal(tokenLabel(""), "∅");
  assert.equal(tokenLabel("\t"), "⇥");
  assert.equal(tokenLabel("a\nb"), "a↵b");
  assert.equal(tokenLabel("▁two"), "␣two"); // the sign of SentencePiece looks like a bar
  assert.equal(tokenLabel(" "), "␣");
  assert.equal(tokenLabel(" the "), "␣the␣");
  assert.equal(tokenLabel("two words"), "two words");
  assert.equal(tokenLabel("\u200b"), "[U+200B]");
  assert.equal(tokenLabel("\u200d"), "[U+200D]");
  assert.equal(tokenLabel("\ufe0f"), "◌\ufe0f");
  assert.equal(tokenLabel("\u0000x"), "[U+0000]x");
});

test("no token turns the page around", () => {
  assert.equal(tokenLabel("a\u202eb"), "a[U+202E]b");
  assert.equal(revealHidden("line\nline\u2067"), "line\nline[U+2067]");
  assert.equal(isolate("שלום"), "\u2068שלום\u2069");
  assert.equal(isolate("hello"), "hello");
});

test("what joins letters stays between them", () => {
  assert.equal(tokenLabel("👩\u200d🚀"), "👩\u200d🚀");
  assert.equal(tokenLabel("می\u200cخواهم"), "می\u200cخواهم");
});

test("a share that is not finite", () => {
  assert.deepEqual([0.125, NaN, Infinity].map(percent), ["12.5%", "not finite", "not finite"]);
  assert.equal(percent(/** @type {any} */ (null)), "not finite");
});

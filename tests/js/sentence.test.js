import assert from "node:assert/strict";
import { test } from "node:test";
import { Matrix } from "../../src/regard/viz/js/matrix.js";
import { currentHead, sentence } from "../../src/regard/viz/js/sentence.js";
import { axisTitles, headImportance, importanceSentence, shortImportance } from "../../src/regard/viz/js/labels.js";
import { START } from "../../src/regard/viz/js/state.js";
import { layer } from "./examples.js";

const KEYS = ["A", "B", "C", "B"];

function said(
  row,
  {
    keys = KEYS,
    relevant = null,
    query = "count B",
    prediction = [1],
    kind = "cross",
    heads = 2,
    written = false,
    interventions = [],
  } = {},
) {
  const slices = Array.from({ length: heads }, () => Float32Array.from(row));
  const matrix = new Matrix(slices, [query], keys, relevant);
  return sentence(
    { map: { prediction, layers: [], interventions }, layer: { name: "cross", kind, written }, matrix },
    heads - 1,
    0,
  );
}

test("letters of one kind", () => {
  assert.equal(said([0.06, 0.44, 0.06, 0.44]), "To count B, head 1 attends to the two Bs, 44% each.");
  assert.equal(said([0.1, 0.5, 0.1, 0.3]), "To count B, head 1 attends to the two Bs, 30 to 50% each.");
  const keys = ["B", "B", "C", "B"];
  assert.equal(said([0.5, 0.5, 0, 0], { keys }), "To count B, head 1 attends to two of the three Bs, 50% each.");
});

test("one, two or three inputs by name, more by number", () => {
  assert.equal(said([0.04, 0.9, 0.03, 0.03]), "To count B, head 1 attends to B (step 1, 90%).");
  assert.equal(said([0.6, 0.4, 0, 0]), "To count B, head 1 attends to A (step 0, 60%) and B (step 1, 40%).");
  const row = [0.3, 0.2, 0.2, 0.2, 0.05, 0.05];
  const keys = ["A", "B", "C", "D", "E", "F"];
  const expected = "To count B, head 1 attends to four of 6 inputs, mostly A (step 0), with 90% in all.";
  assert.equal(said(row, { keys }), expected);
});

test("nothing in particular, and nothing at all", () => {
  assert.equal(said([0.25, 0.26, 0.24, 0.25]), "To count B, head 1 attends to all 4 inputs about alike, 26% at most.");
  assert.equal(said([0, 0, 0, 0]), "To count B, head 1 attends to nothing.");
  const off = { interventions: ["cross: head 1 off"] };
  assert.equal(said([0, 0, 0, 0], off), "Head 1 is switched off.");
  const keys = Array.from({ length: 300 }, (_, key) => `t${key}`);
  const even = keys.map(() => 1 / 300);
  assert.equal(said(even, { keys }), "To count B, head 1 attends to all 300 inputs about alike, 0.3% at most.");
  const most = even.map((weight, key) => (key ? weight * (key % 2 ? 1.8 : 1) : 0));
  assert.match(said(most, { keys }), /attends to 299 of 300 inputs about alike, 1% at most/);
});

test("what the output depends on, beside what would be there anyway", () => {
  const relevant = [
    [0, 1],
    [0, 3],
    [1, 0],
  ];
  assert.equal(
    said([0.06, 0.44, 0.06, 0.44], { relevant }),
    "To count B, head 1 attends to the two Bs, 44% each; 88% of its weight is on the inputs that this output depends on " +
      "(uniform attention would have 50%).",
  );
});

test("what the row is for", () => {
  const row = [0.04, 0.9, 0.03, 0.03];
  const text = { prediction: "dog", query: "dog", keys: ["der", "Hund", ".", "B"], written: true };
  assert.equal(said(row, text), "To write “dog”, head 1 attends to “Hund” (step 1, 90%).");
  const pieces = { ...text, query: "␣dog", keys: ["␣der", "␣", "Hund", "."] };
  assert.equal(said(row, pieces), "To write “dog”, head 1 attends to “␣” (step 1, 90%).");
  const own = { ...text, kind: "decoder", query: "dog" };
  assert.equal(said(row, own), "To write “dog”, head 1 attends to “Hund” (step 1, 90%).");
  assert.equal(said(row, { query: "rest" }), "For rest, head 1 attends to B (step 1, 90%).");
  assert.equal(said(row, { kind: "encoder", query: "A" }), "At “A” (step 0), head 1 attends to B (step 1, 90%).");
  assert.equal(said(row, { heads: 1 }), "To count B, attention attends to B (step 1, 90%).");
});

test("only what is written is said to be written", () => {
  const row = [0.04, 0.9, 0.03, 0.03];
  const prompt = { prediction: " ran", query: "cat", keys: ["the", "cat", "<s>", "B"] };
  for (const kind of ["cross", "decoder"])
    assert.equal(said(row, { ...prompt, kind }), "At “cat” (step 0), head 1 attends to “cat” (step 1, 90%).");
  const even = [0.26, 0.25, 0.25, 0.24];
  assert.match(said(even, { ...prompt, kind: "decoder" }), /attends to all 4 tokens about alike/);
  assert.match(said(even, { ...prompt, kind: "decoder", written: true }), /attends to all 4 outputs about alike/);
});

test("a prompt is of tokens, and what is written of outputs", () => {
  const layers = [layer({ kind: "encoder" }), layer({ written: true })];
  const [tokens, outputs] = [
    ["tokens (queries)", "tokens (keys)"],
    ["outputs (queries)", "outputs (keys)"],
  ];
  for (const prediction of [null, "ran"]) {
    for (const kind of ["encoder", "decoder"])
      assert.deepEqual(axisTitles({ map: { prediction, layers: [] }, layer: layer({ kind }) }), tokens);
  }
  const written = { map: { prediction: "ran", layers }, layer: layer({ kind: "decoder", written: true }) };
  assert.deepEqual(axisTitles(written), outputs);
  assert.deepEqual(axisTitles({ map: { prediction: [1], layers: [] }, layer: layer({ kind: "decoder" }) }), outputs);
  const source = axisTitles({ map: { prediction: "ran", layers }, layer: layer({ kind: "encoder" }) });
  assert.deepEqual(source, ["inputs (queries)", "inputs (keys)"]);
});

test("a head that is left out is not the one that the sentence is of", () => {
  const slices = [Float32Array.of(0.9, 0.1), Float32Array.of(0.2, 0.8), Float32Array.of(0.6, 0.4)];
  const matrix = new Matrix(slices, ["p"], ["a", "b"], null);
  const of = (state) => currentHead({ data: {}, layer: { name: "cross" }, matrix, state: { ...START, ...state } });
  assert.deepEqual([of({}), of({ off: "0" }), of({ off: "0,1" })], [0, 1, 2]);
  assert.equal(of({ off: "0", key: 1, focus: 0 }), 1);
  assert.equal(of({ key: 1, focus: 0 }), 0);
});

test("the head that says most, unless one is chosen", () => {
  const slices = [Float32Array.of(0.9, 0.1), Float32Array.of(0.2, 0.8)];
  const scene = { data: {}, layer: { name: "cross" }, state: START };
  const matrix = (relevant) => new Matrix(slices, ["p"], ["a", "b"], relevant);
  assert.equal(currentHead({ ...scene, matrix: matrix(null) }), 0);
  assert.equal(currentHead({ ...scene, matrix: matrix([[0, 1]]) }), 1);
  assert.equal(currentHead({ ...scene, matrix: matrix([[0, 1]]), state: { ...START, head: 0 } }), 0);
  assert.equal(currentHead({ ...scene, matrix: matrix([[0, 1]]), state: { ...START, key: 0, focus: 0 } }), 0);
});

test("of heads whose worth is known, one that matters", () => {
  const slices = [Float32Array.of(0.6, 0.4), Float32Array.of(0.9, 0.1), Float32Array.of(0.2, 0.8)];
  const matrix = new Matrix(slices, ["p"], ["a", "b"], null);
  const chosen = (all) => {
    const importance = { cross: all.map((added) => ({ added, low: null, high: null })) };
    return currentHead({ data: { importance }, layer: { name: "cross" }, matrix, state: START });
  };
  assert.equal(chosen([0.5, 0.01, 0.1]), 0); // what says most hardly matters
  assert.equal(chosen([0.4, 0.01, 0.5]), 2); // of two that matter, what says most
  assert.equal(chosen([-0.1, -0.2, -0.3]), 1); // none does: as if nothing were known
});

test("what a head is worth, and how sure that is", () => {
  const data = { importance: { cross: [{ added: 0.5, low: -0.1, high: 1 }] } };
  const worth = headImportance(data, "cross", 0);
  assert.equal(shortImportance(worth), "(+0.500)");
  assert.match(importanceSentence(worth), /by \+0\.500 \(head importance, 95% interval −0\.100 to \+1\.000\)/);
  assert.equal(shortImportance({ added: 0.5, low: 0.1, high: 1 }), "+0.500");
  assert.equal(shortImportance({ added: 0.5, low: null, high: null }), "+0.500");
  assert.equal(headImportance(data, "cross", 1), undefined);
  assert.equal(headImportance(data, "cross", 0, ["the mean"]), undefined);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { Matrix } from "../../src/regard/viz/js/matrix.js";
import { rowFacts, sentence } from "../../src/regard/viz/js/sentence.js";
import {
  axisTitles,
  headImportance,
  importanceSentence,
  plainLabels,
  shortImportance,
} from "../../src/regard/viz/js/labels.js";
import { START } from "../../src/regard/viz/js/state.js";
import { layer } from "./examples.js";

const KEYS = ["A", "B", "C", "B"];

function scene(
  row,
  { keys = KEYS, relevant = null, query = "count B", kind = "cross", key = null, interventions = [] } = {},
) {
  const shown = layer({ kind });
  const matrix = new Matrix([Float32Array.from(row), Float32Array.from(row)], [query], keys, relevant);
  const map = { prediction: [1], layers: [shown], interventions };
  return { map, layer: shown, matrix, head: 1, state: { ...START, head: 1, key }, derived: null };
}

const said = (row, fields) => sentence(scene(row, fields)).replace("Layer 0, head 1: “count B” attends to ", "");

test("letters of one kind", () => {
  assert.equal(
    sentence(scene([0.06, 0.44, 0.06, 0.44])),
    "Layer 0, head 1: “count B” attends to the two Bs, 44% each.",
  );
  assert.equal(said([0.1, 0.5, 0.1, 0.3]), "the two Bs, 30 to 50% each.");
  assert.equal(said([0.5, 0.5, 0, 0], { keys: ["B", "B", "C", "B"] }), "two of the three Bs, 50% each.");
});

test("one, two or three inputs by name, more by number", () => {
  assert.equal(said([0.04, 0.9, 0.03, 0.03]), "B (90%).");
  assert.equal(said([0.6, 0.4, 0, 0]), "A (60%) and B (40%).");
  const keys = ["A", "B", "C", "D", "E", "F"];
  assert.equal(said([0.3, 0.2, 0.2, 0.2, 0.05, 0.05], { keys }), "four of 6 inputs with 90% in all, most on A.");
});

test("nothing in particular, and nothing at all", () => {
  assert.equal(said([0.25, 0.26, 0.24, 0.25]), "all 4 inputs about alike, 26% at most.");
  assert.equal(said([0, 0, 0, 0]), "nothing.");
  assert.match(said([0, 0, 0, 0], { interventions: ["cross: head 1 off"] }), /^Layer 0, head 1 is switched off/);
  const keys = Array.from({ length: 300 }, (_, key) => `t${key}`);
  const even = keys.map(() => 1 / 300);
  assert.equal(said(even, { keys }), "all 300 inputs about alike, 0.3% at most.");
  const most = even.map((weight, key) => (key ? weight * (key % 2 ? 1.8 : 1) : 0));
  assert.match(said(most, { keys }), /^299 of 300 inputs about alike, 1% at most/);
});

test("a selected weight, in the words of the picture", () => {
  const fields = { query: "it", keys: ["the", "dog", "was", "tired"], key: 3, kind: "encoder" };
  assert.equal(sentence(scene([0.2, 0.1, 0.1, 0.6], fields)), "Layer 0, head 1: “it” attends to “tired” (60%).");
});

test("what the output depends on, beside what would be there anyway", () => {
  const relevant = [
    [0, 1],
    [0, 3],
    [1, 0],
  ];
  const [fact] = rowFacts(scene([0.06, 0.44, 0.06, 0.44], { relevant }));
  const expected = "88% of its weight is on the inputs that this output depends on (uniform attention would have 50%).";
  assert.equal(fact, expected);
});

test("words are written without the sign that begins them; what continues a word begins with a dot", () => {
  assert.deepEqual(plainLabels(["[CLS]", "␣go", "es", "␣", "."], [[0], [1, 2], [3], [4]]), [
    "[CLS]",
    "go",
    "·es",
    "␣",
    ".",
  ]);
  assert.deepEqual(plainLabels(["␣a", "b"], null), ["a", "b"]);
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

import assert from "node:assert/strict";
import { test } from "node:test";
import { formatCsv } from "../../src/regard/viz/js/save.js";
import { palette } from "../../src/regard/viz/js/colours.js";
import { makeScene } from "../../src/regard/viz/js/scene.js";
import { START } from "../../src/regard/viz/js/state.js";
import { Weights } from "../../src/regard/viz/js/matrix.js";
import { layer, map } from "./examples.js";

const WEIGHTS = [[[0.5, 0.25, 0.25]], [[0, 1, 0]]];

function saved(state, changed = {}, keys = ["a", 'say "a", b', "=1+1"], more = {}) {
  const shown = layer({ queries: ["q"], keys, weights: WEIGHTS });
  const data = { maps: [map([shown], changed)], ...more };
  return formatCsv(
    makeScene(data, data.maps[0], shown, { ...START, head: 0, ...state }, new Weights()),
    palette(false),
  ).split("\r\n");
}

const facts = (lines) =>
  Object.fromEntries(lines.flatMap((line) => [/^# (.*?): (.*)/.exec(line)?.slice(1)].filter(Boolean)));
const rows = (lines) => lines.filter((line) => line[0] !== "#");

test("a line for each weight of the heads that are shown", () => {
  assert.deepEqual(rows(saved({ all: false })), [
    "layer,head,query_step,query,key_step,key,weight",
    "cross,0,0,q,0,a,0.5",
    'cross,0,0,q,1,"say ""a"", b",0.25',
    "cross,0,0,q,2,'=1+1,0.25",
    "",
  ]);
  assert.equal(rows(saved({})).length, 8);
  assert.equal(rows(saved({}, {}, ["#", "C#", "a"]))[2], 'cross,0,0,q,1,"C#",0.25');
});

test("it says what was done, of which heads it is, what was answered, and what colours stand for", () => {
  const done = { interventions: ["cross: head 1 off"], original_prediction: [2], model: "models/test" };
  const lines = facts(saved({}, done));
  assert.deepEqual(
    [lines.model, lines.layer, lines.heads, lines.interventions],
    ["models/test", "cross", "head 0, head 1", "cross: head 1 off"],
  );
  assert.equal(lines.prediction, "1");
  assert.equal(lines["prediction without interventions"], "2");
  assert.equal(lines.scale, "0 to 1.00, all heads alike");
  const plain = facts(saved({ head: 1, all: false }));
  assert.deepEqual([plain.heads, plain.interventions], ["head 1", "none"]);
  assert.equal(plain["prediction without interventions"], undefined);
});

test("a line break in an input begins no line of the table", () => {
  assert.match(saved({}, { input: "a\nb,c" }).join("\r\n"), /# input: a b,c\r\n/);
});

test("of a difference, what has changed", () => {
  const original = map([layer({ queries: ["q"], keys: ["a", "b", "c"], weights: [[[0.75, 0.25, 0]], [[0, 1, 0]]] })]);
  const lines = saved({ all: false, change: true }, {}, ["a", "b", "c"], { original });
  assert.deepEqual(rows(lines).slice(0, 2), [
    "layer,head,query_step,query,key_step,key,change",
    "cross,0,0,q,0,a,-0.25",
  ]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { Matrix } from "../../src/regard/inspection/view/matrix.js";
import { csvOf } from "../../src/regard/inspection/view/csv.js";
import { START } from "../../src/regard/inspection/view/state.js";

const slices = [Float32Array.of(0.5, 0.25, 0.25), Float32Array.of(0, 1, 0)];

test("a line for each weight of the heads that are shown", () => {
  const matrix = new Matrix(slices, ["q"], ["a", 'say "a", b', "=1+1"], null);
  assert.equal(
    csvOf({ matrix, changes: null, state: { ...START, head: 0 } }),
    [
      "head,query_step,query,key_step,key,weight",
      "0,0,q,0,a,0.5",
      '0,0,q,1,"say ""a"", b",0.25',
      "0,0,q,2,'=1+1,0.25",
      "",
    ].join("\r\n"),
  );
  assert.equal(csvOf({ matrix, changes: null, state: START }).split("\r\n").length, 8);
});

test("of a difference, what has changed", () => {
  const matrix = new Matrix(slices, ["q"], ["a", "b", "c"], null);
  const found = csvOf({ matrix, changes: [Float32Array.of(-0.25, 0, 0.25)], state: { ...START, head: 0 } });
  assert.match(found, /key,change\r\n0,0,q,0,a,-0.25\r\n/);
});

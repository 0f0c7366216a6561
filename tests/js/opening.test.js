import assert from "node:assert/strict";
import { test } from "node:test";
import { Matrix, Weights } from "../../src/regard/viz/js/matrix.js";
import { drawsAll, fitState, openingRow, Selection, START } from "../../src/regard/viz/js/state.js";
import { chosenMeasure } from "../../src/regard/viz/js/measures.js";
import { layer, map } from "./examples.js";

const labels = ["[CLS]", "the", "animal", "it", "[SEP]"];

/** @param {number[][]} places the key of each query, for each head */
function pointing(places) {
  return places.map((keys) => keys.map((key, query) => labels.map((_, at) => (at === key ? 1 - 0.1 * query : 0))));
}

/** @param {number[][][]} layers places of the heads of each layer */
function opened(layers, state = {}, data = {}) {
  const all = layers.map((places, number) =>
    layer({ name: `layer.${number}`, kind: "encoder", queries: labels, keys: labels, weights: pointing(places) }),
  );
  return fitState({ ...START, ...state }, data, map(all), new Weights());
}

test("it opens on the head that attends to other tokens, in whatever layer, and on its clearest row", () => {
  const own = [0, 1, 2, 3, 4];
  const { layer: shown, state } = opened([
    [own, own],
    [own, [4, 1, 4, 2, 2]],
  ]);
  assert.deepEqual([shown.name, state.layer, state.head, state.query], ["layer.1", "layer.1", 1, 3]);
  const importance = { "layer.0": [{ added: 2 }, { added: 1 }], "layer.1": [{ added: 0 }, { added: 0 }] };
  assert.equal(
    opened(
      [
        [own, own],
        [own, [4, 1, 4, 2, 2]],
      ],
      {},
      { importance },
    ).layer.name,
    "layer.0",
  );
});

test("what is selected stays, and what there is no longer gives way", () => {
  const own = [0, 1, 2, 3, 4];
  const { state } = opened([[own, own]], { layer: "layer.0", head: 1, query: 2, key: 3 });
  assert.deepEqual([state.head, state.query, state.key], [1, 2, 3]);
  const other = opened([[own, own]], { layer: "gone", head: 7, query: 9, key: 9 }).state;
  assert.deepEqual([other.layer, other.head, other.query, other.key], ["layer.0", 0, 4, 4]);
  assert.equal(fitState(START, {}, map([]), new Weights()), null);
});

test("the first row is one with a large weight on another token that is not special", () => {
  const matrix = (places) =>
    new Matrix(
      pointing(places).map((head) => Float32Array.from(head.flat())),
      labels,
      labels,
      null,
    );
  assert.equal(openingRow(matrix([[4, 1, 4, 2, 2]]), 0, "encoder"), 3);
  assert.equal(openingRow(matrix([[4, 1, 2, 3, 4]]), 0, "encoder"), 0);
  assert.equal(openingRow(matrix([[0, 0, 1, 2, 3]]), 0, "decoder"), 4); // causal: the last row sees most
  assert.equal(openingRow(matrix([[4, 1, 4, 2, 2]]), 0, "cross"), 0);
});

test("it opens on a relation of two words rather than on a head that attends to the previous token", () => {
  const previous = [0, 0, 1, 2, 3];
  const { state } = opened([[previous], [[0, 2, 2, 1, 0]]]);
  assert.deepEqual([state.layer, state.head, state.query], ["layer.1", 0, 3]);
  assert.equal(opened([[previous], [[0, 1, 0, 0, 0]]]).state.layer, "layer.0"); // the other one has no relation
});

test("the head that it opens on is the first of the ranked ones, and its relation is in the list", () => {
  const all = [
    [0, 0, 1, 2, 3],
    [0, 2, 2, 1, 0],
    [4, 1, 4, 2, 2],
  ].map((places, number) =>
    layer({ name: `layer.${number}`, kind: "encoder", queries: labels, keys: labels, weights: pointing([places]) }),
  );
  const [weights, shown] = [new Weights(), map(all)];
  const { state } = fitState(START, {}, shown, weights);
  const measured = chosenMeasure({ data: {}, map: shown, state, shown: (each) => weights.of(each, START) });
  const found = all.map((each) => measured.of(each, 0));
  const best = found.reduce((first, each) => (each.value > first.value ? each : first));
  assert.deepEqual([measured.name, all[found.indexOf(best)].name, best.query], ["relation", state.layer, state.query]);
  assert.equal(best.text, "it → the");
});

test("few heads are drawn together, many one by one, unless it is chosen otherwise", () => {
  const drawn = (heads, state = {}) => drawsAll({ ...START, ...state }, heads);
  assert.deepEqual(
    [drawn(1), drawn(4), drawn(5), drawn(5, { all: true }), drawn(4, { all: false })],
    [false, true, false, true, false],
  );
  assert.equal(drawn(4, { beside: "original" }), false);
});

test("hovering adds to the selection for a moment, and a choice ends it", () => {
  const selection = new Selection({ ...START, query: 1, key: 2 });
  const told = [];
  selection.subscribe((chosen) => told.push(chosen));
  selection.point({ query: 3 });
  selection.point({ query: 3 });
  assert.deepEqual([selection.current.query, selection.current.key, selection.chosen.query], [3, 2, 1]);
  selection.choose({ ...selection.chosen, key: 0 });
  assert.deepEqual([selection.current.query, selection.current.key, told], [1, 0, [false, true]]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { Matrix } from "../../src/regard/viz/js/matrix.js";
import { chooseScale, Scale, sinks } from "../../src/regard/viz/js/scale.js";

const SIZE = 40;
const labels = Array.from({ length: SIZE }, (_, step) => `t${step}`);

/** A head whose rows are made of weights that `of` gives, normalised. */
function head(of, size = SIZE) {
  const slice = new Float32Array(size * size);
  for (let query = 0; query < size; query += 1) {
    const row = Array.from({ length: size }, (_, key) => of(query, key));
    const total = row.reduce((sum, weight) => sum + weight, 0);
    row.forEach((weight, key) => {
      slice[query * size + key] = weight / total;
    });
  }
  return slice;
}

const ripple = (query, key) => 1 + 0.1 * Math.sin(7 * query + 3 * key);
const uniform = head(ripple);
const previous = head((query, key) => (key === Math.max(query - 1, 0) ? 1 : 1e-4));
const sink = head((query, key) => (key === 0 ? 9 : 1e-3) + (key === query ? 0.2 : 0));
const all = new Matrix([uniform, previous, sink], labels, labels, null);

const shares = (name, index, aside = false) => {
  const { share } = new Scale(name, all.largest, aside).of(all, index);
  return all.slices[index].map((weight) => share(weight));
};

test("a uniform head is hardly seen on the shared scale, and dark everywhere on its own", () => {
  assert.ok(Math.max(...shares("shared", 0)) < 0.04);
  assert.ok(Math.min(...shares("own", 0)) > 0.75);
});

test("a uniform head looks uniform on every scale", () => {
  for (const name of ["shared", "own", "root", "rank"]) {
    const drawn = shares(name, 0);
    assert.ok(Math.max(...drawn) - Math.min(...drawn) < 0.25, name);
  }
});

test("a sink does not drown the rest of its head", () => {
  assert.deepEqual(sinks(all, 2), [0]);
  const diagonal = 5 * SIZE + 5;
  assert.ok(shares("shared", 2)[diagonal] < 0.03);
  assert.equal(shares("own", 2)[diagonal], 1);
  const { above } = new Scale("own", all.largest).of(all, 2);
  assert.equal(above, true); // the sink is darker than the scale says
});

test("square root and rank keep the order of weights", () => {
  for (const name of ["root", "rank"]) {
    const { share } = new Scale(name, 1).of(all, 1);
    assert.ok(share(0.5) < share(0.9999) && share(1e-4) <= share(0.5));
    assert.equal(share(0), 0);
    assert.ok(Number.isNaN(share(NaN)));
  }
});

test("the scale is shared where that shows the heads, and otherwise not", () => {
  const peaked = new Matrix([previous, previous], labels, labels, null);
  assert.equal(chooseScale([peaked], 1), "shared");
  assert.notEqual(chooseScale([all], all.largest), "shared");
});

test("snapshots and compared maps have the same scale", () => {
  const pale = new Matrix([uniform], labels, labels, null);
  const strong = new Matrix([previous], labels, labels, null);
  const together = new Scale("own", 1, false, () => [pale, strong]);
  assert.equal(together.of(pale, 0).top, together.of(strong, 0).top);
  assert.ok(new Scale("own", 1).of(pale, 0).top < 0.05);
});

test("of a causal head, the first rows do not count: they see little", () => {
  const causal = head((query, key) => (key <= query ? 1 : 0));
  const matrix = new Matrix([causal], labels, labels, null);
  const { top, above } = new Scale("own", 1).of(matrix, 0);
  assert.ok(Math.abs(top - 1 / 11) < 1e-6 && above); // row 10 of 40 is the first that counts
});

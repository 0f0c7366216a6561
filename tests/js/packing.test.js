import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { inflate } from "../../src/regard/viz/js/inflate.js";
import { mergeWords, readAnswer, unpack, unpackWeights } from "../../src/regard/viz/js/matrix.js";
import { layer } from "./examples.js";

test("weights as they are", () => {
  const matrix = unpack(layer());
  assert.deepEqual(matrix.slices, [Float32Array.of(0.5, 0.25, 0.25, 0, 0.25, 0.75)]);
  assert.equal(matrix.exact, true);
  assert.deepEqual([matrix.heads, matrix.rows, matrix.columns, matrix.largest], [1, 2, 3, 0.75]);
});

test("packed weights: low byte first, 65535 stands for the largest", async () => {
  // A fifth of 65535 is 13107, or 0x3333; 0x0001 and 0x0100 tell the bytes apart.
  const bytes = Uint8Array.of(0, 0, 0xff, 0xff, 0x33, 0x33, 1, 0, 0, 1, 0xcc, 0xcc, ...new Array(12).fill(0xff));
  const packed = deflateSync(bytes).toString("base64");
  const matrix = unpack(await unpackWeights(layer({ weights: { packed, largest: 0.5, levels: 65535, heads: 2 } })));
  const unit = 0.5 / 65535;
  assert.deepEqual(matrix.slices[0], Float32Array.of(0, 0.5, 0.1, unit, 256 * unit, 0.4));
  assert.deepEqual(matrix.slices[1], new Float32Array(6).fill(0.5));
  assert.equal(matrix.exact, false);
  assert.equal(matrix.at(0, 1, 2), Math.fround(0.4));
});

test("a binary answer, with a thumbnail in 8 bits of the root", async () => {
  // regard.server.app: the length of the text, the text, and the codes.
  const weights = { packed: [2, 6], largest: 0.5, levels: 254, heads: 1, side: 1 };
  const text = new TextEncoder().encode(JSON.stringify({ ...layer(), queries: ["a", "b"], keys: ["a", "b"], weights }));
  const codes = Uint8Array.of(9, 9, 0, 127, 254, 255);
  const body = new Uint8Array([...new Uint8Array(Uint32Array.of(text.length).buffer), ...text, ...codes]);
  const matrix = unpack(await readAnswer(body.buffer));
  assert.deepEqual(matrix.slices[0], Float32Array.of(0, 0.125, 0.5, NaN));
});

test("what Python packs", async () => {
  // regard.viz.page.pack(np.array([[[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]]], dtype=np.float32))
  const packed = "eJxjcPi/n4Hh/38GIAAAHm4D/Q==";
  const matrix = unpack(await unpackWeights(layer({ weights: { packed, largest: 1, levels: 65535, heads: 1 } })));
  const near = [0.25, 0.75, 0, 1, 0, 0];
  for (const [index, value] of matrix.slices[0].entries()) assert.ok(Math.abs(value - near[index]) < 8e-6);
});

test("what heads are called, between words as well", () => {
  assert.equal(unpack(layer()).name(0), "head 0");
  const matrix = unpack(layer({ names: ["mean of 3 heads"] }));
  const words = mergeWords(matrix, { query_words: null, key_words: [[0, 1], [2]] });
  assert.deepEqual([matrix.name(0), words.name(0)], ["mean of 3 heads", "mean of 3 heads"]);
});

test("weights that are not finite, packed and as they are", async () => {
  // 65534 stands for the largest, 65535 for what is not finite.
  const packed = deflateSync(Uint8Array.of(0, 0, 0xfe, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0)).toString("base64");
  const matrix = unpack(await unpackWeights(layer({ weights: { packed, largest: 0.5, levels: 65534, heads: 1 } })));
  assert.deepEqual(matrix.slices[0], Float32Array.of(0, 0.5, NaN, 0, 0, 0));
  const plain = unpack(
    layer({
      weights: /** @type {any} */ ([
        [
          [0.5, null, 0.5],
          [0, 1, 0],
        ],
      ]),
    }),
  );
  assert.deepEqual(plain.slices[0], Float32Array.of(0.5, NaN, 0.5, 0, 1, 0));
  assert.equal(plain.largest, 1);
});

test("damaged zlib data is refused", async () => {
  const text = new TextEncoder().encode("der alte Hund läuft ".repeat(4000));
  const whole = new Uint8Array(deflateSync(text));
  assert.deepEqual(await inflate(whole, text.length), text);
  await assert.rejects(inflate(whole.subarray(0, 40), text.length), /damaged/);
  await assert.rejects(inflate(whole, text.length - 5), /damaged/);
  await assert.rejects(inflate(whole, text.length + 5), /damaged/);
  await assert.rejects(inflate(new Uint8Array(0), 5), /damaged/);
});

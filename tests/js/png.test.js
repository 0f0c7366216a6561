import assert from "node:assert/strict";
import { test } from "node:test";
import { textChunk, addPngText } from "../../src/regard/viz/js/save.js";

test("facts are chunks of text behind the header", async () => {
  const png = new Blob([Uint8Array.from({ length: 50 }, (_, index) => index)]);
  const bytes = Buffer.from(await (await addPngText(png, [["input", "grün"]])).arrayBuffer());
  const chunk = Buffer.from(textChunk("input", "grün"));
  assert.deepEqual(bytes.subarray(33, 33 + chunk.length), chunk);
  assert.deepEqual([bytes[32], bytes[33 + chunk.length]], [32, 33]);
  assert.equal(chunk.readUInt32BE(0), chunk.length - 12);
  assert.equal(chunk.subarray(4).toString("utf8", 0, chunk.length - 8), "iTXtinput\0\0\0\0\0grün");
  assert.equal(chunk.readUInt32BE(chunk.length - 4), 4148829429);
});

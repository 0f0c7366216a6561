// Texts in a PNG file: `iTXt` chunks after its header (PNG specification, section 11.3.3).

/** @import { Fact } from "./metadata.js" */

const HEADER = 33; // bytes of the signature and of the first chunk
const CRC = Uint32Array.from({ length: 256 }, (_, number) => {
  let remainder = number;
  for (let bit = 0; bit < 8; bit += 1)
    remainder = remainder & 1 ? 0xedb88320 ^ (remainder >>> 1) : remainder >>> 1;
  return remainder;
});

/**
 * @param {Blob} png
 * @param {Fact[]} facts
 */
export async function addPngText(png, facts) {
  const bytes = await png.arrayBuffer();
  const chunks = facts.map(([name, text]) => textChunk(name, text));
  return new Blob([bytes.slice(0, HEADER), ...chunks, bytes.slice(HEADER)], { type: "image/png" });
}

/**
 * @param {string} name
 * @param {string} text
 */
export function textChunk(name, text) {
  const body = new TextEncoder().encode(`iTXt${name}\0\0\0\0\0${text}`); // not compressed, no language
  const chunk = new Uint8Array(body.length + 8);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, body.length - 4);
  chunk.set(body, 4);
  const crc = body.reduce((remainder, byte) => CRC[(remainder ^ byte) & 255] ^ (remainder >>> 8), 0xffffffff);
  view.setUint32(body.length + 4, crc ^ 0xffffffff);
  return chunk;
}

// Unpacks zlib data (RFC 1950), and bytes that a page holds as text.

const DAMAGED = "the data of this page is damaged";

/** @param {Uint8Array<ArrayBuffer>} input zlib data @param {number} [size] number of unpacked bytes, if it is known */
export async function inflate(input, size) {
  const stream = new Blob([input]).stream().pipeThrough(new DecompressionStream("deflate"));
  const output = new Uint8Array(
    await new Response(stream).arrayBuffer().catch(() => {
      throw new Error(DAMAGED);
    }),
  );
  if (size !== undefined && output.length !== size) throw new Error(DAMAGED);
  return output;
}

/**
 * The bytes of a text with 7 bits in each character. See `regard.runs.live_page`.
 * @param {string} text
 * @param {number} size number of bytes
 */
export function bytesOfText(text, size) {
  const bytes = new Uint8Array(size);
  let [held, count, end] = [0, 0, 0];
  for (let index = 0; index < text.length && end < size; index += 1) {
    held |= (text.charCodeAt(index) & 127) << count; // some characters are moved by 128
    count += 7;
    if (count < 8) continue;
    bytes[end] = held & 255;
    end += 1;
    held >>>= 8;
    count -= 8;
  }
  return bytes;
}

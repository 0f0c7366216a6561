// Unpacking of weights. `packed` is base64 of zlib of unsigned 16-bit little-endian numbers, by head and row;
// `levels` is the code of `largest`, and a larger code means that a weight is not finite.

import { inflate } from "./inflate.js";
import { tokenLabel } from "./labels.js";
import { Matrix } from "./matrix.js";

/** @import { LayerData, NumbersData, PackedWeights } from "./data.js" */

/**
 * The number of heads of a layer, without unpacking it.
 *
 * @param {Pick<LayerData, "weights">} layer
 */
export function headCount({ weights }) {
  return Array.isArray(weights) ? weights.length : weights.heads;
}

/**
 * The weights of a layer, ready to draw.
 *
 * @param {LayerData} layer
 */
export function unpack(layer) {
  const { weights, relevant, names } = layer;
  const [queries, keys] = [layer.queries.map(tokenLabel), layer.keys.map(tokenLabel)];
  if (Array.isArray(weights)) {
    const slices = weights.map((head) => Float32Array.from(head.flat(), (weight) => weight ?? NaN));
    return new Matrix(slices, queries, keys, relevant, true, names);
  }
  return new Matrix(unpackSlices(weights, queries.length * keys.length), queries, keys, relevant, false, names);
}

/**
 * @param {PackedWeights} weights
 * @param {number} size number of weights of a head
 */
function unpackSlices({ packed, largest, levels, heads }, size) {
  const whole = new DataView(inflate(decodeBytes(packed), 2 * heads * size).buffer);
  return Array.from({ length: heads }, (_, head) => {
    const slice = new Float32Array(size);
    for (let index = 0; index < size; index += 1) {
      const level = whole.getUint16(2 * (head * size + index), true);
      slice[index] = level > levels ? NaN : (level / levels) * largest;
    }
    return slice;
  });
}

/** @type {WeakMap<NumbersData, Float32Array>} */
const numbersKnown = new WeakMap();

/**
 * Numbers in single precision; unpacked once.
 *
 * @param {NumbersData} data
 */
export function unpackNumbers(data) {
  const known = numbersKnown.get(data);
  if (known) return known;
  const size = data.shape.reduce((product, length) => product * length, 1);
  const bytes = new DataView(inflate(decodeBytes(data.numbers), 4 * size).buffer);
  const numbers = Float32Array.from({ length: size }, (_, index) => bytes.getFloat32(4 * index, true));
  numbersKnown.set(data, numbers);
  return numbers;
}

/** @param {string} base64 */
function decodeBytes(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index += 1) bytes[index] = text.charCodeAt(index);
  return bytes;
}

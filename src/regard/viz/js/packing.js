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
  const slices = weights.side > 1 ? enlarge(weights, queries.length, keys.length) : null;
  const whole = slices ?? unpackSlices(weights, queries.length * keys.length);
  return new Matrix(whole, queries, keys, relevant, false, names);
}

/**
 * The weights of a thumbnail at full size: each is the maximum of its square, or 0 above the diagonal of a layer
 * in which steps see earlier ones only.
 *
 * @param {PackedWeights} weights
 * @param {number} rows
 * @param {number} columns
 */
function enlarge(weights, rows, columns) {
  const { side } = weights;
  const [high, wide] = [rows, columns].map((length) => Math.ceil(length / side));
  return unpackSlices(weights, high * wide).map((maxima) => {
    const later = (/** @type {number} */ index) => index % wide > Math.floor(index / wide);
    const causal = rows === columns && maxima.every((weight, index) => !weight || !later(index));
    const slice = new Float32Array(rows * columns);
    for (let row = 0; row < rows; row += 1) {
      const end = causal ? row + 1 : columns;
      const square = Math.floor(row / side) * wide;
      for (let column = 0; column < end; column += 1)
        slice[row * columns + column] = maxima[square + Math.floor(column / side)];
    }
    return slice;
  });
}

/**
 * @param {PackedWeights} weights
 * @param {number} size number of weights of a head
 */
function unpackSlices(weights, size) {
  const { largest, levels, heads } = weights;
  const bytes = unpackedBytes.get(weights);
  if (bytes?.length !== 2 * heads * size) throw new Error("the weights of this page are damaged");
  const whole = new DataView(bytes.buffer);
  return Array.from({ length: heads }, (_, head) => {
    const slice = new Float32Array(size);
    for (let index = 0; index < size; index += 1) {
      const level = whole.getUint16(2 * (head * size + index), true);
      slice[index] = level > levels ? NaN : (level / levels) * largest;
    }
    return slice;
  });
}

/** @type {WeakMap<object, Uint8Array<ArrayBuffer>>} bytes of packed weights */
const unpackedBytes = new WeakMap();

/**
 * Unpacks all weights in data, which is asynchronous in browsers, so that the view can draw them at once.
 *
 * @template Data
 * @param {Data} data
 */
export async function unpackWeights(data) {
  if (typeof data !== "object" || !data || (Array.isArray(data) && typeof data[0] !== "object")) return data;
  if ("packed" in data && typeof data.packed === "string")
    unpackedBytes.set(data, await inflate(decodeBytes(data.packed)));
  else await Promise.all(Object.values(data).map(unpackWeights));
  return data;
}

/** @type {WeakMap<NumbersData, Float32Array>} */
const numbersKnown = new WeakMap();

/**
 * Numbers in single precision; unpacked once.
 *
 * @param {NumbersData} data
 */
export async function unpackNumbers(data) {
  const known = numbersKnown.get(data);
  if (known) return known;
  const size = data.shape.reduce((product, length) => product * length, 1);
  const bytes = new DataView((await inflate(decodeBytes(data.numbers), 4 * size)).buffer);
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

// The weights of one layer.

import { cached, largestValue } from "./arithmetic.js";
import { headName, plainLabels, tokenLabel, WORD } from "./labels.js";
import { inflate } from "./inflate.js";

/** @import { LayerData, MapData, NumbersData, PackedWeights } from "./data.js" */

/** `slices[head]` is a Float32Array of rows (queries) times columns (keys). */
export class Matrix {
  /**
   * @param {Float32Array[]} slices
   * @param {string[]} queries labels of the rows
   * @param {string[]} keys labels of the columns
   * @param {number[][] | null} relevant pairs of a query and a key on which the output depends
   * @param {boolean} exact whether the weights are not rounded
   * @param {string[] | null} names names of the slices, if they are not consecutive heads
   */
  constructor(slices, queries, keys, relevant, exact = false, names = null) {
    this.slices = slices;
    this.queries = queries;
    this.keys = keys;
    this.relevant = relevant;
    this.exact = exact;
    this.names = names;
    this.heads = slices.length;
    this.rows = queries.length;
    this.columns = keys.length;
    this.largest = slices.reduce((largest, slice) => Math.max(largest, largestValue(slice)), 1e-9);
    /** What the strongest colour stands for: a first step that can look at itself alone would leave others pale. */
    this.scale = this.causal
      ? slices.reduce((largest, slice) => Math.max(largest, largestValue(slice.subarray(this.columns))), 1e-9)
      : this.largest;
  }

  /** Whether the first step sees itself alone, and the second one these two. */
  get causal() {
    const [first, second] = [0, 1];
    if (this.rows !== this.columns || this.rows < 2) return false;
    return this.slices.every(
      (slice) =>
        this.row(slice, first).every((weight, key) => key <= first || !weight) &&
        this.row(slice, second).every((weight, key) => key <= second || !weight),
    );
  }

  /** The same weights with other labels. @param {string[]} queries @param {string[]} keys @returns {Matrix} */
  labelled(queries, keys) {
    return Object.assign(Object.create(this), { queries, keys });
  }

  /** @param {number} head @param {number} query @param {number} key */
  at(head, query, key) {
    return this.slices[head][query * this.columns + key];
  }

  /** The weights of a query. @param {Float32Array} slice of a head @param {number} query */
  row(slice, query) {
    return slice.subarray(query * this.columns, (query + 1) * this.columns);
  }

  /** The key with the largest weight of a query. @param {number} head @param {number} query */
  strongest(head, query) {
    let best = 0;
    for (let key = 1; key < this.columns; key += 1) {
      if (this.at(head, query, key) > this.at(head, query, best)) best = key;
    }
    return best;
  }

  /** The name of a slice. @param {number} head */
  name(head) {
    return headName(this, head);
  }

  /** The largest weight of a head. @param {number} head */
  peakOf(head) {
    return cached(this, `largest ${head}`, () => largestValue(this.slices[head]));
  }
}

/** @param {Float32Array[]} slices */
function meanSlice(slices) {
  return slices[0].map((_, index) => slices.reduce((sum, slice) => sum + slice[index], 0) / slices.length);
}

// Weights at 1/2, 1/4, 1/8 of the resolution, for drawing more weights than pixels. Each value is the maximum of
// four, so that strong weights are not lost.

/** @typedef {{ values: Float32Array, rows: number, columns: number }} Level */

/** Levels of one head, made as they are asked for; `bySize`: the greatest whatever its sign. */
export class Pyramid {
  /** @param {Level} bottom @param {boolean} bySize */
  constructor(bottom, bySize = false) {
    this.levels = [bottom];
    this.bySize = bySize;
  }

  /** @param {number} number number of halvings */
  level(number) {
    while (this.levels.length <= number) {
      this.levels.push(halve(this.levels[this.levels.length - 1], this.bySize));
    }
    return this.levels[number];
  }
}

/** Half as many rows and columns. @param {Level} level @returns {Level} */
export function halve({ values, rows, columns }, bySize = false) {
  const high = Math.ceil(rows / 2);
  const wide = Math.ceil(columns / 2);
  const maxima = new Float32Array(high * wide);
  for (let row = 0; row < high; row += 1) {
    const upper = 2 * row * columns;
    const lower = Math.min(2 * row + 1, rows - 1) * columns;
    for (let column = 0; column < wide; column += 1) {
      const left = 2 * column;
      const right = Math.min(left + 1, columns - 1);
      const four = [values[upper + left], values[upper + right], values[lower + left], values[lower + right]];
      let best = four[0];
      for (const value of four) {
        if (Number.isNaN(value) || (bySize ? Math.abs(value) > Math.abs(best) : value > best)) best = value;
      }
      maxima[row * wide + column] = best;
    }
  }
  return { values: maxima, rows: high, columns: wide };
}

// Unpacking of weights. `packed` is base64 of zlib of unsigned 16-bit little-endian numbers, by head and row, or of
// 8-bit numbers of the root of the weight; `levels` is the code of `largest`, and a larger code means that a weight is
// not finite. In a binary answer, `packed` is the start and the end of these numbers.

/** The number of heads of a layer, without unpacking it. @param {Pick<LayerData, "weights">} layer */
export function headCount({ weights }) {
  return Array.isArray(weights) ? weights.length : weights.heads;
}

/** The weights of a layer, ready to draw. @param {LayerData} layer */
export function unpack(layer) {
  const { weights, relevant, names } = layer;
  const [queries, keys] = [layer.queries.map(tokenLabel), layer.keys.map(tokenLabel)];
  if (Array.isArray(weights)) {
    const slices = weights.map((head) => Float32Array.from(head.flat(), (weight) => weight ?? NaN));
    return new Matrix(slices, queries, keys, relevant, true, names);
  }
  const [rows, columns] = [queries.length, keys.length];
  const slices = weights.side > 1 ? enlarge(weights, rows, columns) : unpackSlices(weights, rows * columns);
  return new Matrix(slices, queries, keys, relevant, false, names);
}

/**
 * The weights of a thumbnail at full size: each is the maximum of its square, or 0 above the diagonal of a layer
 * in which steps see earlier ones only.
 * @param {PackedWeights} weights @param {number} rows @param {number} columns
 */
function enlarge(weights, rows, columns) {
  const [high, wide] = [rows, columns].map((length) => Math.ceil(length / weights.side));
  return unpackSlices(weights, high * wide).map((maxima) => {
    const causal = rows === columns && maxima.every((weight, at) => !weight || at % wide <= Math.floor(at / wide));
    const slice = new Float32Array(rows * columns);
    for (let row = 0; row < rows; row += 1) {
      const end = causal ? row + 1 : columns;
      const square = Math.floor(row / weights.side) * wide;
      for (let column = 0; column < end; column += 1)
        slice[row * columns + column] = maxima[square + Math.floor(column / weights.side)];
    }
    return slice;
  });
}

/** @param {PackedWeights} weights @param {number} size number of weights of a head */
function unpackSlices(weights, size) {
  const { largest, levels, heads } = weights;
  const bytes = unpackedBytes.get(weights);
  const width = levels > 255 ? 2 : 1;
  if (bytes?.length !== width * heads * size) throw new Error("the weights of this page are damaged");
  const codes = width === 2 ? new Uint16Array(bytes.slice().buffer) : bytes;
  return Array.from({ length: heads }, (_, head) => {
    const slice = new Float32Array(codes.subarray(head * size, (head + 1) * size));
    for (let index = 0; index < size; index += 1) {
      const share = slice[index] / levels;
      slice[index] = share > 1 ? NaN : (width === 2 ? share : share * share) * largest;
    }
    return slice;
  });
}

/** @type {WeakMap<object, Uint8Array<ArrayBuffer>>} bytes of packed weights */
const unpackedBytes = new WeakMap();

/**
 * Unpacks all weights in data, which is asynchronous in browsers, so that the view can draw them at once.
 * @template Data @param {Data} data @param {Uint8Array<ArrayBuffer>} [parts] the bytes after the text of an answer
 */
export async function unpackWeights(data, parts) {
  if (typeof data !== "object" || !data || (Array.isArray(data) && typeof data[0] !== "object")) return data;
  if ("packed" in data && typeof data.packed === "string")
    unpackedBytes.set(data, await inflate(decodeBytes(data.packed)));
  else if (parts && "packed" in data && Array.isArray(data.packed))
    unpackedBytes.set(data, parts.subarray(data.packed[0], data.packed[1]));
  else await Promise.all(Object.values(data).map((value) => unpackWeights(value, parts)));
  return data;
}

/** The content of a binary answer; see `regard.server.app`. @param {ArrayBuffer} body @returns {Promise<any>} */
export function readAnswer(body) {
  const size = new DataView(body).getUint32(0, true);
  const text = new TextDecoder().decode(new Uint8Array(body, 4, size));
  return unpackWeights(JSON.parse(text), new Uint8Array(body, 4 + size));
}

/** @type {WeakMap<NumbersData, Float32Array>} */
const numbersKnown = new WeakMap();

/** Numbers in single precision; unpacked once. @param {NumbersData} data */
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

// Attention between words instead of word pieces.

/** Whether labels of a layer are word pieces. @param {LayerData} layer */
export function hasWordPieces(layer) {
  return layer.query_words !== null || layer.key_words !== null;
}

/**
 * Merges pieces to words: a word receives the sum of its pieces' weights and gives the mean of their rows.
 * @param {Matrix} matrix @param {Pick<LayerData, "query_words" | "key_words">} pieces
 */
export function mergeWords(matrix, { query_words, key_words }) {
  const queries = query_words ?? singletons(matrix.queries);
  const keys = key_words ?? singletons(matrix.keys);
  const slices = matrix.slices.map((_, head) => mergedSlice(matrix, head, queries, keys));
  const queryOf = pieceWords(queries);
  const keyOf = pieceWords(keys);
  const relevant = matrix.relevant?.map(([query, key]) => [queryOf[query], keyOf[key]]) ?? null;
  const [down, across] = [joinLabels(queries, matrix.queries), joinLabels(keys, matrix.keys)];
  return new Matrix(slices, down, across, relevant, false, matrix.names);
}

/**
 * @param {Matrix} matrix @param {number} head
 * @param {number[][]} queries pieces of each word
 * @param {number[][]} keys
 */
function mergedSlice(matrix, head, queries, keys) {
  const slice = new Float32Array(queries.length * keys.length);
  queries.forEach((pieces, query) => {
    keys.forEach((others, key) => {
      let sum = 0;
      for (const piece of pieces) for (const entry of others) sum += matrix.at(head, piece, entry);
      slice[query * keys.length + key] = sum / pieces.length;
    });
  });
  return slice;
}

/** Each label as its own word. @param {string[]} labels */
function singletons(labels) {
  return labels.map((_, index) => [index]);
}

/** The word of each piece. @param {number[][]} words */
function pieceWords(words) {
  /** @type {number[]} */
  const indices = [];
  words.forEach((word, number) => {
    for (const piece of word) indices[piece] = number;
  });
  return indices;
}

/** @param {number[][]} words @param {string[]} labels of the pieces */
function joinLabels(words, labels) {
  return words.map((word) => {
    const text = word.map((index) => labels[index]).join("");
    return (text.startsWith(WORD) ? text.slice(1) : text) || WORD;
  });
}

// The weights of all displayed layers, unpacked once and cached separately, since the data is read-only.

/** @typedef {{ words?: boolean, spaces?: boolean }} Reading whether pieces are merged to words, and spaces are shown */

export class Weights {
  /** @param {LayerData} layer @param {Reading} reading @returns {Matrix} */
  of(layer, { words = false, spaces = false }) {
    const raw = cached(layer, "matrix", () => unpack(layer));
    if (words && hasWordPieces(layer)) return cached(layer, "words", () => mergeWords(raw, layer));
    if (spaces) return raw;
    return cached(layer, "plain", () => {
      const [queries, keys] = [plainLabels(raw.queries, layer.query_words), plainLabels(raw.keys, layer.key_words)];
      return raw.labelled(queries, keys);
    });
  }
}

// Rollout: the share of each input in each state, layer by layer (Abnar and Zuidema 2020, section 3).
//
//   A_l = ½ mean over heads of W_l + ½ I        the residual connection passes on half of each state
//   R_l = A_l R_(l-1),   R_0 = I
//
// If outputs attend to inputs, their weights refer to the last state of each input: mean over heads of W, times R of
// the encoder.

/** @typedef {Pick<Matrix, "rows" | "columns"> & { values: Float32Array }} Product */

/**
 * Whether there is a rollout: several layers of a kind, or layers before the one that reads the input. Not for the
 * decoder of an encoder-decoder: its states also depend on the weights of other layers.
 * @param {Pick<MapData, "layers">} map @param {LayerData["kind"]} kind
 */
export function hasRollout({ layers }, kind) {
  const same = layers.filter((layer) => layer.kind === kind).length;
  if (kind === "cross") return layers.some((layer) => layer.kind === "encoder");
  return same > 1 && (kind === "encoder" || !layers.some((layer) => layer.kind === "cross"));
}

/**
 * The rollout up to a layer, as a matrix with one head.
 * @param {MapData} map @param {LayerData} layer @param {(layer: LayerData) => Matrix} shown
 */
export function rollout(map, layer, shown) {
  return cached(shown(layer), "rollout", () => {
    const { queries, keys, relevant } = shown(layer);
    const number = map.layers.filter(({ kind }) => kind === layer.kind).indexOf(layer);
    if (layer.kind !== "cross") {
      const below = map.layers.filter(({ kind }) => kind === layer.kind).slice(0, number + 1);
      const slice = accumulate(below.map(shown))[number];
      return new Matrix([slice], queries, keys, relevant, false, [`after layer ${number}`]);
    }
    const encoder = accumulate(map.layers.filter(({ kind }) => kind === "encoder").map(shown)).at(-1);
    const mean = meanSlice(shown(layer).slices);
    const slice = encoder ? projectWeights(mean, encoder, keys.length) : mean;
    return new Matrix([slice], queries, keys, relevant, false, [`layer ${number}, through the encoder`]);
  });
}

/** R after each of some layers, from the first on. @param {Matrix[]} layers */
export function accumulate(layers) {
  /** @type {Float32Array[]} */
  const states = [];
  for (const { slices, columns: size } of layers) {
    const step = meanSlice(slices).map((weight, index) => weight / 2 + (index % (size + 1) === 0 ? 0.5 : 0));
    const before = states.at(-1);
    states.push(before ? matrixProduct(step, before, size) : step);
  }
  return states;
}

/**
 * Converts weights on states to weights on inputs; keys after the states (a rest position) stay.
 * @param {Float32Array} weights (rows, columns)
 * @param {Float32Array} states (size, size), where size is at most `columns`
 * @param {number} columns
 */
function projectWeights(weights, states, columns) {
  const size = Math.round(Math.sqrt(states.length));
  const whole = new Float32Array(columns * columns);
  for (let row = 0; row < columns; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const inside = row < size && column < size;
      whole[row * columns + column] = inside ? states[row * size + column] : Number(row === column);
    }
  }
  return matrixProduct(weights, whole, columns);
}

/** @param {Float32Array} left (any, size) @param {Float32Array} right (size, size) @param {number} size */
function matrixProduct(left, right, size) {
  const rows = left.length / size;
  const result = new Float32Array(left.length);
  for (let row = 0; row < rows; row += 1) {
    for (let middle = 0; middle < size; middle += 1) {
      const weight = left[row * size + middle];
      if (weight === 0) continue;
      for (let column = 0; column < size; column += 1) {
        result[row * size + column] += weight * right[middle * size + column];
      }
    }
  }
  return result;
}

// Arithmetic of PyTorch's layers on rows of numbers. Sums are in double precision, parameters in single.

import { bytesOfText, inflate } from "../inflate.js";

/** @typedef {{ numbers: Float32Array, shape: number[] }} Parameter */
/** @typedef {Float64Array[]} Rows a matrix by rows */
/** @typedef {"relu" | "gelu" | "swish"} Activation */

/** The parameters of a model by their names in PyTorch. */
export class Parameters {
  /** @param {Map<string, Parameter>} byName */
  constructor(byName) {
    this.byName = byName;
  }

  /** @param {string} name */
  find(name) {
    return this.byName.get(name);
  }

  /** @param {string} name */
  get(name) {
    const parameter = this.byName.get(name);
    if (!parameter) throw new Error(`this page lacks the parameter ${name}: write it again with regard show --live`);
    return parameter;
  }

  /** @param {string} name @returns {Rows} */
  rows(name) {
    const { numbers, shape } = this.get(name);
    const width = shape[shape.length - 1];
    return Array.from({ length: numbers.length / width }, (_, row) =>
      Float64Array.from(numbers.subarray(row * width, (row + 1) * width)),
    );
  }

  /** A linear layer, `x W^T + b`. @param {string} name @param {Rows} rows */
  linear(name, rows) {
    return this.affine(`${name}.weight`, `${name}.bias`, rows);
  }

  // A linear layer by the names of its weight and bias.
  /** @param {string} weight @param {string} bias @param {Rows} rows */
  affine(weight, bias, rows) {
    return product(rows, this.get(weight), this.find(bias)?.numbers);
  }

  /** Layer normalization (Ba et al. 2016). @param {string} name @param {Rows} rows @param {number} epsilon */
  norm(name, rows, epsilon) {
    const [gain, bias] = [this.get(`${name}.weight`).numbers, this.get(`${name}.bias`).numbers];
    return rows.map((row) => {
      const mean = sumOf(row) / row.length;
      const variance = row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length;
      const factor = 1 / Math.sqrt(variance + epsilon);
      return row.map((value, index) => (value - mean) * factor * gain[index] + bias[index]);
    });
  }
}

/**
 * `x W^T + b` of each row.
 * @param {Rows} rows
 * @param {Parameter} weight (outputs, inputs)
 * @param {Float32Array} [bias]
 */
export function product(rows, { numbers, shape: [outputs, inputs] }, bias) {
  return rows.map((row) => {
    const result = new Float64Array(outputs);
    for (let output = 0; output < outputs; output += 1) {
      let sum = bias ? bias[output] : 0;
      const begin = output * inputs;
      for (let input = 0; input < inputs; input += 1) sum += numbers[begin + input] * row[input];
      result[output] = sum;
    }
    return result;
  });
}

/** @param {ArrayLike<number>} numbers */
export function sumOf(numbers) {
  let sum = 0;
  for (let index = 0; index < numbers.length; index += 1) sum += numbers[index];
  return sum;
}

/** @param {Float64Array} first @param {Float64Array} second */
export function added(first, second) {
  return first.map((value, index) => value + second[index]);
}

/** @param {Float64Array} first @param {Float64Array} second */
export function multiplied(first, second) {
  return first.map((value, index) => value * second[index]);
}

/** @param {Float64Array[]} parts */
export function joined(...parts) {
  return Float64Array.from(parts.flatMap((part) => [...part]));
}

/** @param {Float64Array} scores */
export function probabilitiesOf(scores) {
  const largest = scores.reduce((first, second) => Math.max(first, second), -Infinity);
  const grown = scores.map((score) => Math.exp(score - largest));
  const sum = sumOf(grown);
  return grown.map((value) => value / sum);
}

/** The index of the largest number, the first of equal ones. @param {Float64Array} numbers */
export function largestIndex(numbers) {
  return numbers.reduce((best, value, index) => (value > numbers[best] ? index : best), 0);
}

/** @param {number} value */
export function sigmoid(value) {
  return 1 / (1 + Math.exp(-value));
}

/** @type {Record<Activation, (value: number) => number>} */
export const ACTIVATIONS = {
  relu: (value) => Math.max(value, 0),
  gelu: (value) => (value / 2) * (1 + errorFunction(value / Math.SQRT2)),
  swish: (value) => value * sigmoid(value),
};

/** Abramowitz and Stegun 1964, equation 7.1.26: within 1.5e-7. @param {number} value */
function errorFunction(value) {
  const t = 1 / (1 + 0.3275911 * Math.abs(value));
  const series = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(value) * (1 - series * Math.exp(-value * value));
}

/**
 * The sinusoidal vector of a position (Vaswani et al. 2017, section 3.5).
 * @param {number} position @param {number} width
 */
export function wave(position, width) {
  return Float64Array.from({ length: width }, (_, index) => {
    const angle = position * 10_000 ** ((-2 * (index >> 1)) / width);
    return index % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

// Parameters as a page's file holds them. See `regard.runs.live_page`, which writes them.

/**
 * @typedef {object} StoredParameters
 * @property {[string, number[]][]} shapes of all parameters by name
 * @property {number} step parameters are multiples of it
 * @property {number} size bytes of the compressed numbers
 * @property {string} text
 */

const PLANES = 4; // bytes of a number, each in a block of its own

/** @param {StoredParameters} stored */
export async function readParameters({ shapes, step, size, text }) {
  const counts = shapes.map(([, shape]) => shape.reduce((product, length) => product * length, 1));
  const count = counts.reduce((sum, number) => sum + number, 0);
  const bytes = await inflate(bytesOfText(text, size), PLANES * count);
  /** @type {Map<string, Parameter>} */
  const byName = new Map();
  let place = 0;
  shapes.forEach(([name, shape], index) => {
    const numbers = new Float32Array(counts[index]);
    for (let number = 0; number < numbers.length; number += 1, place += 1) {
      let whole = 0;
      for (let plane = PLANES - 1; plane >= 0; plane -= 1) whole = (whole << 8) | bytes[plane * count + place];
      numbers[number] = ((whole >>> 1) ^ -(whole & 1)) * step; // the lowest bit is the sign
    }
    byName.set(name, { numbers, shape });
  });
  return new Parameters(byName);
}

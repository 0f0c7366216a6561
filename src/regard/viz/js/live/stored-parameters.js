// Parameters as a page's file holds them. See `regard.runs.packed_parameters`, which writes them.

import { bytesOfText, inflate } from "../inflate.js";
import { Parameters } from "./rows.js";

/** @import { Parameter } from "./rows.js" */

/**
 * @typedef {object} StoredParameters
 * @property {[string, number[]][]} shapes of all parameters by name
 * @property {number} step parameters are multiples of it
 * @property {number} size bytes of the compressed numbers
 * @property {string} text
 */

const PLANES = 4; // bytes of a number, each in a block of its own

/**
 * @param {StoredParameters} stored
 */
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

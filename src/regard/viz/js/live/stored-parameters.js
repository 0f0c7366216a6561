// Parameters as a page's file holds them. See `regard.server.packed_parameters`, which writes them.

import { inflate } from "../inflate.js";
import { Parameters } from "./rows.js";

/** @import { Parameter } from "./rows.js" */

/**
 * @typedef {object} StoredParameters
 * @property {[string, number[]][]} shapes of all parameters by name
 * @property {number} step parameters are multiples of it
 * @property {number} size bytes of the compressed numbers
 * @property {string} text
 */

const ALPHABET = Array.from({ length: 94 }, (_, index) => String.fromCharCode(33 + index))
  .filter((character) => !'"<\\'.includes(character)) // these would end a text, a script, or begin an escape
  .join("");
const PLANES = 3; // bytes of a number, each in a block of its own

/**
 * @param {StoredParameters} stored
 */
export function readParameters({ shapes, step, size, text }) {
  const counts = shapes.map(([, shape]) => shape.reduce((product, length) => product * length, 1));
  const count = counts.reduce((sum, number) => sum + number, 0);
  const bytes = inflate(decode91(text, size), PLANES * count);
  /** @type {Map<string, Parameter>} */
  const byName = new Map();
  let place = 0;
  shapes.forEach(([name, shape], index) => {
    const numbers = new Float32Array(counts[index]);
    for (let number = 0; number < numbers.length; number += 1, place += 1) {
      const whole = bytes[place] | (bytes[count + place] << 8) | (bytes[2 * count + place] << 16);
      numbers[number] = ((whole << 8) >> 8) * step; // the highest bit is the sign
    }
    byName.set(name, { numbers, shape });
  });
  return new Parameters(byName);
}

/**
 * Bytes from text in base 91: two characters hold 13 bits (after basE91, Henke 2000), 8 % more than in base 64.
 *
 * @param {string} text
 * @param {number} size number of bytes
 */
export function decode91(text, size) {
  const bytes = new Uint8Array(size);
  let [held, count, end] = [0, 0, 0];
  const digits = new Uint8Array(128);
  for (let digit = 0; digit < ALPHABET.length; digit += 1) digits[ALPHABET.charCodeAt(digit)] = digit;
  for (let index = 0; index + 1 < text.length; index += 2) {
    held |= (digits[text.charCodeAt(index)] + 91 * digits[text.charCodeAt(index + 1)]) << count;
    count += 13;
    for (; count >= 8 && end < size; count -= 8) {
      bytes[end] = held & 255;
      end += 1;
      held >>>= 8;
    }
  }
  return bytes;
}

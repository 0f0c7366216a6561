// Greedy search: the likeliest token at each step, as in `regard.decoding`.

import { largestIndex } from "./rows.js";

/** @import { LiveAttention } from "./attention-layer.js" */
/** @import { Forward } from "./query-model.js" */

/**
 * A model that has read a source.
 *
 * @typedef {object} Decoder
 * @property {LiveAttention[]} layers
 * @property {(token: number) => Float64Array} step feeds a token; returns the input of the vocabulary layer
 * @property {(state: Float64Array) => Float64Array} logits
 */

const BOS = 1; // as in regard.data; 0 is padding
export const EOS = 2;
export const UNKNOWN = 3;
const NEVER = [0, BOS, UNKNOWN];
const SLACK = 50; // tokens by which an answer may exceed twice its source

/**
 * The length limit of an answer.
 *
 * @param {number} source length without the end of sequence
 * @param {number} most
 */
export function longestAnswer(source, most) {
  return Math.min(most, 2 * (source + 1) + SLACK);
}

/**
 * The tokens of the answer, with states and logits of each step and of the end.
 *
 * @param {Decoder} decoder
 * @param {number} most tokens
 * @returns {Forward & { tokens: number[] }}
 */
export function greedy(decoder, most) {
  const states = [];
  const logits = [];
  /** @type {number[]} */
  const tokens = [];
  for (let token = BOS; ;) {
    const state = decoder.step(token);
    const row = decoder.logits(state);
    states.push(state);
    logits.push(row);
    const allowed = row.map((logit, index) => (NEVER.includes(index) ? -Infinity : logit));
    token = largestIndex(allowed);
    if (token === EOS || tokens.length === most) break;
    tokens.push(token);
  }
  return { layers: decoder.layers, states, logits, tokens };
}

// What a page knows of its task: inputs, true answers and relevant steps, as in `regard.tasks`.

import { largestIndex } from "./rows.js";

/** @import { Forward, LiveAttention } from "./attention-layer.js" */

/**
 * A task whose answers are numbers.
 * @typedef {object} LetterTask
 * @property {string} name
 * @property {string} vocabulary letters; the null character is a blank
 * @property {number} signals steps before the letters
 * @property {number} max_len
 * @property {number} outputs
 * @property {number} classes
 * @property {string} accepts
 */

/**
 * A task whose answers are texts.
 * @typedef {object} PairTask
 * @property {string} name
 * @property {string[]} source symbols
 * @property {string[]} target symbols
 * @property {number} most_source
 * @property {number} most_target
 * @property {string} unit of the source's symbols
 */

/** @typedef {{ source: string, target: string, alignment: number[][] }} Known a pair, and the source steps of each target step */

const NULL = " ";
const SHOWN_LENGTH = 60; // characters of an input in an error

/** @param {string} label */
export function visible(label) {
  return /^\s+$/.test(label) ? "␣" : label;
}

/** @param {string} text */
function quoted(text) {
  return `'${text.length <= SHOWN_LENGTH ? text : `${text.slice(0, SHOWN_LENGTH - 1)}…`}'`;
}

/**
 * The indices of a typed input; `_` is the null character, and small letters are capitals.
 * @param {LetterTask} task @param {string} typed
 */
export function readLetters({ name, vocabulary, signals, max_len: most, accepts }, typed) {
  const [lengths, letters] = accepts.split(": ");
  const text = vocabulary.includes(NULL) ? typed.replaceAll("_", NULL) : typed;
  const steps = [...text];
  if (steps.length <= signals || steps.length > signals + most) {
    throw new Error(`input ${quoted(text)} has ${steps.length} steps: ${name} takes ${lengths}`);
  }
  return steps.map((letter, step) => {
    const known = vocabulary.includes(letter) ? letter : letter.toUpperCase();
    const index = vocabulary.indexOf(known);
    if (index < 0 || known.length !== 1)
      throw new Error(`letter ${quoted(letter)} at step ${step} is not in the vocabulary: use ${letters}`);
    return index;
  });
}

/** Which steps each output depends on. @param {LetterTask} task @param {readonly number[]} letters */
export function relevantSteps({ name, vocabulary, signals }, letters) {
  /** @param {number} letter @param {number} begin */
  const occurrences = (letter, begin) => letters.map((other, step) => step >= begin && other === letter);
  if (signals) {
    return letters.slice(0, signals).map((letter, output) => {
      const steps = occurrences(letter, signals);
      steps[output] = true;
      return steps;
    });
  }
  const counted = Array.from({ length: vocabulary.length - 1 }, (_, index) => occurrences(index + 1, 0));
  if (name !== "difference") return counted;
  return [...counted, letters.map((_, step) => counted[0][step] || counted[1][step])];
}

/** The true counts. @param {LetterTask} task @param {readonly number[]} letters */
export function trueCounts(task, letters) {
  const counts = relevantSteps(task, letters).map((steps) => steps.filter(Boolean).length);
  if (task.signals) return counts.map((count) => count - 1); // the signal itself is not counted
  if (task.name === "difference") counts[counts.length - 1] = Math.abs(counts[0] - counts[1]);
  return counts;
}

/** @param {LetterTask} task @param {readonly number[]} letters */
export function outputLabels({ name, vocabulary, signals }, letters) {
  if (!signals) {
    const labels = [...vocabulary].slice(1).map((letter) => `count ${letter}`);
    return name === "difference" ? [...labels, "|A - B|"] : labels;
  }
  const names = letters.slice(0, signals).map((index) => vocabulary[index]);
  return names.map((letter, step) => {
    const number = names.slice(0, step + 1).filter((other) => other === letter).length;
    const repeated = names.filter((other) => other === letter).length > 1;
    return repeated ? `count ${letter} (${["1st", "2nd", "3rd"][number - 1] ?? `${number}th`})` : `count ${letter}`;
  });
}

/** The symbols of a source with the end of sequence, and their indices. @param {PairTask} task @param {string} text */
export function readSource({ source, most_source: most, unit }, text) {
  const pieces = unit === "words" ? text.split(/\s+/).filter(Boolean) : [...text];
  if (!text.trim()) throw new Error("the input is blank: type a text");
  if (pieces.length > most) throw new Error(`input has ${pieces.length} ${unit}, but at most ${most} are allowed`);
  const indices = pieces.map((piece) => {
    const index = source.indexOf(piece);
    return index > UNKNOWN ? index : UNKNOWN;
  });
  const unknown = [...new Set(pieces.filter((_, step) => indices[step] === UNKNOWN))].sort();
  return { pieces, indices: [...indices, EOS], unknown };
}

/**
 * The true answer to a source; null if this page does not know it.
 * @param {PairTask} task @param {string} source @param {readonly Known[]} samples @returns {Known | null}
 */
export function knownPair({ name, most_source: most, source: symbols }, source, samples) {
  const sample = samples.find((pair) => pair.source === source);
  if (sample) return sample;
  const letters = [...source];
  if (letters.length > most || letters.some((letter) => !symbols.includes(letter))) return null;
  const order = letters.map((_, step) => step);
  if (name === "reverse") order.reverse();
  else if (name !== "copy") return null;
  return { source, target: order.map((step) => letters[step]).join(""), alignment: order.map((step) => [step]) };
}

// Greedy search: the likeliest token at each step, as in `regard.decoding`.

/**
 * A model that has read a source.
 * @typedef {object} Decoder
 * @property {LiveAttention[]} layers
 * @property {(token: number) => Float64Array} step feeds a token; returns the input of the vocabulary layer
 * @property {(state: Float64Array) => Float64Array} logits
 */

const BOS = 1; // as in regard.data; 0 is padding
const EOS = 2;
const UNKNOWN = 3;
const NEVER = [0, BOS, UNKNOWN];
const SLACK = 50; // tokens by which an answer may exceed twice its source

/**
 * The length limit of an answer.
 * @param {number} source length without the end of sequence
 * @param {number} most
 */
export function longestAnswer(source, most) {
  return Math.min(most, 2 * (source + 1) + SLACK);
}

/**
 * The tokens of the answer, with states and logits of each step and of the end.
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

// Attention between words instead of word pieces.

import { WORD } from "./labels.js";
import { Matrix } from "./matrix.js";

/** @import { LayerData } from "./data.js" */

/**
 * Whether labels of a layer are word pieces.
 *
 * @param {LayerData} layer
 */
export function hasWordPieces(layer) {
  return layer.query_words !== null || layer.key_words !== null;
}

/**
 * Merges pieces to words: a word receives the sum of its pieces' weights and gives the mean of their rows.
 *
 * @param {Matrix} matrix
 * @param {Pick<LayerData, "query_words" | "key_words">} pieces
 */
export function mergeWords(matrix, { query_words, key_words }) {
  const queries = query_words ?? singletons(matrix.queries);
  const keys = key_words ?? singletons(matrix.keys);
  const slices = matrix.slices.map((_, head) => mergedSlice(matrix, head, queries, keys));
  const queryOf = pieceWords(queries);
  const keyOf = pieceWords(keys);
  const relevant = matrix.relevant?.map(([query, key]) => [queryOf[query], keyOf[key]]) ?? null;
  return new Matrix(
    slices,
    joinLabels(queries, matrix.queries),
    joinLabels(keys, matrix.keys),
    relevant,
    false,
    matrix.names,
  );
}

/**
 * @param {Matrix} matrix
 * @param {number} head
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

/**
 * Each label as its own word.
 *
 * @param {string[]} labels
 */
function singletons(labels) {
  return labels.map((_, index) => [index]);
}

/**
 * The word of each piece.
 *
 * @param {number[][]} words
 */
function pieceWords(words) {
  /** @type {number[]} */
  const indices = [];
  words.forEach((word, number) => {
    for (const piece of word) indices[piece] = number;
  });
  return indices;
}

/**
 * @param {number[][]} words
 * @param {string[]} labels of the pieces
 */
function joinLabels(words, labels) {
  return words.map((word) => {
    const text = word.map((index) => labels[index]).join("");
    return (text.startsWith(WORD) ? text.slice(1) : text) || WORD;
  });
}

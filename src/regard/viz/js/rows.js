// Several selected queries: their weights are added.

import { isolate } from "./labels.js";
import { numbersIn } from "./number-list.js";

/** @import { Matrix } from "./matrix.js" */
/** @import { State } from "./state.js" */

const MOST_KEYS_NAMED = 4; // keys listed by name

/**
 * The selected queries: one, and those added to it.
 *
 * @param {Pick<State, "also">} state
 * @param {number} query
 * @param {number} rows number of rows
 */
export function selectedQueries({ also }, query, rows) {
  const others = numbersIn(also).filter((number) => number !== query && number < rows);
  return [query, ...others];
}

/**
 * A sentence about the keys with the largest summed weights.
 *
 * @param {Matrix} matrix
 * @param {number} head
 * @param {number[]} queries
 */
export function sumSentence(matrix, head, queries) {
  const sums = matrix.keys.map((_, key) => queries.reduce((sum, query) => sum + matrix.at(head, query, key), 0));
  const order = [...sums.keys()].sort((first, second) => sums[second] - sums[first]).slice(0, MOST_KEYS_NAMED);
  const keys = order.map((key) => `“${isolate(matrix.keys[key])}” (step ${key}, ${sums[key].toFixed(2)})`);
  const names = queries.map((query) => `“${isolate(matrix.queries[query])}”`);
  return `${names.join(", ")} together, ${matrix.name(head)}: of ${queries.length} rows, most on ${keys.join(", ")}.`;
}

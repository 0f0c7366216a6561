// Which weights are drawn as lines or arcs: those of the chosen row, and the largest of every other row.

/** @import { Matrix } from "./matrix.js" */

/** @typedef {{ weight: number, head: number, query: number, key: number }} Line */

/**
 * The selected lines, the largest first.
 *
 * @typedef {object} Selection
 * @property {Line[]} lines
 * @property {number} seen number of visible weights, drawn or not
 * @property {number} all number of weights
 * @property {number | null} weakest the smallest drawn weight, if larger ones than the limit exist
 */

const MOST_LINES = 1500; // the strongest lines are drawn
const INVISIBLE = 0.01; // share of the largest weight below which a line would be invisible
const FAINT = 0.22; // opacity of the other rows
const ALL = { least: 0, top: 0 };

/**
 * The strongest weights between queries and keys in descending order, and their total number. Omitted are invisible
 * ones, weights below `least`, and of each query but `row` all but the `top` largest.
 *
 * @param {Matrix} matrix
 * @param {number[]} heads
 * @param {number[]} queries
 * @param {number[]} keys
 * @param {{ least: number, top: number, query?: number, aside?: boolean }} wanted `query`: the chosen row
 * @returns {Selection}
 */
export function strongest(matrix, heads, queries, keys, wanted = ALL, limit = MOST_LINES) {
  const { least, top, query: row, aside } = { query: -1, aside: false, ...wanted };
  /** @type {Line[]} */
  const largest = [];
  for (const head of heads) {
    for (const query of queries) {
      const weights = keys.map((key) => ({ weight: matrix.at(head, query, key), head, query, key }));
      const seen = weights.filter(
        ({ weight, key }) => weight > INVISIBLE * matrix.largest && weight >= least && !(aside && key === 0),
      );
      if (top) seen.sort((first, second) => second.weight - first.weight);
      largest.push(...(top && query !== row ? seen.slice(0, top) : seen));
    }
  }
  largest.sort(
    (first, second) => Number(second.query === row) - Number(first.query === row) || second.weight - first.weight,
  );
  const weakest = largest.length > limit ? largest[limit - 1].weight : null;
  return {
    lines: largest.slice(0, limit),
    seen: largest.length,
    all: heads.length * queries.length * keys.length,
    weakest,
  };
}

/**
 * The opacity of a line: other rows than the chosen one are faint.
 *
 * @param {Line} line
 * @param {number} share of the strongest colour
 * @param {{ query: number, top: number }} state
 */
export function lineOpacity({ query }, share, state) {
  const strength = Math.max(0.08, Math.min(share, 1));
  return (state.top && query !== state.query ? FAINT * strength : strength).toFixed(3);
}

/**
 * The keys with the largest weights of a row, over some heads.
 *
 * @param {Matrix} matrix
 * @param {number[]} heads
 * @param {number} query
 * @param {number} count
 */
export function largestKeys(matrix, heads, query, count) {
  const sums = matrix.keys.map((_, key) => Math.max(...heads.map((head) => matrix.at(head, query, key))));
  return [...sums.keys()].sort((first, second) => sums[second] - sums[first]).slice(0, count);
}

/**
 * A sentence about the omitted lines.
 *
 * @param {Matrix} matrix
 * @param {number[]} queries
 * @param {number[]} keys
 * @param {Selection} selection
 * @param {number} [top] number of lines of each row but the chosen one; 0: all
 */
export function omittedLines(matrix, queries, keys, { lines: drawn, seen, all, weakest }, top = 0) {
  const count = (/** @type {number} */ number) => number.toLocaleString("en");
  const parts = [`${count(drawn.length)} of ${count(all)} weights are drawn`];
  if (top) parts[0] += `: the chosen row, and the ${top === 1 ? "largest" : `${top} largest`} of every other row`;
  if (weakest !== null)
    parts.push(
      `${count(seen - drawn.length)} below ${weakest.toFixed(4)} are omitted, select a head to see more`,
    );
  if (all > seen && !top) parts.push(`${count(all - seen)} are smaller than any drawn weight`);
  const hidden = matrix.rows - queries.length + matrix.columns - keys.length;
  if (hidden > 0) parts.push(`${count(hidden)} tokens further away are omitted`);
  return `${parts.join("; ")}.`;
}

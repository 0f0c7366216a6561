// The weights of one layer.

import { largestValue } from "./arithmetic.js";
import { headName } from "./labels.js";
import { numbersIn } from "./number-list.js";

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
    /** @type {boolean | undefined} */
    this.whole = undefined;
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

  /**
   * @param {number} head
   * @param {number} query
   * @param {number} key
   */
  at(head, query, key) {
    return this.slices[head][query * this.columns + key];
  }

  /** Whether every row sums to 1: not where something was switched off, or nothing may be seen. */
  get sumsToOne() {
    this.whole ??= this.slices.every((slice) => this.queries.every((_, row) => isComplete(this.row(slice, row))));
    return this.whole;
  }

  /**
   * The weights of a query.
   *
   * @param {Float32Array} slice of a head
   * @param {number} query
   */
  row(slice, query) {
    return slice.subarray(query * this.columns, (query + 1) * this.columns);
  }

  /**
   * The key with the largest weight of a query.
   *
   * @param {number} head
   * @param {number} query
   */
  strongest(head, query) {
    let best = 0;
    for (let key = 1; key < this.columns; key += 1) {
      if (this.at(head, query, key) > this.at(head, query, best)) best = key;
    }
    return best;
  }

  /**
   * The name of a slice.
   *
   * @param {number} head
   */
  name(head) {
    return headName(this, head);
  }

  /**
   * The visible heads: one, or all that are not hidden.
   *
   * @param {{ head: number | null, off?: string }} state
   */
  shown({ head, off = "" }) {
    const hidden = numbersIn(off);
    const visible = this.chosen(head).filter((index) => head !== null || !hidden.includes(index));
    return visible.length ? visible : this.chosen(null);
  }

  /**
   * The heads that `head` selects: one, or all if null.
   *
   * @param {number | null} head
   */
  chosen(head) {
    return head === null ? this.slices.map((_, index) => index) : [head];
  }
}

/** @param {Float32Array} row */
function isComplete(row) {
  const sum = row.reduce((before, weight) => before + weight, 0);
  return Math.abs(sum - 1) < 0.01;
}

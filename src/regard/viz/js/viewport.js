// Which part of a matrix a heatmap shows, and where on its canvas.

import { clamp } from "./arithmetic.js";

const LARGEST_CELL = 40; // pixels
const LARGEST_ZOOMED = 48;
const TALLEST = 560; // of a heatmap, pixels
const COARSE = 12; // below this size of a cell one can zoom
const NARROWEST = 8; // of what is drawn, pixels

/** @typedef {{ query: number, key: number }} Place */

/**
 * The side of a cell when all of a matrix is seen, in pixels.
 *
 * @param {{ rows: number, columns: number }} matrix
 * @param {{ left: number, top: number }} margins
 * @param {number} available pixels from side to side
 */
export function cellOf({ rows, columns }, { left, top }, available) {
  const wide = Math.max(available - left - 6, NARROWEST) / Math.max(columns, 1);
  const high = Math.max(TALLEST - top, NARROWEST) / Math.max(rows, 1);
  return Math.min(LARGEST_CELL, wide, high);
}

export class Viewport {
  /**
   * @param {{ rows: number, columns: number }} matrix
   * @param {{ left: number, top: number }} margins for the labels, in pixels
   * @param {number} available pixels from side to side
   */
  constructor({ rows, columns }, margins, available) {
    this.rows = rows;
    this.columns = columns;
    this.row = 0; // the first that is seen, or a part of it
    this.column = 0;
    this.factor = 1; // that it is zoomed by
    this.left = this.top = this.width = this.height = this.base = this.cell = 0;
    this.fitInto(margins, available);
  }

  /**
   * Take other room, and stay where it is.
   *
   * @param {{ left: number, top: number }} margins
   * @param {number} available
   */
  fitInto({ left, top }, available) {
    this.left = left;
    this.top = top;
    this.base = cellOf(this, { left, top }, available);
    this.cell = Math.min(this.base * this.factor, Math.max(LARGEST_ZOOMED, this.base));
    this.width = Math.max(NARROWEST, this.columns * this.base);
    this.height = Math.max(NARROWEST, this.rows * this.base);
    this.move(this.row, this.column);
  }

  get zoomable() {
    return this.base < COARSE;
  }

  get zoomed() {
    return this.cell > this.base;
  }

  /**
   * The cell at a place of the canvas.
   *
   * @param {number} x
   * @param {number} y
   * @returns {Place | null}
   */
  under(x, y) {
    const key = Math.floor((x - this.left) / this.cell + this.column);
    const query = Math.floor((y - this.top) / this.cell + this.row);
    const right = x >= this.left && key >= 0 && key < this.columns;
    const low = y >= this.top && query >= 0 && query < this.rows;
    return right && low ? { query, key } : null;
  }

  /**
   * Where a column begins on the canvas.
   *
   * @param {number} column
   */
  x(column) {
    return this.left + (column - this.column) * this.cell;
  }

  /**
   * Where a row begins on the canvas.
   *
   * @param {number} row
   */
  y(row) {
    return this.top + (row - this.row) * this.cell;
  }

  /**
   * @param {number} factor
   * @param {Place | null} place what is in the middle afterwards; null: what is in the middle now
   */
  zoom(factor, place = null) {
    const query = place?.query ?? this.row + this.height / this.cell / 2;
    const key = place?.key ?? this.column + this.width / this.cell / 2;
    this.cell = clamp(this.cell * factor, this.base, Math.max(LARGEST_ZOOMED, this.base));
    this.factor = this.cell / this.base;
    this.move(query - this.height / this.cell / 2, key - this.width / this.cell / 2);
  }

  /** Show all of the matrix. */
  fit() {
    this.cell = this.base;
    this.factor = 1;
    this.move(0, 0);
  }

  /**
   * Begin with another row and column, as far as there are any.
   *
   * @param {number} row
   * @param {number} column
   */
  move(row, column) {
    this.row = clamp(row, 0, Math.max(0, this.rows - this.height / this.cell));
    this.column = clamp(column, 0, Math.max(0, this.columns - this.width / this.cell));
  }
}

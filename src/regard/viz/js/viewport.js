// The visible part of a matrix and its position on the canvas of a heatmap.

import { clamp } from "./arithmetic.js";
import { textScale } from "./dom.js";

const LARGEST_CELL = 40; // pixels
const LARGEST_ZOOMED = 48;
export const TALLEST = 560; // pixels of a heatmap's height, unless the room says otherwise
export const COARSE = 12; // pixels; below this cell size the heatmap can be zoomed
const LONG = 3; // ratio of rows and columns from which cells are no squares
const LEAST_LONG = 14; // pixels of a cell's longer side then
const NARROWEST = 8; // pixels of a drawing's width

/** @typedef {{ query: number, key: number }} Place */

/**
 * The size of a cell in pixels if the whole matrix is visible.
 * @param {{ rows: number, columns: number }} matrix @param {{ left: number, top: number }} margins
 * @param {number} available width in pixels
 * @param {number} [tallest] height in pixels
 */
export function cellSize({ rows, columns }, { left, top }, available, tallest = TALLEST) {
  const wide = Math.max(available - left - 6, NARROWEST) / Math.max(columns, 1);
  const high = Math.max(tallest - top, NARROWEST) / Math.max(rows, 1);
  return Math.min(LARGEST_CELL * textScale(), wide, high);
}

/**
 * The height of a cell divided by its width: 1, unless there are many more rows than columns, or the reverse.
 * @param {{ rows: number, columns: number }} matrix
 * @param {number} cell the side of a square
 * @param {number} wide pixels that a column can have
 * @param {number} high pixels that a row can have
 */
function cellStretch({ rows, columns }, cell, wide, high) {
  const least = LEAST_LONG * textScale();
  if (Math.max(rows, columns) < LONG * Math.min(rows, columns) || cell >= least) return { cell, stretch: 1 };
  const width = Math.max(cell, Math.min(wide, least));
  return { cell: width, stretch: Math.max(cell, Math.min(high, least)) / width };
}

export class Viewport {
  /**
   * @param {{ rows: number, columns: number }} matrix
   * @param {{ left: number, top: number }} margins for the labels, in pixels
   * @param {number} available width in pixels
   * @param {number} [tallest] height in pixels
   */
  constructor({ rows, columns }, margins, available, tallest) {
    this.rows = rows;
    this.columns = columns;
    this.row = 0; // first visible row, possibly in part
    this.column = 0;
    this.factor = 1; // zoom factor
    this.stretch = 1; // height of a cell divided by its width
    this.left = this.top = this.width = this.height = this.base = this.cell = 0;
    this.fitInto(margins, available, tallest);
  }

  // Adapts to another size, at the same position.
  /** @param {{ left: number, top: number }} margins @param {number} available @param {number} [tallest] */
  fitInto({ left, top }, available, tallest) {
    this.left = left;
    this.top = top;
    const square = cellSize(this, { left, top }, available, tallest);
    const wide = Math.max(available - left - 6, NARROWEST) / Math.max(this.columns, 1);
    const high = Math.max((tallest ?? TALLEST) - top, NARROWEST) / Math.max(this.rows, 1);
    const { cell, stretch } = cellStretch(this, square, wide, high);
    this.base = cell;
    this.stretch = stretch;
    this.cell = Math.min(this.base * this.factor, Math.max(LARGEST_ZOOMED, this.base));
    this.width = Math.max(NARROWEST, this.columns * this.base);
    this.height = Math.max(NARROWEST, this.rows * this.base * this.stretch);
    this.move(this.row, this.column);
  }

  /** The height of a row in pixels. */
  get rowCell() {
    return this.cell * this.stretch;
  }

  get zoomable() {
    return this.base < COARSE;
  }

  get zoomed() {
    return this.cell > this.base;
  }

  /** The cell at a position of the canvas. @param {number} x @param {number} y @returns {Place | null} */
  under(x, y) {
    const key = Math.floor((x - this.left) / this.cell + this.column);
    const query = Math.floor((y - this.top) / this.rowCell + this.row);
    const right = x >= this.left && key >= 0 && key < this.columns;
    const low = y >= this.top && query >= 0 && query < this.rows;
    return right && low ? { query, key } : null;
  }

  /** The left edge of a column on the canvas. @param {number} column */
  x(column) {
    return this.left + (column - this.column) * this.cell;
  }

  /** The top edge of a row on the canvas. @param {number} row */
  y(row) {
    return this.top + (row - this.row) * this.rowCell;
  }

  /** @param {number} factor @param {Place | null} place the new centre; null keeps the centre */
  zoom(factor, place = null) {
    const query = place?.query ?? this.row + this.height / this.rowCell / 2;
    const key = place?.key ?? this.column + this.width / this.cell / 2;
    this.cell = clamp(this.cell * factor, this.base, Math.max(LARGEST_ZOOMED, this.base));
    this.factor = this.cell / this.base;
    this.move(query - this.height / this.rowCell / 2, key - this.width / this.cell / 2);
  }

  fit() {
    this.cell = this.base;
    this.factor = 1;
    this.move(0, 0);
  }

  /** Moves the upper left corner, within the matrix. @param {number} row @param {number} column */
  move(row, column) {
    this.row = clamp(row, 0, Math.max(0, this.rows - this.height / this.rowCell));
    this.column = clamp(column, 0, Math.max(0, this.columns - this.width / this.cell));
  }
}

// Pointer, wheel and keyboard control of a heatmap.

/**
 * The target of gestures.
 * @typedef {object} Target
 * @property {HTMLElement} element receives keyboard events
 * @property {HTMLCanvasElement} canvas
 * @property {Viewport} viewport
 * @property {() => { query: number, key: number | null }} chosen
 * @property {(query: number, key: number | null) => void} onPoint
 * @property {() => void} onLeave
 * @property {(query: number, key: number) => void} onChoose
 * @property {(by: number) => void} onHead selects the next or previous head
 * @property {() => void} draw
 */

const STEPS = new Map([
  ["ArrowUp", [-1, 0]],
  ["ArrowDown", [1, 0]],
  ["ArrowLeft", [0, -1]],
  ["ArrowRight", [0, 1]],
  ["Home", [0, Number.NEGATIVE_INFINITY]],
  ["End", [0, Number.POSITIVE_INFINITY]],
]);

/** @param {Target} target */
export function listen(target) {
  listenToPointer(target);
  listenToWheel(target);
  target.element.addEventListener("keydown", (event) => {
    if (handleKey(event.key, target)) event.preventDefault();
  });
}

/** @param {Target} target */
function listenToPointer(target) {
  const { canvas, viewport } = target;
  /** @type {{ x: number, y: number, row: number, column: number, moved: boolean } | null} */
  let drag = null;
  canvas.addEventListener("pointerdown", ({ offsetX, offsetY, pointerId }) => {
    drag = { x: offsetX, y: offsetY, row: viewport.row, column: viewport.column, moved: false };
    if (viewport.zoomed) canvas.setPointerCapture(pointerId);
  });
  canvas.addEventListener("pointermove", ({ offsetX, offsetY, buttons }) => {
    if (drag && viewport.zoomed && buttons) {
      const { cell, rowCell } = viewport;
      viewport.move(drag.row - (offsetY - drag.y) / rowCell, drag.column - (offsetX - drag.x) / cell);
      drag.moved = true;
      target.draw();
      return;
    }
    const place = viewport.under(offsetX, offsetY);
    if (place) target.onPoint(place.query, place.key);
  });
  canvas.addEventListener("pointerup", ({ offsetX, offsetY }) => {
    const place = viewport.under(offsetX, offsetY);
    const moveSelection = drag?.moved ?? true;
    drag = null;
    if (place && !moveSelection) target.onChoose(place.query, place.key);
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => target.onLeave());
}

/** @param {Target} target */
function listenToWheel({ canvas, viewport, draw }) {
  /** @param {MouseEvent} event @param {number} factor */
  const zoom = ({ offsetX, offsetY }, factor) => {
    viewport.zoom(factor, viewport.under(offsetX, offsetY));
    draw();
  };
  canvas.addEventListener("dblclick", (event) => {
    if (viewport.zoomable) zoom(event, 2);
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!viewport.zoomable || !(event.ctrlKey || event.metaKey)) return; // otherwise the page scrolls
      event.preventDefault();
      zoom(event, event.deltaY < 0 ? 1.3 : 1 / 1.3);
    },
    { passive: false },
  );
}

/** Handles a key; returns whether it has a meaning. @param {string} key @param {Target} target */
function handleKey(key, { viewport, chosen, onChoose, onHead, draw }) {
  const at = chosen();
  const next = moved(key, at, viewport);
  const place = { query: at.query, key: at.key ?? 0 };
  if (next) onChoose(next.query, next.key);
  else if (key === "[" || key === "]") onHead(key === "[" ? -1 : 1);
  else if (key === "+" || key === "-") viewport.zoom(key === "+" ? 2 : 0.5, place);
  else if (key === "0") viewport.fit();
  else return false;
  draw();
  return true;
}

/**
 * The cell that an arrow key selects, or null. Without a selected key, the first key of the query counts as
 * selected.
 * @param {string} key @param {{ query: number, key: number | null }} from
 * @param {{ rows: number, columns: number }} matrix @returns {Place | null}
 */
export function moved(key, from, { rows, columns }) {
  const step = STEPS.get(key);
  if (!step) return null;
  const [down, right] = from.key === null ? [0, 0] : step;
  const query = clamp(from.query + down, 0, rows - 1);
  return { query, key: clamp((from.key ?? 0) + right, 0, columns - 1) };
}

// The visible part of a matrix and its position on a canvas, and how pointer, wheel and keys change it.

import { clamp } from "./arithmetic.js";

const LARGEST_ZOOMED = 48; // pixels of a cell
const COARSE = 12; // pixels; below this size of a cell the picture can be zoomed
const NARROWEST = 8; // pixels of a drawing
const HIGHEST = 240; // pixels of a row

/** @typedef {{ query: number, key: number }} Place */

/** Cells fill their room in both directions, so they need not be squares. */
export class Viewport {
  /** @param {{ rows: number, columns: number }} matrix */
  constructor({ rows, columns }) {
    this.rows = rows;
    this.columns = columns;
    this.row = 0; // first visible row, possibly in part
    this.column = 0;
    this.factor = 1; // of the zoom
    this.left = this.top = this.width = this.height = this.cell = this.rowCell = 0;
  }

  /** Adapts to another size, at the same position. @param {{ left: number, top: number }} margins @param {number} width @param {number} height */
  fitInto({ left, top }, width, height) {
    Object.assign(this, { left, top });
    this.width = Math.max(width - left - 4, NARROWEST);
    this.height = clamp(height - top - 4, NARROWEST, HIGHEST * Math.max(this.rows, 1));
    this.resize();
    this.move(this.row, this.column);
  }

  resize() {
    this.cell = (this.width / Math.max(this.columns, 1)) * this.factor;
    this.rowCell = (this.height / Math.max(this.rows, 1)) * this.factor;
  }

  get zoomable() {
    return Math.min(this.cell, this.rowCell) / this.factor < COARSE;
  }

  /** The cell at a position of the canvas. @param {number} x @param {number} y @returns {Place | null} */
  under(x, y) {
    const key = Math.floor((x - this.left) / this.cell + this.column);
    const query = Math.floor((y - this.top) / this.rowCell + this.row);
    const inside = x >= this.left && y >= this.top && key < this.columns && query < this.rows;
    return inside ? { query, key } : null;
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
    const most = Math.max(1, (LARGEST_ZOOMED * this.factor) / Math.min(this.cell, this.rowCell));
    this.factor = clamp(this.factor * factor, 1, most);
    this.resize();
    this.move(query - this.height / this.rowCell / 2, key - this.width / this.cell / 2);
  }

  /** Moves the upper left corner, within the matrix. @param {number} row @param {number} column */
  move(row, column) {
    this.row = clamp(row, 0, Math.max(0, this.rows - this.height / this.rowCell));
    this.column = clamp(column, 0, Math.max(0, this.columns - this.width / this.cell));
  }
}

/**
 * What a picture is operated by.
 * @typedef {object} Target
 * @property {HTMLElement} element receives keyboard events
 * @property {HTMLCanvasElement} canvas
 * @property {Viewport} viewport
 * @property {(x: number, y: number) => Partial<Place> | null} under what is drawn at a position
 * @property {() => { query: number, key: number | null }} chosen
 * @property {(place: Partial<Place> | null) => void} onPoint
 * @property {(place: Partial<Place>, shift: boolean) => void} onChoose
 * @property {(by: number) => void} onHead selects the next or previous head
 * @property {() => void} draw
 */

/** @type {Record<string, [number, number]>} */
const STEPS = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  Home: [0, -Infinity],
  End: [0, Infinity],
};

/** @param {Target} target */
export function listen(target) {
  const { canvas, viewport, draw } = target;
  /** @type {{ x: number, y: number, row: number, column: number, moved: boolean } | null} */
  let drag = null;
  canvas.addEventListener("pointerdown", ({ offsetX, offsetY, pointerId }) => {
    drag = { x: offsetX, y: offsetY, row: viewport.row, column: viewport.column, moved: false };
    if (viewport.factor > 1) canvas.setPointerCapture(pointerId);
  });
  canvas.addEventListener("pointermove", ({ offsetX, offsetY, buttons }) => {
    if (!drag || viewport.factor === 1 || !buttons) return target.onPoint(target.under(offsetX, offsetY));
    viewport.move(drag.row - (offsetY - drag.y) / viewport.rowCell, drag.column - (offsetX - drag.x) / viewport.cell);
    drag.moved = true;
    draw();
  });
  canvas.addEventListener("pointerup", ({ offsetX, offsetY, shiftKey }) => {
    const place = drag && !drag.moved && target.under(offsetX, offsetY);
    drag = null;
    if (place) target.onChoose(place, shiftKey);
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => target.onPoint(null));
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
  target.element.addEventListener("keydown", (event) => {
    if (!event.altKey && !event.ctrlKey && !event.metaKey && handleKey(event, target)) event.preventDefault();
  });
}

/** Handles a key; returns whether it has a meaning. @param {KeyboardEvent} event @param {Target} target */
function handleKey({ key, shiftKey }, { viewport, chosen, onChoose, onHead, draw }) {
  const at = chosen();
  const next = moved(key, at, viewport);
  if (next) onChoose(next, shiftKey);
  else if (key === "[" || key === "]") onHead(key === "[" ? -1 : 1);
  else if (key === "+" || key === "-") viewport.zoom(key === "+" ? 2 : 0.5, { query: at.query, key: at.key ?? 0 });
  else if (key === "0") viewport.zoom(0);
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
  const step = STEPS[key];
  if (!step) return null;
  const [down, right] = from.key === null ? [0, 0] : step;
  const query = clamp(from.query + down, 0, rows - 1);
  return { query, key: clamp((from.key ?? 0) + right, 0, columns - 1) };
}

// Labels of a heatmap's rows and columns, shortened if there is too little room.

import { fitLabel } from "./labels.js";
import { font, textScale, widestText, textWidth } from "./text-width.js";
import { cellSize } from "./viewport.js";

/** @import { Viewport } from "./viewport.js" */

const LABEL = 12; // height of a label in pixels, times the factor of the text
const LABELS_APART = 10.5; // pixels between labels
const MEASURED = 600; // labels measured to find the widest
const LABEL_GAP = 6; // pixels between a label and the cells

/**
 * @typedef {object} Labels
 * @property {Viewport} viewport
 * @property {string[]} queries
 * @property {string[]} keys
 * @property {boolean} upright whether keys are written vertically
 * @property {{ ink: string }} colours
 */

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Labels} labels
 * @param {{ query: number, key: number | null }} marked row and column with bold labels
 */
export function paintLabels(context, labels, { query, key }) {
  context.direction = "ltr";
  context.fillStyle = labels.colours.ink;
  context.textBaseline = "middle";
  paintQueries(context, labels, query);
  paintKeys(context, labels, key);
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Labels} labels
 * @param {number} marked
 */
function paintQueries(context, { viewport, queries }, marked) {
  const { rowCell, left, height, row } = viewport;
  context.textAlign = "right";
  for (const query of labelledIndices(row, queries.length, height, rowCell, marked)) {
    context.font = font(query === marked);
    context.fillText(
      fitLabel(queries[query], left - LABEL_GAP - 2, textWidth),
      left - LABEL_GAP,
      viewport.y(query + 0.5),
    );
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Labels} labels
 * @param {number | null} marked
 */
function paintKeys(context, { viewport, keys, upright }, marked) {
  const { cell, top, width, column } = viewport;
  for (const key of labelledIndices(column, keys.length, width, cell, marked)) {
    context.font = font(key === marked);
    context.save();
    context.translate(viewport.x(key + 0.5), top - LABEL_GAP);
    if (upright) {
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(fitLabel(keys[key], top - LABEL_GAP - 2, textWidth), 0, 0);
    } else {
      context.textAlign = "center";
      context.fillText(keys[key], 0, -4);
    }
    context.restore();
  }
}

/**
 * Labels whose widths decide the room: the first ones and, of a long list, the one with the most characters.
 *
 * @param {string[]} labels
 */
function measuredLabels(labels) {
  if (labels.length <= MEASURED) return labels;
  const longest = labels.reduce((before, label) => (label.length > before.length ? label : before), "");
  return [...labels.slice(0, MEASURED), longest];
}

/**
 * Room for the labels in pixels, and whether keys are vertical because they are wider than a cell.
 *
 * @param {{ queries: string[], keys: string[], rows: number, columns: number }} matrix
 * @param {number} available width in pixels
 * @param {number} [tallest] height in pixels
 */
export function labelMargins(matrix, available, tallest) {
  const factor = textScale();
  const left = Math.ceil(
    Math.min(widestText(measuredLabels(matrix.queries)) + LABEL_GAP + 4, 150 * factor, available * 0.35),
  );
  const across = widestText(measuredLabels(matrix.keys));
  const level = { left, top: LABEL * factor + LABEL_GAP + 4, upright: false };
  if (across + 4 <= cellSize(matrix, level, available, tallest)) return level;
  const most = Math.min(130 * factor, (tallest ?? Number.POSITIVE_INFINITY) * 0.4);
  return { left, top: Math.ceil(Math.min(across + LABEL_GAP + 4, most)), upright: true };
}

/**
 * The interval of labels: every n-th row or column can be labelled.
 *
 * @param {number} cell in pixels
 */
export function labelInterval(cell) {
  return Math.max(1, Math.ceil((LABELS_APART * textScale()) / cell));
}

/**
 * The labelled rows or columns from `first` on; the marked one is always labelled, instead of its neighbours.
 *
 * @param {number} first
 * @param {number} count
 * @param {number} length in pixels
 * @param {number} cell
 * @param {number | null} marked
 */
export function labelledIndices(first, count, length, cell, marked) {
  const every = labelInterval(cell);
  const indices = [];
  for (let index = Math.ceil(first); index < count && (index - first) * cell < length; index += 1) {
    const near = every > 1 && marked !== null && Math.abs(index - marked) < every;
    if (index === marked || (index % every === 0 && !near)) indices.push(index);
  }
  return indices;
}

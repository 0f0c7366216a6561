// Painting of a heatmap on its canvas: cells, grid, dots, outline and labels. The work is bounded by the number of
// pixels, however many weights there are.

import { cssColour, shade } from "./colours.js";
import { canvasContext, font, node, textScale, textWidth, widestText } from "./dom.js";
import { cached } from "./arithmetic.js";
import { halve } from "./matrix.js";
import { fitLabel } from "./labels.js";
import { cellSize } from "./viewport.js";

/** @import { Palette } from "./colours.js" */
/** @import { Level, Matrix, Pyramid } from "./matrix.js" */
/** @import { Viewport } from "./viewport.js" */
/** @import { Scale } from "./scale.js" */

/**
 * @typedef {object} Picture
 * @property {Viewport} viewport
 * @property {Pyramid} pyramid of the weights or differences
 * @property {boolean} changing whether differences are painted
 * @property {(value: number) => number} share the position of a value on the colour scale
 * @property {boolean} aside whether the first key is set aside
 * @property {string[]} queries
 * @property {string[]} keys
 * @property {boolean} upright whether keys are written vertically
 * @property {number[][] | null} relevant
 * @property {Palette} colours
 */

/** @typedef {{ query: number, key: number | null }} Marked a row, and perhaps a cell in it */

/** @param {HTMLCanvasElement} canvas @param {Picture} picture @param {Marked} marked */
export function paint(canvas, picture, marked) {
  const { viewport } = picture;
  const { left, top, width, height, cell } = viewport;
  const ratio = devicePixelRatio || 1;
  resize(canvas, left + width + 4, top + height + 4, ratio);
  const context = canvasContext(canvas);
  context.scale(ratio, ratio);
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  paintCells(context, picture, ratio);
  if (picture.aside) paintAside(context, picture);
  if (Math.min(cell, viewport.rowCell) >= 9) paintGrid(context, picture);
  if (picture.relevant && cell >= 4) paintDots(context, viewport, picture.relevant);
  context.restore();
  paintOutline(context, picture, marked);
  paintLabels(context, picture, marked);
  canvas.style.touchAction = viewport.zoomed ? "none" : "manipulation";
}

/**
 * @param {HTMLCanvasElement} canvas @param {number} width @param {number} height
 * @param {number} ratio screen pixels per CSS pixel
 */
function resize(canvas, width, height, ratio) {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`; // the height follows, also if there is less room
}

/** @param {CanvasRenderingContext2D} context @param {Picture} picture @param {number} ratio */
function paintCells(context, { viewport, pyramid, changing, share, colours }, ratio) {
  const { row, column, width, height, cell, rowCell } = viewport;
  const number = Math.max(0, Math.ceil(Math.log2(1 / (Math.max(cell, rowCell) * ratio))));
  const level = pyramid.level(number);
  const size = 2 ** number;
  const top = Math.floor(row / size);
  const left = Math.floor(column / size);
  if (!viewport.rows || !viewport.columns) return;
  const bottom = Math.min(level.rows, Math.ceil((row + height / rowCell) / size));
  const right = Math.min(level.columns, Math.ceil((column + width / cell) / size));
  const table = changing ? colours.changes : colours.table;
  const small = pixels(level, { top, left, high: bottom - top, wide: right - left }, (value) => {
    return table[shade(share(value), changing)];
  });
  context.imageSmoothingEnabled = size * Math.min(cell, rowCell) * ratio < 1; // narrow columns of high rows
  context.drawImage(
    small,
    viewport.x(left * size),
    viewport.y(top * size),
    small.width * size * cell,
    small.height * size * rowCell,
  );
}

/**
 * A part of a level on its own canvas, one pixel for each value.
 * @param {Level} level @param {{ top: number, left: number, high: number, wide: number }} part
 * @param {(value: number) => number} colour
 */
export function pixels({ values, columns }, { top, left, high, wide }, colour) {
  const canvas = document.createElement("canvas");
  canvas.width = wide;
  canvas.height = high;
  const context = canvasContext(canvas);
  const image = context.createImageData(wide, high);
  const output = new Uint32Array(image.data.buffer);
  for (let row = 0; row < high; row += 1) {
    const begin = (top + row) * columns + left;
    for (let column = 0; column < wide; column += 1) output[row * wide + column] = colour(values[begin + column]);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** @param {CanvasRenderingContext2D} context @param {Picture} picture */
function paintGrid(context, { viewport, colours }) {
  const { cell, rowCell, left, top, width, height } = viewport;
  context.strokeStyle = cssColour(colours.paper);
  context.lineWidth = 1;
  context.beginPath();
  for (let x = -(viewport.column % 1) * cell; x <= width; x += cell) {
    context.moveTo(left + x, top);
    context.lineTo(left + x, top + height);
  }
  for (let y = -(viewport.row % 1) * rowCell; y <= height; y += rowCell) {
    context.moveTo(left, top + y);
    context.lineTo(left + width, top + y);
  }
  context.stroke();
}

// Hatches the first key, which is set aside.
/** @param {CanvasRenderingContext2D} context @param {Picture} picture */
function paintAside(context, { viewport, colours }) {
  const { top, height } = viewport;
  const [left, wide] = [viewport.x(0), Math.max(viewport.cell, 2)];
  context.save();
  context.beginPath();
  context.rect(left, top, wide, height);
  context.clip();
  context.fillStyle = cssColour(colours.paper);
  context.fillRect(left, top, wide, height);
  context.strokeStyle = colours.ink;
  context.lineWidth = 0.7;
  context.beginPath();
  for (let y = top - wide; y < top + height + wide; y += 5) {
    context.moveTo(left, y + wide);
    context.lineTo(left + wide, y);
  }
  context.stroke();
  context.restore();
}

// Marks the inputs on which the output depends.
/** @param {CanvasRenderingContext2D} context @param {Viewport} viewport @param {number[][]} relevant */
function paintDots(context, viewport, relevant) {
  context.fillStyle = "white";
  context.strokeStyle = "black";
  for (const [query, key] of relevant) {
    context.beginPath();
    context.arc(viewport.x(key + 0.5), viewport.y(query + 0.5), Math.min(3, viewport.cell / 5), 0, 7);
    context.fill();
    context.stroke();
  }
}

// Outlines the selected row and cell.
/** @param {CanvasRenderingContext2D} context @param {Picture} picture @param {Marked} marked */
function paintOutline(context, { viewport, colours }, { query, key }) {
  const { cell, rowCell, left, top, width, height } = viewport;
  const y = viewport.y(query);
  if (y + rowCell < top || y > top + height) return;
  context.strokeStyle = colours.mark;
  context.lineWidth = 1.5;
  context.strokeRect(left, y, width, Math.max(rowCell, 2));
  if (key !== null) context.strokeRect(viewport.x(key), y, Math.max(cell, 2), Math.max(rowCell, 2));
}

// Small pictures of heads.

const LEAST_ASPECT = 0.3; // of the longer side
const FINE = 1.3; // canvas pixels per screen pixel at most: with more, thin diagonals become dashes

// The weights of a head, halved until they have few enough rows and columns.
/** @param {Matrix} matrix @param {number} head @param {number} limit @returns {Level} */
function smallLevel(matrix, head, limit) {
  return cached(matrix, `small ${head} ${limit}`, () => {
    let level = { values: matrix.slices[head], rows: matrix.rows, columns: matrix.columns };
    while (Math.max(level.rows, level.columns) > limit) level = halve(level);
    return level;
  });
}

/**
 * The picture of a head and its size; `side`: pixels of its longer side, `tall`: of its height if it is stretched.
 * @param {{ matrix: Matrix, head: number, scale: Scale }} shown @param {Palette} colours @param {number} side
 * @param {number} [tall]
 */
export function thumbPixels({ matrix, head, scale }, colours, side, tall = side) {
  const { rows, columns } = matrix;
  const longest = Math.max(rows, columns, 1);
  const least = LEAST_ASPECT * side;
  const width = Math.max(least, (side * columns) / longest);
  const height = Math.max(least, (tall * rows) / longest);
  const size = { width, height };
  if (!rows || !columns) return { canvas: node("canvas", { width: 1, height: 1 }), ...size };
  const limit = Math.ceil(FINE * Math.max(side, tall) * (devicePixelRatio || 1));
  const level = smallLevel(matrix, head, limit);
  const { share } = scale.of(matrix, head);
  const all = { top: 0, left: 0, high: level.rows, wide: level.columns };
  const canvas = pixels(level, all, (value) => colours.table[shade(share(value))]);
  if (scale.aside) {
    const context = canvasContext(canvas);
    context.fillStyle = cssColour(colours.aside);
    context.fillRect(0, 0, 1, canvas.height);
  }
  if (longest < side) canvas.style.imageRendering = "pixelated";
  canvas.style.width = `${size.width}px`;
  canvas.style.height = `${size.height}px`;
  canvas.setAttribute("aria-hidden", "true");
  return { canvas, ...size };
}

// Labels of a heatmap's rows and columns, shortened if there is too little room.

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
 * @param {CanvasRenderingContext2D} context @param {Labels} labels
 * @param {{ query: number, key: number | null }} marked row and column with bold labels
 */
export function paintLabels(context, labels, { query, key }) {
  context.direction = "ltr";
  context.fillStyle = labels.colours.ink;
  context.textBaseline = "middle";
  paintQueries(context, labels, query);
  paintKeys(context, labels, key);
}

/** @param {CanvasRenderingContext2D} context @param {Labels} labels @param {number} marked */
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

/** @param {CanvasRenderingContext2D} context @param {Labels} labels @param {number | null} marked */
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

// Labels whose widths decide the room: the first ones and, of a long list, the one with the most characters.
/** @param {string[]} labels */
function measuredLabels(labels) {
  if (labels.length <= MEASURED) return labels;
  const longest = labels.reduce((before, label) => (label.length > before.length ? label : before), "");
  return [...labels.slice(0, MEASURED), longest];
}

/**
 * Room for the labels in pixels, and whether keys are vertical because they are wider than a cell.
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

/** The interval of labels: every n-th row or column can be labelled. @param {number} cell in pixels */
export function labelInterval(cell) {
  return Math.max(1, Math.ceil((LABELS_APART * textScale()) / cell));
}

/**
 * The labelled rows or columns from `first` on; the marked one is always labelled, instead of its neighbours.
 * @param {number} first @param {number} count
 * @param {number} length in pixels
 * @param {number} cell @param {number | null} marked
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

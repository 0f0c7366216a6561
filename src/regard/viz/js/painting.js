// Painting of a heatmap on its canvas: cells, grid, dots, outline and labels. The work is bounded by the number of
// pixels, however many weights there are.

import { paintLabels } from "./axes.js";
import { cssColour, shade } from "./colours.js";
import { canvasContext } from "./dom.js";

/** @import { Palette } from "./colours.js" */
/** @import { Level, Pyramid } from "./pyramid.js" */
/** @import { Viewport } from "./viewport.js" */

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

/**
 * @param {HTMLCanvasElement} canvas
 * @param {Picture} picture
 * @param {Marked} marked
 */
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
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @param {number} ratio screen pixels per CSS pixel
 */
function resize(canvas, width, height, ratio) {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`; // the height follows, also if there is less room
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {number} ratio
 */
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
 *
 * @param {Level} level
 * @param {{ top: number, left: number, high: number, wide: number }} part
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

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 */
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

/**
 * Hatches the first key, which is set aside.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 */
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

/**
 * Marks the inputs on which the output depends.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Viewport} viewport
 * @param {number[][]} relevant
 */
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

/**
 * Outlines the selected row and cell.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {Marked} marked
 */
function paintOutline(context, { viewport, colours }, { query, key }) {
  const { cell, rowCell, left, top, width, height } = viewport;
  const y = viewport.y(query);
  if (y + rowCell < top || y > top + height) return;
  context.strokeStyle = colours.mark;
  context.lineWidth = 1.5;
  context.strokeRect(left, y, width, Math.max(rowCell, 2));
  if (key !== null) context.strokeRect(viewport.x(key), y, Math.max(cell, 2), Math.max(rowCell, 2));
}

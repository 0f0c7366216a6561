// A heatmap on its canvas: cells, grid, dots, outline and labels. However many weights there are, no more is painted
// than there are pixels.

import { css, shade } from "./colours.js";
import { brush } from "./dom.js";
import { shorten } from "./labels.js";

/** @import { Palette } from "./colours.js" */
/** @import { Level, Pyramid } from "./pyramid.js" */
/** @import { Viewport } from "./viewport.js" */

const LETTER = 6.5; // pixels, about
const LABEL = 12; // height of a label, pixels

/**
 * @typedef {object} Picture
 * @property {Viewport} viewport
 * @property {Pyramid} pyramid of the weights, or of what has changed
 * @property {boolean} changing whether it is what has changed
 * @property {number} largest what the strongest colour stands for
 * @property {string[]} queries
 * @property {string[]} keys
 * @property {boolean} upright whether the keys are written upwards
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
  const context = brush(canvas);
  context.scale(ratio, ratio);
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  paintCells(context, picture, ratio);
  if (cell >= 9) paintGrid(context, picture);
  if (picture.relevant && cell >= 4) paintDots(context, viewport, picture.relevant);
  context.restore();
  paintOutline(context, picture, marked);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = picture.colours.ink;
  context.textBaseline = "middle";
  paintQueries(context, picture, marked.query);
  paintKeys(context, picture, marked.key);
  canvas.style.touchAction = viewport.zoomed ? "none" : "manipulation";
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @param {number} ratio of the screen's pixels to those of the page
 */
function resize(canvas, width, height, ratio) {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {number} ratio
 */
function paintCells(context, { viewport, pyramid, changing, largest, colours }, ratio) {
  const { row, column, width, height, cell } = viewport;
  const number = Math.max(0, Math.ceil(Math.log2(1 / (cell * ratio))));
  const level = pyramid.level(number);
  const size = 2 ** number;
  const top = Math.floor(row / size);
  const left = Math.floor(column / size);
  const bottom = Math.min(level.rows, Math.ceil((row + height / cell) / size));
  const right = Math.min(level.columns, Math.ceil((column + width / cell) / size));
  const table = changing ? colours.changes : colours.table;
  const small = pixels(level, { top, left, high: bottom - top, wide: right - left }, (value) => {
    return table[shade(value / largest, changing)];
  });
  context.imageSmoothingEnabled = false;
  const scale = size * cell;
  context.drawImage(
    small,
    viewport.x(left * size),
    viewport.y(top * size),
    small.width * scale,
    small.height * scale,
  );
}

/**
 * A part of a level on a canvas of its own, one pixel for each value.
 *
 * @param {Level} level
 * @param {{ top: number, left: number, high: number, wide: number }} part
 * @param {(value: number) => number} colour
 */
export function pixels({ values, columns }, { top, left, high, wide }, colour) {
  const canvas = document.createElement("canvas");
  canvas.width = wide;
  canvas.height = high;
  const context = brush(canvas);
  const image = context.createImageData(wide, high);
  const found = new Uint32Array(image.data.buffer);
  for (let row = 0; row < high; row += 1) {
    const begin = (top + row) * columns + left;
    for (let column = 0; column < wide; column += 1) found[row * wide + column] = colour(values[begin + column]);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 */
function paintGrid(context, { viewport, colours }) {
  const { cell, left, top, width, height } = viewport;
  context.strokeStyle = css(colours.paper);
  context.lineWidth = 1;
  context.beginPath();
  for (let x = -(viewport.column % 1) * cell; x <= width; x += cell) {
    context.moveTo(left + x, top);
    context.lineTo(left + x, top + height);
  }
  for (let y = -(viewport.row % 1) * cell; y <= height; y += cell) {
    context.moveTo(left, top + y);
    context.lineTo(left + width, top + y);
  }
  context.stroke();
}

/**
 * Where the output depends on the input.
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
 * The row and the cell that are pointed at, or chosen.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {Marked} marked
 */
function paintOutline(context, { viewport, colours }, { query, key }) {
  const { cell, left, top, width, height } = viewport;
  const y = viewport.y(query);
  if (y + cell < top || y > top + height) return;
  context.strokeStyle = colours.mark;
  context.lineWidth = 1.5;
  context.strokeRect(left, y, width, Math.max(cell, 2));
  if (key !== null) context.strokeRect(viewport.x(key), y, Math.max(cell, 2), Math.max(cell, 2));
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {number} marked
 */
function paintQueries(context, { viewport, queries }, marked) {
  const { cell, left, height, row } = viewport;
  const most = Math.floor((left - 10) / LETTER);
  context.textAlign = "right";
  for (const query of labelled(row, queries.length, height, cell, marked)) {
    context.font = fontOf(query === marked);
    context.fillText(shorten(queries[query], most), left - 6, viewport.y(query + 0.5));
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {number | null} marked
 */
function paintKeys(context, { viewport, keys, upright }, marked) {
  const { cell, top, width, column } = viewport;
  const most = Math.floor((top - 6) / LETTER);
  for (const key of labelled(column, keys.length, width, cell, marked)) {
    context.font = fontOf(key === marked);
    context.save();
    context.translate(viewport.x(key + 0.5), top - 5);
    if (upright || cell < LABEL) {
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(shorten(keys[key], most), 0, 0);
    } else {
      context.textAlign = "center";
      context.fillText(keys[key], 0, -4);
    }
    context.restore();
  }
}

/**
 * The rows or columns, from `first` on, that there is place to name; what is marked is named, and not its neighbours.
 *
 * @param {number} first
 * @param {number} count
 * @param {number} length in pixels
 * @param {number} cell
 * @param {number | null} marked
 */
export function labelled(first, count, length, cell, marked) {
  const every = Math.max(1, Math.ceil(LABEL / cell));
  const found = [];
  for (let index = Math.ceil(first); index < count && (index - first) * cell < length; index += 1) {
    const near = every > 1 && marked !== null && Math.abs(index - marked) < every;
    if (index === marked || (index % every === 0 && !near)) found.push(index);
  }
  return found;
}

/** @param {boolean} bold */
function fontOf(bold) {
  return `${bold ? "bold " : ""}12px system-ui, sans-serif`;
}

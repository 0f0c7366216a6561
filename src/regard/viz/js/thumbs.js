// Small pictures of heads.

import { cached } from "./cache.js";
import { cssColour, shade } from "./colours.js";
import { canvasContext, node } from "./dom.js";
import { pixels } from "./painting.js";
import { halve } from "./pyramid.js";

/** @import { Palette } from "./colours.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Level } from "./pyramid.js" */
/** @import { Scale } from "./scale.js" */

const LEAST_ASPECT = 0.3; // of the longer side
const FINE = 1.3; // canvas pixels per screen pixel at most: with more, thin diagonals become dashes

/**
 * The weights of a head, halved until they have few enough rows and columns.
 *
 * @param {Matrix} matrix
 * @param {number} head
 * @param {number} limit
 * @returns {Level}
 */
function smallLevel(matrix, head, limit) {
  return cached(matrix, `small ${head} ${limit}`, () => {
    let level = { values: matrix.slices[head], rows: matrix.rows, columns: matrix.columns };
    while (Math.max(level.rows, level.columns) > limit) level = halve(level);
    return level;
  });
}

/**
 * The picture of a head and its size; `side`: pixels of its longer side, `tall`: of its height if it is stretched.
 *
 * @param {{ matrix: Matrix, head: number, scale: Scale }} shown
 * @param {Palette} colours
 * @param {number} side
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

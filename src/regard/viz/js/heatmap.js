// A matrix of weights as cells, and the labels beside it. The work is bounded by the number of pixels, however many
// weights there are.

import { cssColour, inkOn, shade } from "./colours.js";
import { textScale, textWidth, widestText } from "./dom.js";
import { cached } from "./arithmetic.js";
import { halve, Pyramid } from "./matrix.js";
import { axisTitles, fitLabel } from "./labels.js";
import { pixels } from "./pen.js";
import { shareOf } from "./scale.js";
import { isOff } from "./scene.js";

/** @import { Palette } from "./colours.js" */
/** @import { Level, Matrix } from "./matrix.js" */
/** @import { Panel } from "./panel.js" */
/** @import { Pen } from "./pen.js" */
/** @import { Scale } from "./scale.js" */
/** @import { Viewport } from "./viewport.js" */

const WIDE = 34; // pixels of a cell for a number of two digits with a sign
const NUMBERS_FROM = { width: 21, height: 20, narrow: 30 }; // pixels of a cell from which it contains its weight
const SIGNS_FROM = 10; // pixels of a cell with the sign of a fall, which gray pictures need
const TILED = 20; // pixels of a cell from which it is a tile with round corners
const MOST_TILES = 2500;
const DOT = 6; // pixels of the mark of a relevant input
const LEAST_WRITTEN = 0.005; // smaller weights are not written
const MOST_DRAWN = 60_000; // rectangles of a saved picture; of more cells it contains an image
const ASIDE = 0.35; // opacity of the weights that a head had before it was switched off

export const heatmap = {
  /** @param {Panel} panel */
  fit(panel) {
    const { scene, width, height } = panel;
    panel.margins = labelMargins(scene.matrix, width, height, panel.titled);
    panel.viewport.fitInto(panel.margins, width, height);
  },

  /** @param {Pen} pen @param {Panel} panel */
  paint(pen, panel) {
    const { viewport, scene, head, colours, mark } = panel;
    const { left, top, width, height } = viewport;
    const { relevant } = scene.matrix;
    const least = Math.min(viewport.cell, viewport.rowCell);
    pen.clip({ x: left, y: top, width, height }, () => {
      const off = isOff(scene, head);
      paintCells(pen, panel, off ? ASIDE : 1);
      if (scene.scale.aside && !scene.changes) hatchFirst(pen, panel);
      if (least >= 9 && !tileGap(viewport)) paintGrid(pen, panel);
      const narrow = viewport.cell < WIDE;
      const high = viewport.rowCell >= (narrow ? NUMBERS_FROM.narrow : NUMBERS_FROM.height);
      const numbers = high && viewport.cell >= (scene.changes ? WIDE : NUMBERS_FROM.width * textScale());
      if (!off && (numbers || (scene.changes && least >= SIGNS_FROM)))
        writeWeights(pen, panel, numbers, narrow ? 12 * textScale() : undefined);
      const [side, edge] = [Math.min(DOT, least * 0.4), tileGap(viewport) + 1];
      for (const [query, key] of least >= 8 ? (relevant ?? []) : [])
        pen.rect(
          { x: viewport.x(key) + edge, y: viewport.y(query) + edge, width: side, height: side },
          { fill: "white", stroke: "#111", round: side / 2 },
        );
      if (off)
        pen.text(left + width / 2, top + height / 2, "switched off", {
          fill: colours.mark,
          align: "middle",
          bold: true,
        });
    });
    const y = viewport.y(mark.query);
    const own = scene.heads.length < 2 || head === scene.state.head;
    const frame = own ? { stroke: colours.mark, width: 2, round: 4 } : { stroke: colours.quiet, width: 1, round: 4 };
    const high = Math.max(viewport.rowCell, 2);
    if (y + viewport.rowCell >= top && y <= top + height) {
      pen.rect({ x: left, y, width, height: high }, frame);
      if (mark.key !== null)
        pen.rect({ x: viewport.x(mark.key), y, width: Math.max(viewport.cell, 2), height: high }, frame);
    }
    paintLabels(pen, panel);
  },

  /** @param {Panel} panel @param {number} x @param {number} y */
  under: ({ viewport }, x, y) => viewport.under(x, y),
};

/** The values of a panel with their halved versions. @param {Panel} panel */
function pyramidOf({ scene: { matrix, changes, before }, head, scene }) {
  const off = !changes && before && isOff(scene, head);
  const source = off ? before : matrix;
  const values = (changes ?? source.slices)[head];
  return cached(
    values,
    "pyramid",
    () => new Pyramid({ values, rows: matrix.rows, columns: matrix.columns }, !!changes),
  );
}

/** The colour of a value, as an index into `table`. @param {Panel} panel */
function colouring({ scene: { matrix, changes, largest, scale }, head, colours }) {
  const top = scale.top(matrix, head);
  return changes
    ? { table: colours.changes, at: (/** @type {number} */ value) => shade(value / largest, true) }
    : { table: colours.table, at: (/** @type {number} */ value) => shade(shareOf(value, top)) };
}

/** @param {Pen} pen @param {Panel} panel @param {number} opacity */
function paintCells(pen, panel, opacity) {
  const { viewport, scene, colours } = panel;
  const { row, column, width, height, cell, rowCell, rows, columns } = viewport;
  if (!rows || !columns) return;
  const { table, at } = colouring(panel);
  const pyramid = pyramidOf(panel);
  const apart = tileGap(viewport);
  if (apart || (pen.vector && rows * columns <= MOST_DRAWN)) {
    const { largest, scale, matrix, changes } = scene;
    const top = scale.top(matrix, panel.head);
    pyramid.level(0).values.forEach((value, index) => {
      const [x, y] = [viewport.x(index % columns) + apart / 2, viewport.y(Math.floor(index / columns)) + apart / 2];
      const colour = changes ? colours.change(value / largest) : colours.at(shareOf(value, top));
      const box = { x, y, width: cell - apart, height: rowCell - apart };
      pen.rect(box, { fill: cssColour(colour), opacity, round: 2 * apart });
    });
    return;
  }
  const ratio = devicePixelRatio || 1;
  const number = Math.max(0, Math.ceil(Math.log2(1 / (Math.max(cell, rowCell) * ratio))));
  const level = pyramid.level(number);
  const size = 2 ** number;
  const [top, left] = [Math.floor(row / size), Math.floor(column / size)];
  const high = Math.min(level.rows, Math.ceil((row + height / rowCell) / size)) - top;
  const wide = Math.min(level.columns, Math.ceil((column + width / cell) / size)) - left;
  const small = pixels(level, { top, left, high, wide }, (value) => table[at(value)]);
  const [x, y] = [viewport.x(left * size), viewport.y(top * size)];
  const smooth = size * Math.min(cell, rowCell) * ratio < 1; // narrow columns of high rows
  pen.image(small, { x, y, width: wide * size * cell, height: high * size * rowCell }, { smooth, opacity });
}

/** Pixels between cells that are drawn as tiles; 0 for small cells. @param {Viewport} viewport */
function tileGap({ cell, rowCell, rows, columns, factor }) {
  return factor === 1 && rows * columns <= MOST_TILES && Math.min(cell, rowCell) >= TILED ? 3 : 0;
}

/** @param {Pen} pen @param {Panel} panel */
function paintGrid(pen, { viewport, colours }) {
  const { left, top, width, height } = viewport;
  const line = { stroke: cssColour(colours.paper), width: 1 };
  for (let column = Math.ceil(viewport.column); viewport.x(column) <= left + width; column += 1)
    pen.line([viewport.x(column), top], [viewport.x(column), top + height], line);
  for (let row = Math.ceil(viewport.row); viewport.y(row) <= top + height; row += 1)
    pen.line([left, viewport.y(row)], [left + width, viewport.y(row)], line);
}

// Hatches the first key, which is left out of the scale.
/** @param {Pen} pen @param {Panel} panel */
function hatchFirst(pen, { viewport, colours }) {
  const { top, height } = viewport;
  const box = { x: viewport.x(0), y: top, width: Math.max(viewport.cell, 2), height };
  pen.rect(box, { fill: cssColour(colours.paper) });
  const [left, right] = [box.x, box.x + box.width];
  for (let y = top + 6; y < top + height; y += 6)
    pen.line([left, y], [right, y - Math.min(6, box.width)], { stroke: colours.ink, width: 0.7 });
}

/** @param {Pen} pen @param {Panel} panel @param {boolean} numbers or a minus where one fell @param {number} [size] */
function writeWeights(pen, panel, numbers, size) {
  const { viewport, scene, head, colours } = panel;
  const { matrix, changes, largest, scale } = scene;
  const top = scale.top(matrix, head);
  const values = (changes ?? matrix.slices)[head];
  const end = viewport.top + viewport.height;
  for (let row = Math.floor(viewport.row); row < matrix.rows && viewport.y(row) < end; row += 1) {
    if (!changes && row !== panel.mark.query) continue; // the weights of the selected row are written
    for (let column = Math.floor(viewport.column); column < matrix.columns; column += 1) {
      const x = viewport.x(column + 0.5);
      const value = values[row * matrix.columns + column];
      const written = numbers ? Math.abs(value) : -value;
      if (!(written >= LEAST_WRITTEN) || (scale.aside && !column) || x > viewport.left + viewport.width) continue;
      const colour = changes ? colours.change(value / largest) : colours.at(shareOf(value, top));
      const text = numbers ? shortNumber(value) : "−";
      pen.text(x, viewport.y(row + 0.5), text, { fill: inkOn(colour), align: "middle", size });
    }
  }
}

/** A number in few letters: `.59`, `1`. @param {number} value */
function shortNumber(value) {
  const text = value
    .toFixed(2)
    .replace(/^(-?)0\./, "$1.")
    .replace("-", "−");
  return text.replace(/\.00$/, "");
}

// Labels of rows and columns: horizontal where all fit, otherwise all columns upright.

const LABEL = 13; // height of a label in pixels, times the factor of the text
const LABELS_APART = 12; // pixels between labels
const MEASURED = 600; // labels measured to find the widest
const GAP = 6; // pixels between a label and the cells
const TITLE = 18; // pixels of the line with the titles

/** @typedef {{ left: number, top: number, upright: boolean }} Margins */

/** The width of the widest label; of a long list, of the first ones and of the longest. @param {string[]} labels */
export function widestLabel(labels) {
  if (labels.length <= MEASURED) return widestText(labels);
  const longest = labels.reduce((before, label) => (label.length > before.length ? label : before), "");
  return widestText([...labels.slice(0, MEASURED), longest]);
}

/**
 * Room for the labels in pixels, and whether keys are upright because one is wider than a column.
 * @param {Pick<Matrix, "queries" | "keys" | "columns">} matrix @param {number} width @param {number} height
 * @param {boolean} titled whether the titles of the axes are above
 * @returns {Margins}
 */
export function labelMargins(matrix, width, height, titled) {
  const factor = textScale();
  const left = Math.ceil(Math.min(widestLabel(matrix.queries) + GAP + 4, 180 * factor, width * 0.4));
  const across = widestLabel(matrix.keys);
  const upright = across + 4 > (width - left - 4) / Math.max(matrix.columns, 1);
  const tall = upright ? Math.min(across + GAP + 2, 150 * factor, height * 0.35) : LABEL * factor + GAP;
  return { left, top: Math.ceil((titled ? TITLE * factor : 4) + tall), upright };
}

/** Every n-th row or column can be labelled. @param {number} cell in pixels */
export function labelInterval(cell) {
  return Math.max(1, Math.ceil((LABELS_APART * textScale()) / cell));
}

/**
 * The labelled rows or columns from `first` on; marked ones are always labelled, instead of their neighbours.
 * @param {number} first @param {number} count
 * @param {number} length in pixels
 * @param {number} cell @param {number[]} marked
 */
export function labelledIndices(first, count, length, cell, marked) {
  const every = labelInterval(cell);
  const indices = [];
  for (let index = Math.ceil(first); index < count && (index - first) * cell < length; index += 1) {
    const near = every > 1 && marked.some((at) => Math.abs(index - at) < every);
    if (marked.includes(index) || (index % every === 0 && !near)) indices.push(index);
  }
  return indices;
}

/** The titles of the axes, and how many labels are left out. @param {Panel} panel */
export function axisLine({ viewport: { cell, rowCell }, scene, margins }) {
  const every = Math.max(labelInterval(rowCell), margins.upright ? labelInterval(cell) : 1);
  const [down, across] = axisTitles(scene);
  return `${every > 1 ? `(1 label in ${every})   ` : ""}↓ ${down}   → ${across}`;
}

/** @param {Pen} pen @param {Panel} panel */
function paintLabels(pen, panel) {
  const { viewport, scene, width, margins, colours, mark, titled } = panel;
  const { matrix } = scene;
  const { cell, rowCell, left, top, row, column } = viewport;
  const fill = colours.ink;
  for (const query of labelledIndices(row, matrix.rows, viewport.height, rowCell, [mark.query])) {
    const text = fitLabel(matrix.queries[query], left - GAP - 2, textWidth);
    pen.text(left - GAP, viewport.y(query + 0.5), text, { fill, align: "end", bold: query === mark.query });
  }
  const { upright } = margins;
  const high = top - (titled ? TITLE * textScale() : 4) - GAP;
  const marked = mark.key === null ? [] : [mark.key];
  for (const key of labelledIndices(column, matrix.columns, viewport.width, cell, marked)) {
    const bold = key === mark.key;
    if (upright)
      pen.text(viewport.x(key + 0.5), top - GAP, fitLabel(matrix.keys[key], high, textWidth), {
        fill,
        turned: true,
        bold,
      });
    else pen.text(viewport.x(key + 0.5), top - GAP - 5, matrix.keys[key], { fill, align: "middle", bold });
  }
  if (!titled) return;
  pen.text(0, (TITLE * textScale()) / 2 - 1, fitLabel(axisLine(panel), width, textWidth), { fill: colours.quiet });
}

// Small pictures of heads.

const FINE = 1.3; // canvas pixels per screen pixel at most: with more, thin diagonals become dashes

/**
 * The small picture of a head as a canvas.
 * @param {Matrix} matrix @param {number} head @param {Scale} scale @param {Palette} colours
 * @param {number} side pixels of its longer side
 */
export function thumbnail(matrix, head, scale, colours, side) {
  const limit = Math.ceil(FINE * side * (devicePixelRatio || 1));
  const top = scale.top(matrix, head);
  return cached(matrix, `thumbnail ${head} ${limit} ${top} ${scale.aside} ${colours.dark}`, () => {
    /** @type {Level} */
    let level = { values: matrix.slices[head], rows: matrix.rows, columns: matrix.columns };
    while (Math.max(level.rows, level.columns) > limit) level = halve(level);
    const all = { top: 0, left: 0, high: Math.max(level.rows, 1), wide: Math.max(level.columns, 1) };
    return pixels(level, all, (value) => colours.table[shade(shareOf(value, top))]);
  });
}

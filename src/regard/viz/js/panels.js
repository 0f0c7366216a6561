// The displayed heatmaps: of each head, and in a comparison also of the other map and the difference.

import { labelMargins } from "./painting.js";
import { node } from "./dom.js";
import { Heatmap } from "./heatmap.js";
import { cellSize, COARSE, TALLEST } from "./viewport.js";

/** @import { Actions, Scene, Surface } from "./scene.js" */

const GAP_BETWEEN = 16; // pixels
const SIDE_NAME = 24; // pixels for the title of the rows
const AROUND_HEATMAP = 46; // pixels of its title and the title of the columns
const ZOOM_BUTTONS = 30; // pixels
const LEAST_HEIGHT = 200; // pixels of a heatmap; of more than fit, one scrolls
const SMALL_CELL = 9; // pixels; of smaller cells, the rows of heatmaps scroll
const NARROW = 330; // pixels; determines the number of heads in a row
const NARROW_SIDE = 300; // pixels; the same for comparisons, which are in one row, or one each

/**
 * The number of panels in a row, such that all rows are equally long: of four panels two or four.
 * @param {number} count @param {number} limit
 */
export function panelsPerRow(count, limit) {
  return Math.ceil(count / Math.ceil(count / Math.max(1, Math.min(count, limit))));
}

/** Arranges figures in rows. @param {HTMLElement[]} figures @param {number} beside */
export function arrangePanels(figures, beside) {
  const box = node("div", { class: "panels" });
  box.style.gridTemplateColumns = `repeat(${beside}, minmax(0, max-content))`;
  box.append(...figures);
  return box;
}

/**
 * The number of heatmaps in a row: where the height is limited, the number that gives the largest cells.
 * @param {Scene} scene @param {Pick<Surface, "width" | "height">} surface
 */
export function heatmapsBeside(scene, { width, height }) {
  const sides = comparisonScenes(scene);
  const columns = Math.max(...sides.map((side) => side.matrix.columns));
  if (sides.length > 1) return width / sides.length >= Math.max(NARROW_SIDE, 14 * columns) ? sides.length : 1;
  const heads = scene.matrix.shown(scene.state).length;
  const usual = panelsPerRow(heads, Math.floor(width / Math.max(NARROW, 14 * columns)));
  if (height === null || heads === 1) return usual;
  const cells = Array.from({ length: heads }, (_, index) => {
    const beside = index + 1;
    const tallest = roomBelow(scene, width / beside, height / Math.ceil(heads / beside));
    const room = width / beside - GAP_BETWEEN - SIDE_NAME;
    return cellSize(scene.matrix, labelMargins(scene.matrix, room, tallest), room, tallest);
  });
  const largest = Math.max(...cells);
  return largest < SMALL_CELL ? usual : cells.indexOf(largest) + 1;
}

// The height of a heatmap below its titles: less by the buttons that zoom if cells are small.
/** @param {Scene} scene @param {number} width @param {number} height */
function roomBelow({ matrix }, width, height) {
  const tallest = height - AROUND_HEATMAP;
  const room = width - GAP_BETWEEN - SIDE_NAME;
  const cell = cellSize(matrix, labelMargins(matrix, room, tallest), room, tallest);
  return cell < COARSE ? tallest - ZOOM_BUTTONS : tallest;
}

/**
 * The heatmaps of the selected heads; matching ones of `before` are reused.
 * @param {Scene} scene @param {Actions} actions @param {Surface} surface @param {Map<string, Heatmap>} before
 */
export function heatmaps(scene, actions, surface, before) {
  const { matrix, layer, state } = scene;
  const heads = matrix.shown(state);
  const sides = comparisonScenes(scene);
  const beside = heatmapsBeside(scene, surface);
  const gap = beside > 1 ? GAP_BETWEEN : 0;
  const lines =
    sides.length > 1 ? (beside > 1 ? heads.length : heads.length * sides.length) : Math.ceil(heads.length / beside);
  const tallest = surface.height === null ? TALLEST : roomBelow(scene, surface.width / beside, surface.height / lines);
  const height = Math.max(tallest, LEAST_HEIGHT);
  const room = { ...surface, height, width: Math.floor(surface.width / beside) - gap - SIDE_NAME };
  /** @type {Map<string, Heatmap>} */
  const byHead = new Map();
  for (const head of heads) {
    for (const side of sides) {
      if (head >= side.matrix.heads) continue;
      const { rows, columns: wide } = side.matrix;
      const name = [layer.name, matrix.name(head), side.title ?? "", state.words, rows, wide].join(" ");
      const panel = before.get(name) ?? new Heatmap(head, side, room, actions);
      panel.show(side, room, byHead.size);
      byHead.set(name, panel);
    }
  }
  return byHead;
}

// The displayed map, the other map, and their difference if it exists.
/** @param {Scene} scene @returns {Scene[]} */
function comparisonScenes(scene) {
  const { beside, map } = scene;
  if (!beside) return [scene];
  const own = { ...scene, changes: null, title: `displayed: ${map.input}` };
  const data = { ...scene.data, importance: undefined }; // of the displayed map only
  const compared = { ...own, data, matrix: beside.matrix, before: null, title: `compared: ${beside.name}` };
  if (!beside.changes) return [own, compared];
  const changed = {
    ...own,
    data,
    changes: beside.changes,
    largest: beside.most,
    title: "difference: displayed minus compared",
  };
  return [own, compared, changed];
}

// The heatmaps that are shown: of each head, and where something stands beside the map, of that and of the difference.

import { Heatmap } from "./heatmap.js";

/** @import { Actions, Scene, Surface } from "./scene.js" */

const GAP_BETWEEN = 16; // pixels
const SIDE_NAME = 24; // room for what the rows are called, pixels
const NARROW = 330; // pixels: as many heads stand beside each other as are wider than that
const NARROW_SIDE = 300; // the same of what is compared, which stands in one line, or each in its own

/**
 * The heatmaps of the heads that are chosen; those of `before` that fit are taken again.
 *
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Surface} surface
 * @param {Map<string, Heatmap>} before
 */
export function heatmaps(scene, actions, surface, before) {
  const { matrix, layer, state } = scene;
  const heads = matrix.shown(state);
  const sides = besideEachOther(scene);
  const columns = Math.max(...sides.map((side) => side.matrix.columns));
  const together = sides.length > 1;
  const width = together
    ? roomOfSides(surface.width, sides.length, columns)
    : roomOf(surface.width, heads.length, columns);
  const room = { ...surface, width };
  /** @type {Map<string, Heatmap>} */
  const found = new Map();
  for (const head of heads) {
    for (const side of sides) {
      if (head >= side.matrix.heads) continue;
      const { rows, columns: wide } = side.matrix;
      const name = [layer.name, matrix.name(head), side.title ?? "", state.words, rows, wide].join(" ");
      const panel = before.get(name) ?? new Heatmap(head, side, room, actions);
      panel.show(side, room, found.size);
      // Whatever their captions say, what belongs together stands in one line.
      if (together) panel.figure.style.width = `${width + SIDE_NAME}px`;
      found.set(name, panel);
    }
  }
  return found;
}

/**
 * What is shown, what stands beside it, and the difference, where there is one.
 *
 * @param {Scene} scene
 * @returns {Scene[]}
 */
function besideEachOther(scene) {
  const { beside, map } = scene;
  if (!beside) return [scene];
  const own = { ...scene, changes: null, title: `shown: ${map.input}` };
  const data = { ...scene.data, importance: undefined }; // of what is shown only
  const other = { ...own, data, matrix: beside.matrix, before: null, title: `beside: ${beside.name}` };
  if (!beside.changes) return [own, other];
  const changed = {
    ...own,
    data,
    changes: beside.changes,
    largest: beside.most,
    title: "difference: shown less beside",
  };
  return [own, other, changed];
}

/**
 * What a heatmap has from side to side: as many as fit stand beside each other.
 *
 * @param {number} width
 * @param {number} heads
 * @param {number} columns
 */
function roomOf(width, heads, columns) {
  const most = Math.max(1, Math.min(heads, Math.floor(width / Math.max(NARROW, 14 * columns))));
  const beside = Math.ceil(heads / Math.ceil(heads / most)); // as many in every row
  return Math.floor(width / beside) - (beside > 1 ? GAP_BETWEEN : 0) - SIDE_NAME;
}

/**
 * The same of one head's map, what stands beside it, and the difference: all in one line, or one below the other.
 *
 * @param {number} width
 * @param {number} sides
 * @param {number} columns
 */
function roomOfSides(width, sides, columns) {
  const fit = width / sides >= Math.max(NARROW_SIDE, 14 * columns);
  return Math.floor(width / (fit ? sides : 1)) - (fit ? GAP_BETWEEN : 0) - SIDE_NAME;
}

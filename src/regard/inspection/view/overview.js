// All heads of all layers, small, on one scale.

import { shade } from "./colours.js";
import { node, oneTabStop } from "./dom.js";
import { signed } from "./labels.js";
import { pixels } from "./painting.js";
import { halved } from "./pyramid.js";

/** @import { LayerData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

const SIDE = 76; // of a head, pixels

/**
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Surface} surface
 */
export function overview(scene, actions, surface) {
  const grid = node("div", { class: "grid" });
  for (const layer of scene.map.layers) {
    const matrix = scene.shown(layer);
    const row = node("div", { class: "row" });
    row.append(node("span", {}, layer.title));
    const found = matrix.chosen(null).map((head) => thumbnail(scene, layer, head, actions, surface));
    oneTabStop(found, 0);
    row.append(...found);
    grid.append(row);
  }
  if (scene.data.importance) {
    grid.append(node("p", { class: "quiet" }, "Numbers: by how much the loss rises when the head is off."));
  }
  return grid;
}

/**
 * @param {Scene} scene
 * @param {LayerData} layer
 * @param {number} head
 * @param {Actions} actions
 * @param {Surface} surface
 */
function thumbnail({ data, shown, largest }, layer, head, actions, { colours }) {
  const added = data.importance?.[layer.name]?.[head];
  const name = `${layer.title}, head ${head}${added === undefined ? "" : `, without it loss ${signed(added)}`}`;
  const found = node("button", { type: "button", class: "thumb", title: name, "aria-label": name });
  found.dataset.name = `thumb-${layer.name}-${head}`;
  const canvas = small(shown(layer), head, (value) => colours.table[shade(value / largest)]);
  found.append(canvas, node("span", {}, `head ${head}${added === undefined ? "" : ` ${signed(added)}`}`));
  found.addEventListener("click", () => {
    actions.choose({ layer: layer.name, head, mode: "heatmap", query: 0, key: null });
  });
  return found;
}

/**
 * @param {Matrix} matrix
 * @param {number} head
 * @param {(value: number) => number} colour
 */
function small({ slices, rows, columns }, head, colour) {
  let level = { values: slices[head], rows, columns };
  const ratio = devicePixelRatio || 1;
  while (Math.max(level.rows, level.columns) > SIDE * ratio) level = halved(level);
  if (!level.rows || !level.columns) return node("canvas", { width: 1, height: 1 });
  const canvas = pixels(level, { top: 0, left: 0, high: level.rows, wide: level.columns }, colour);
  const most = Math.max(rows, columns);
  canvas.style.width = `${Math.max(4, (SIDE * columns) / most)}px`;
  canvas.style.height = `${Math.max(4, (SIDE * rows) / most)}px`;
  canvas.setAttribute("aria-hidden", "true");
  canvas.style.imageRendering = "pixelated";
  return canvas;
}

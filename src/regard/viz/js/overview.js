// A gallery of all heads of all layers on one scale, with role and importance of each, if known.

import { shade } from "./colours.js";
import { checkbox, node, oneTabStop } from "./dom.js";
import { headName } from "./labels.js";
import { pixels } from "./painting.js";
import { halve } from "./pyramid.js";
import { shortRole, headRole, roleSentence } from "./roles.js";
import { shortImportance, headImportance } from "./importance.js";

/** @import { Palette } from "./colours.js" */
/** @import { LayerData, WorthData } from "./data.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

const SIDE = 76; // pixels of a head

/** @typedef {{ layer: LayerData, head: number, worth: WorthData | undefined }} Small */

/**
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Surface} surface
 */
export function overview(scene, actions, surface) {
  const { data, state } = scene;
  const { importance, roles } = data;
  const grid = node("div", { class: "grid" });
  if (importance) {
    grid.append(checkbox("sorted by importance", state.sorted, (sorted) => actions.choose({ sorted })));
  }
  const sorted = state.sorted && importance !== undefined;
  for (const heads of galleryRows(scene)) {
    const row = node("div", { class: "row" });
    if (!sorted) row.append(node("span", {}, heads[0]?.layer.title ?? ""));
    const thumbnails = heads.map((head) => thumbnail(scene, head, sorted, actions, surface));
    oneTabStop(thumbnails, 0);
    row.append(...thumbnails);
    grid.append(row);
  }
  const parts = [];
  if (importance)
    parts.push("Signed numbers: the loss increase when the head is off, in brackets if it is not significant.");
  if (roles && Object.keys(roles).length)
    parts.push(
      "Words: the role of the head over many samples, and its strength (0: uniform attention, 1: this role alone).",
    );
  if (parts.length) grid.append(node("p", { class: "quiet" }, parts.join(" ")));
  return grid;
}

/**
 * All heads, a row for each layer; in a single row if they are sorted by importance.
 *
 * @param {Scene} scene
 */
export function galleryRows(scene) {
  const rows = scene.map.layers.map((layer) => smallMatrix(scene, layer));
  return scene.state.sorted && scene.data.importance ? [rows.flat().sort(byImportance)] : rows;
}

/**
 * @param {Scene} scene
 * @param {LayerData} layer
 * @returns {Small[]}
 */
function smallMatrix({ data, shown }, layer) {
  return shown(layer)
    .chosen(null)
    .map((head) => ({ layer, head, worth: headImportance(data, layer.name, head) }));
}

/**
 * @param {Small} first
 * @param {Small} second
 */
function byImportance(first, second) {
  return (second.worth?.added ?? 0) - (first.worth?.added ?? 0);
}

/**
 * @param {Scene} scene
 * @param {Small} item
 * @param {boolean} named whether the layer is shown
 * @param {Actions} actions
 * @param {Surface} surface
 */
function thumbnail(scene, item, named, actions, { colours }) {
  const { data } = scene;
  const { layer, head, worth } = item;
  const role = headRole(data, layer.name, head);
  const short = worth ? ` ${shortImportance(worth)}` : "";
  const parts = [`${layer.title}, ${headName(layer, head)}`];
  if (worth) parts.push(`without it loss${short}`);
  if (role) parts.push(roleSentence(role));
  const element = node("button", { type: "button", class: "thumb", title: parts.join(", ") });
  element.dataset.name = `thumb-${layer.name}-${head}`;
  const { canvas, width, height } = thumbPixels(scene, item, colours);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.setAttribute("aria-hidden", "true");
  canvas.style.imageRendering = "pixelated";
  if (!named) element.append(node("span", { class: "unseen" }, `${layer.title}, `));
  element.append(canvas, node("span", {}, `${headName(layer, head)}${short}`));
  if (named) element.append(node("span", { class: "quiet" }, layer.title));
  if (role) element.append(node("span", { class: role.role ? "role" : "role quiet" }, shortRole(role)));
  element.addEventListener("click", () => {
    actions.choose({ layer: layer.name, head, mode: null, query: 0, key: null });
  });
  return element;
}

/**
 * The weights of a head in at most one pixel each, and the size of the thumbnail.
 *
 * @param {Scene} scene
 * @param {Small} small
 * @param {Palette} colours
 */
export function thumbPixels({ shown, scale }, { layer, head }, colours) {
  const matrix = shown(layer);
  const { slices, rows, columns } = matrix;
  const { share } = scale.of(matrix, head);
  let level = { values: slices[head], rows, columns };
  const ratio = devicePixelRatio || 1;
  while (Math.max(level.rows, level.columns) > SIDE * ratio) level = halve(level);
  const longest = Math.max(rows, columns, 1);
  const size = { width: Math.max(4, (SIDE * columns) / longest), height: Math.max(4, (SIDE * rows) / longest) };
  if (!level.rows || !level.columns) return { canvas: node("canvas", { width: 1, height: 1 }), ...size };
  const all = { top: 0, left: 0, high: level.rows, wide: level.columns };
  return { canvas: pixels(level, all, (value) => colours.table[shade(share(value))]), ...size };
}

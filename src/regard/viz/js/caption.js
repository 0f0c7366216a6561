// The caption of a heatmap: head, layer or comparison, and the importance of the head.

import { node } from "./dom.js";
import { layerTitle } from "./layer-names.js";
import { shortImportance, headImportance } from "./importance.js";
import { ownRange } from "./scale.js";

/** @import { Scene } from "./scene.js" */

/**
 * @param {number} head
 * @param {Scene} scene
 */
export function makeCaption(head, scene) {
  const { data, map, layer, matrix, state, title } = scene;
  const parts = [
    node("b", {}, matrix.heads > 1 || matrix.names ? matrix.name(head) : layerTitle(layer, map.layers)),
  ];
  if (matrix.heads > 1 && !matrix.names && !title)
    parts.push(node("span", { class: "quiet", title: layer.title }, layerTitle(layer, map.layers)));
  const range = ownRange(scene, head);
  if (range) parts.push(node("span", { class: "quiet" }, range));
  if (title) parts.push(node("span", {}, title));
  const known = !matrix.names && state.frame === null; // importance describes heads of the trained model
  const worth = headImportance(data, layer.name, head, !known);
  if (worth) parts.push(node("span", { class: "quiet" }, `off: loss ${shortImportance(worth)}`));
  return parts;
}

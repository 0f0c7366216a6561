// The overview: the poster of all heads with role and importance, and measures as bars and as a matrix.

import { buttonGroup, checkbox, node } from "./dom.js";
import { chosenMeasure } from "./measures.js";
import { measureBars, measureMatrix, measureTable } from "./measure-charts.js";
import { headCount } from "./packing.js";
import { poster, posterRows } from "./poster.js";

/** @import { Actions, Scene, Surface } from "./scene.js" */

const CHARTS = /** @type {const} */ (["heads", "bars", "matrix"]);
const LEAST_SIDE = 14; // pixels of a picture
const LARGEST_SIDE = 84;
const APART_THUMBS = 6;
const NAMES_ROOM = 40; // pixels of the layers' names

/**
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Surface} surface
 */
export function overview(scene, actions, surface) {
  const { data, state } = scene;
  const measured = chosenMeasure(scene);
  const box = node("div", { class: "overview" });
  const bar = node("div", { class: "bar" });
  const names = ["Heads", `Bars: ${measured.title}`, `Matrix: ${measured.title}`];
  const at = CHARTS.indexOf(state.chart);
  bar.append(buttonGroup("Overview", names, at, (index) => actions.choose({ chart: CHARTS[index] })));
  if (data.importance && state.chart === "heads")
    bar.append(checkbox("sorted by importance", state.sorted, (sorted) => actions.choose({ sorted })));
  box.append(bar);
  if (state.chart === "heads") {
    const heads = Math.max(...scene.map.layers.map(headCount), 1);
    const room = (surface.width - NAMES_ROOM) / Math.min(heads, posterRows(scene)[0].length) - APART_THUMBS;
    const side = Math.round(Math.max(LEAST_SIDE, Math.min(LARGEST_SIDE * surface.factor, room)));
    box.append(poster(scene, actions, surface, { side, kind: "thumb" }), ...notes(scene));
    return box;
  }
  const chart = state.chart === "bars" ? measureBars : measureMatrix;
  const picture = node("div", { class: "chart" });
  picture.append(chart(scene, surface.colours, surface.width - 12));
  const numbers = node("details");
  numbers.append(node("summary", {}, "The numbers"), measureTable(scene));
  box.append(node("p", { class: "quiet" }, `${measured.title}: ${measured.unit}.`), picture, numbers);
  return box;
}

/** @param {Scene} scene */
function notes(scene) {
  const { importance, roles } = scene.data;
  const measured = chosenMeasure(scene);
  const parts = [`The bar below each head: ${measured.title} (${measured.unit}).`];
  if (importance)
    parts.push("Signed numbers: the loss increase when the head is off, in brackets if it is not significant.");
  if (roles && Object.keys(roles).length)
    parts.push(
      "Words: the role of the head over many samples, and its strength (0: uniform attention, 1: this role alone).",
    );
  return [node("p", { class: "quiet" }, parts.join(" "))];
}

// What the colours stand for.

import { css } from "./colours.js";
import { brush, node } from "./dom.js";
import { litColour } from "./overlay.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

const SCALE_WIDTH = 120;
const SCALE_HEIGHT = 10;
/** @type {Record<string, string>} */
const OF = {
  overview: "the same for all layers and heads",
  flow: "the same for all layers",
  picture: "the largest that the query has on a patch, the same for all heads",
};

/**
 * @param {Scene} scene
 * @param {Palette} colours
 */
export function legend({ beside, changes, largest, layer, state }, colours) {
  const canvas = node("canvas", { width: SCALE_WIDTH, height: SCALE_HEIGHT, "aria-hidden": "true" });
  fill(canvas, (share) => {
    if (state.mode === "picture") return litColour(share);
    return changes ? colours.change(2 * share - 1) : colours.at(share);
  });
  const most = largest.toFixed(3);
  const bar = node("p", { class: "legend" });
  const of = OF[/** @type {string} */ (state.mode)] ?? "the same for all heads";
  bar.append(changes ? "change of the weight −" : "weight 0", changes ? most : "", canvas);
  bar.append(`${changes ? "+" : ""}${most}, ${of}`);
  if (layer.relevant && state.mode === "heatmap")
    bar.append(node("span", {}, "○ the output depends on this input"));
  if (beside?.changes && state.mode === "heatmap") {
    const scale = node("canvas", { width: SCALE_WIDTH, height: SCALE_HEIGHT, "aria-hidden": "true" });
    fill(scale, (share) => colours.change(2 * share - 1));
    bar.append(`; difference −${beside.most.toFixed(3)}`, scale, `+${beside.most.toFixed(3)}`);
  }
  return bar;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {(share: number) => number[]} colour
 */
function fill(canvas, colour) {
  const context = brush(canvas);
  for (let x = 0; x < SCALE_WIDTH; x += 1) {
    context.fillStyle = css(colour(x / (SCALE_WIDTH - 1)));
    context.fillRect(x, 0, 1, SCALE_HEIGHT);
  }
}

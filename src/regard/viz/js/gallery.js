// The overview as an SVG picture: the poster of all heads, or the displayed chart.

import { svg } from "./dom.js";
import { textWidth } from "./text-width.js";
import { measureBars, measureMatrix } from "./measure-charts.js";
import { chosenMeasure } from "./measures.js";
import { posterPicture } from "./poster-picture.js";
import { AROUND, PANEL, pictureTitle, sheet, TITLE } from "./sheet.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

/**
 * All heads of all layers in the displayed order, or the displayed chart.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
export function galleryPicture(scene, colours) {
  return scene.state.chart === "heads" ? posterPicture(scene, colours) : chartPicture(scene, colours);
}

/**
 * @param {Scene} scene
 * @param {Palette} colours
 */
function chartPicture(scene, colours) {
  const { state } = scene;
  const { title, unit } = chosenMeasure(scene);
  const drawn = (state.chart === "bars" ? measureBars : measureMatrix)(scene, colours, PANEL);
  const [width, height] = ["width", "height"].map((name) => Number(drawn.getAttribute(name)));
  const line = `${title}: ${unit}`;
  const wide = Math.max(width, textWidth(line), PANEL / 2) + 2 * AROUND;
  const picture = sheet(wide, height + 2 * AROUND + 2 * TITLE, colours);
  picture.append(pictureTitle(scene, wide), svg("text", { x: AROUND, y: AROUND + TITLE }, line));
  const group = svg("g", { transform: `translate(${AROUND} ${AROUND + 1.5 * TITLE})` });
  group.append(...drawn.children);
  picture.append(group);
  return picture;
}

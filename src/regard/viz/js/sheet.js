// The frame of all saved pictures: paper, margins, and a line with the legend.

import { captionLines, collectMetadata } from "./metadata.js";
import { cssColour } from "./colours.js";
import { svg } from "./dom.js";
import { fitLabel } from "./labels.js";
import { FAMILY, textWidth, widestText } from "./text-width.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

export const PANEL = 900; // maximal width of a panel in pixels
export const AROUND = 24; // pixels around and between panels
const LEAST_TITLE = 320; // pixels
export const TITLE = 22; // height of a line of text in pixels

/**
 * An empty picture.
 *
 * @param {number} width
 * @param {number} height
 * @param {Palette} colours
 */
export function sheet(width, height, colours) {
  const [wide, high] = [Math.ceil(width), Math.ceil(height)];
  const text = { "font-family": FAMILY, "font-size": 12, fill: colours.ink };
  const picture = svg("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, ...text });
  picture.append(svg("rect", { width: wide, height: high, fill: cssColour(colours.paper) }));
  return picture;
}

/**
 * The title of a picture, cut at its width; the whole input is in the description.
 *
 * @param {Scene} scene
 * @param {number} width of the picture in pixels
 * @param {number} [size] of the text in pixels
 */
export function pictureTitle({ map }, width, size = 12) {
  const words = `${map.task}: ${map.input}`.replace(/\s+/g, " ");
  const room = Math.max(width - 2 * AROUND, LEAST_TITLE);
  const text = { x: AROUND, y: AROUND + size / 3, "font-weight": "bold", "font-size": size };
  return svg("text", text, fitLabel(words, (12 * room) / size, textWidth));
}

/**
 * @param {SVGSVGElement} picture
 * @param {SVGGElement} key room for the legend
 * @param {number} y
 * @param {number} [factor] of its size
 */
export function placeKey(picture, key, y, factor = 1) {
  key.setAttribute("transform", `translate(${AROUND} ${y}) scale(${factor})`);
  picture.append(key);
}

/**
 * A picture with a caption below it and its metadata as the description.
 *
 * @param {SVGSVGElement} picture
 * @param {Scene} scene
 * @param {Palette} colours
 */
export function withFacts(picture, scene, colours) {
  const facts = collectMetadata(scene, colours);
  const lines = captionLines(scene);
  const [wide, high] = ["width", "height"].map((name) => Number(picture.getAttribute(name)));
  const width = Math.max(wide, Math.ceil(widestText(lines)) + 2 * AROUND);
  const height = high + lines.length * TITLE;
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
    picture.setAttribute(name, String(value));
  }
  for (const [name, value] of Object.entries({ width, height }))
    picture.querySelector("rect")?.setAttribute(name, String(value));
  lines.forEach((line, place) => {
    picture.append(svg("text", { x: AROUND, y: high + (place + 0.4) * TITLE, class: "caption" }, line));
  });
  picture.prepend(
    svg("title", {}, `${scene.map.task}: ${scene.map.input}`),
    svg("desc", {}, facts.map(([name, text]) => `${name}: ${text}`).join("\n")),
  );
  return picture;
}

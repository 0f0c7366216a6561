// What all pictures that are saved have: paper, room around, and a line at the end that says what the colours stand for.

import { css } from "./colours.js";
import { svg } from "./dom.js";
import { FAMILY } from "./measuring.js";

/** @import { Palette } from "./colours.js" */

export const PANEL = 900; // of a panel at most, pixels
export const AROUND = 24; // around and between panels
export const TITLE = 22; // height of a line of text

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
  picture.append(svg("rect", { width: wide, height: high, fill: css(colours.paper) }));
  return picture;
}

/**
 * @param {SVGSVGElement} picture
 * @param {SVGGElement} key what the colours stand for
 * @param {number} y
 */
export function placeKey(picture, key, y) {
  key.setAttribute("transform", `translate(${AROUND} ${y})`);
  picture.append(key);
}

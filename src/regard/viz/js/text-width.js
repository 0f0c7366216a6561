// Widths of texts on the screen, measured in the font of the labels.

import { canvasContext, node } from "./dom.js";

export const FAMILY = "system-ui, sans-serif";
const SIZE = 12; // pixels
const MOST_KEPT = 20_000; // cached widths

/** @type {Map<string, number>} */
const widths = new Map();
/** @type {CanvasRenderingContext2D | undefined} */
let context;

/** The font of labels, as CSS. */
export function font(bold = false) {
  return `${bold ? "bold " : ""}${SIZE}px ${FAMILY}`;
}

/**
 * The width of a label in pixels, in bold, since any label may be marked.
 *
 * @param {string} text
 */
export function textWidth(text) {
  const known = widths.get(text);
  if (known !== undefined) return known;
  if (widths.size > MOST_KEPT) widths.clear();
  if (!context) {
    context = canvasContext(node("canvas"));
    context.font = font(true);
  }
  const width = context.measureText(text).width;
  widths.set(text, width);
  return width;
}

/**
 * The width of the widest label.
 *
 * @param {string[]} labels
 */
export function widestText(labels) {
  return labels.reduce((width, label) => Math.max(width, textWidth(label)), 0);
}

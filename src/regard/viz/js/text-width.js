// Widths of texts on the screen, measured in the font of the labels.

import { canvasContext, node } from "./dom.js";

export const FAMILY = "system-ui, sans-serif";
const SIZE = 12; // pixels
const MOST_KEPT = 20_000; // cached widths

let scale = 1;

/** @type {Map<string, number>} */
const widths = new Map();
/** @type {CanvasRenderingContext2D | undefined} */
let context;

/**
 * Sets the factor of labels on a large screen; saved pictures have the factor 1.
 *
 * @param {number} factor
 */
export function setTextScale(factor) {
  scale = factor;
}

/** The factor of labels. */
export function textScale() {
  return scale;
}

/** The font of labels, as CSS. */
export function font(bold = false) {
  return `${bold ? "bold " : ""}${SIZE * scale}px ${FAMILY}`;
}

/**
 * The width of a label in pixels, in bold, since any label may be marked.
 *
 * @param {string} text
 */
export function textWidth(text) {
  const known = widths.get(text);
  if (known !== undefined) return known * scale;
  if (widths.size > MOST_KEPT) widths.clear();
  if (!context) {
    context = canvasContext(node("canvas"));
    context.font = `bold ${SIZE}px ${FAMILY}`;
  }
  const width = context.measureText(text).width;
  widths.set(text, width);
  return width * scale;
}

/**
 * The width of the widest label.
 *
 * @param {string[]} labels
 */
export function widestText(labels) {
  return labels.reduce((width, label) => Math.max(width, textWidth(label)), 0);
}

// The weights of one query on the patches of an image. Steps that are not patches, such as the class token, are words
// above it.

import { cssColour } from "./colours.js";
import { textScale, textWidth } from "./dom.js";
import { percent } from "./labels.js";
import { imagePatches } from "./scene.js";

/** @import { Panel } from "./panel.js" */
/** @import { Patches } from "./scene.js" */
/** @import { Pen } from "./pen.js" */

const LARGEST_COLOUR = [255, 106, 0]; // the largest weight: differs from the greys of light and dark images
const IMAGE_COLOUR = [150, 150, 150]; // the image in the colour scale
const OPACITY = 0.85; // maximal opacity, so that the image stays visible
const MOST_STEPS = 5; // steps that are not patches and have a word
const STEP_LINE = 26; // pixels of their line

/** The colour of a share of the largest weight, as in the scale. @param {number} share */
export function overlayColour(share) {
  return IMAGE_COLOUR.map((channel, index) => channel + OPACITY * share * (LARGEST_COLOUR[index] - channel));
}

/** @type {Map<string, HTMLImageElement>} */
const images = new Map();

export const overlay = {
  /** @param {Panel} panel */
  fit(panel) {
    const { rows, columns } = patchesOf(panel);
    const top = STEP_LINE * textScale();
    const cell = Math.max(2, Math.min(panel.width / columns, (panel.height - top) / rows));
    panel.margins = { left: 0, top, upright: false };
    panel.image = { x: 0, y: top, width: cell * columns, height: cell * rows };
  },

  /** @param {Pen} pen @param {Panel} panel */
  paint(pen, panel) {
    const { scene, head, mark, image: box } = panel;
    const { map, matrix, largest } = scene;
    const { first, rows, columns } = patchesOf(panel);
    const cell = box.width / columns;
    const source = images.get(map.picture ?? "") ?? new Image();
    if (!source.src) {
      source.src = map.picture ?? "";
      images.set(source.src, source);
    }
    if (source.complete) pen.image(source, box, { grey: true, smooth: true });
    else source.addEventListener("load", () => panel.draw(), { once: true });
    /** @param {number} patch */
    const place = (patch) => ({
      x: box.x + (patch % columns) * cell,
      y: box.y + Math.floor(patch / columns) * cell,
      ...{ width: cell, height: cell },
    });
    matrix
      .row(matrix.slices[head], mark.query)
      .subarray(first, first + rows * columns)
      .forEach((weight, patch) => {
        pen.rect(place(patch), { fill: cssColour(LARGEST_COLOUR), opacity: OPACITY * Math.min(weight / largest, 1) });
      });
    /** @param {number | null} step @param {number} thick */
    const ring = (step, thick) => {
      if (step === null || step < first || step >= first + rows * columns) return;
      pen.rect(place(step - first), { stroke: "black", width: 2 * thick });
      pen.rect(place(step - first), { stroke: "white", width: thick });
    };
    if (matrix.rows === matrix.columns) ring(mark.query, 2.5);
    ring(mark.key, 1.25);
    for (const { step, x, text } of otherSteps(panel))
      pen.text(x, box.y / 2, text, { fill: panel.colours.ink, bold: step === mark.query });
  },

  /** @param {Panel} panel @param {number} x @param {number} y */
  under(panel, x, y) {
    const { image: box, scene } = panel;
    const { first, rows, columns } = patchesOf(panel);
    if (y < box.y) {
      const step = otherSteps(panel).find((word) => x >= word.x && x < word.end)?.step;
      return step === undefined ? null : { query: step };
    }
    const [column, row] = [((x - box.x) / box.width) * columns, ((y - box.y) / box.height) * rows].map(Math.floor);
    if (column < 0 || column >= columns || row >= rows) return null;
    return { key: Math.min(first + row * columns + column, scene.matrix.columns - 1) };
  },
};

/** @param {Panel} panel */
function patchesOf({ scene: { map, layer } }) {
  return /** @type {Patches} */ (imagePatches(map, layer));
}

/** The words of the steps that are not patches, each with its weight and its place. @param {Panel} panel */
function otherSteps(panel) {
  const { scene, head, mark } = panel;
  const { matrix } = scene;
  const { first, rows, columns } = patchesOf(panel);
  let x = 0;
  return matrix.keys
    .flatMap((_, step) => (step < first || step >= first + rows * columns ? [step] : []))
    .slice(0, MOST_STEPS)
    .map((step) => {
      const text = `${matrix.keys[step]} ${percent(matrix.at(head, mark.query, step))}`;
      const word = { step, x, text, end: x + textWidth(text) + 12 };
      x = word.end;
      return word;
    });
}

// Each head as a heatmap: queries down, keys across.

import { button, node } from "./dom.js";
import { listen } from "./gestures.js";
import { signed } from "./labels.js";
import { paint } from "./painting.js";
import { Pyramid } from "./pyramid.js";
import { Viewport } from "./viewport.js";

/** @import { Matrix } from "./matrix.js" */
/** @import { Marked } from "./painting.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

/** One head on a canvas. */
export class Heatmap {
  /**
   * @param {number} head
   * @param {number} place among the heatmaps
   * @param {Scene} scene
   * @param {Surface} surface
   */
  constructor(head, place, { matrix, changes, largest, state }, { colours, width }) {
    const { queries, keys, relevant, rows, columns } = matrix;
    const margins = marginsOf(matrix, width);
    this.canvas = node("canvas", {
      tabindex: 0,
      role: "img",
      "data-name": `heatmap-${place}`,
      "aria-label": `Weights of head ${head}: ${rows} queries, ${columns} keys; arrow keys move`,
    });
    this.viewport = new Viewport(matrix, margins, width);
    this.picture = {
      viewport: this.viewport,
      pyramid: new Pyramid({ values: (changes ?? matrix.slices)[head], rows, columns }, changes !== null),
      changing: changes !== null,
      largest,
      queries,
      keys,
      upright: margins.upright,
      relevant,
      colours,
    };
    /** @type {Marked} */
    this.marked = state;
    this.frame = 0;
  }

  /**
   * Mark a row, and a cell in it.
   *
   * @param {number} query
   * @param {number | null} key
   */
  mark(query, key) {
    this.marked = { query, key };
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => paint(this.canvas, this.picture, this.marked));
  }
}

/**
 * The heatmaps of the heads that are chosen, to be drawn when they are in the page, and what they stand in.
 *
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Surface} surface
 */
export function heatmaps(scene, actions, surface) {
  const { matrix, state } = scene;
  const element = node("div", { class: "panels" });
  const panels = matrix.chosen(state.head).map((head, place) => {
    const panel = new Heatmap(head, place, scene, surface);
    listen({
      canvas: panel.canvas,
      viewport: panel.viewport,
      chosen: () => state,
      onPoint: (query, key) => actions.point(query, key, head),
      onChoose: (query, key) => actions.choose({ query, key, focus: head }),
      onHead: (by) => actions.choose({ head: (state.focus + by + matrix.heads) % matrix.heads }),
      draw: () => panel.draw(),
    });
    const figure = node("figure");
    figure.append(captionOf(panel, head, scene), panel.canvas);
    element.append(figure);
    return panel;
  });
  return { element, panels };
}

/**
 * @param {Heatmap} panel
 * @param {number} head
 * @param {Scene} scene
 */
function captionOf(panel, head, { data, layer, matrix }) {
  const caption = node("figcaption", {}, matrix.heads > 1 ? `head ${head}` : layer.title);
  const added = data.importance?.[layer.name]?.[head];
  if (added !== undefined) caption.append(node("span", { class: "quiet" }, `off: loss ${signed(added)}`));
  const { viewport } = panel;
  if (!viewport.zoomable) return caption;
  /** @param {() => void} change */
  const drawn = (change) => () => {
    change();
    panel.draw();
  };
  caption.append(
    button(
      "+",
      drawn(() => viewport.zoom(2)),
    ),
    button(
      "−",
      drawn(() => viewport.zoom(0.5)),
    ),
    button(
      "fit",
      drawn(() => viewport.fit()),
    ),
  );
  return caption;
}

/**
 * Room for the labels, in pixels, and whether the keys' are written upwards.
 *
 * @param {Matrix} matrix
 * @param {number} available
 */
function marginsOf({ queries, keys }, available) {
  const upright = longest(keys) > 3;
  return {
    upright,
    left: Math.min(14 + 7 * longest(queries), 130, available * 0.35),
    top: upright ? Math.min(12 + 7 * longest(keys), 110) : 20,
  };
}

/**
 * Characters of the longest label, or of the longest of the first.
 *
 * @param {string[]} labels
 */
function longest(labels) {
  return labels.slice(0, 400).reduce((most, label) => Math.max(most, label.length), 1);
}

// The picture of the chosen head or layer, in the chosen way to draw.

import { arcs } from "./arcs.js";
import { node, Part } from "./dom.js";
import { effectPanels, effectSurface } from "./effect.js";
import { lines } from "./lines.js";
import { overview } from "./overview.js";
import { overlays } from "./overlay.js";
import { arrangePanels, heatmaps, heatmapsBeside } from "./panels.js";
import { markTiles } from "./poster.js";
import { tables } from "./table.js";

/** @import { Heatmap } from "./heatmap.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

const MOST_DRAWN = 160; // of more tokens, lines and tables show those around the chosen one

export class Stage {
  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    this.part = new Part("stage");
    this.element = this.part.element;
    /** @type {Map<string, Heatmap>} */
    this.panels = new Map();
  }

  /** @param {string} reason */
  showNothing(reason) {
    this.panels = new Map();
    this.part.show([reason], () => [node("p", { class: "quiet" }, reason)]);
  }

  /**
   * @param {Scene} scene
   * @param {Surface} whole
   * @param {Actions} actions
   */
  show(scene, whole, actions = this.actions) {
    const surface = scene.effect ? effectSurface(whole) : whole;
    const { map, layer, matrix, changes, largest, state, data, scale } = scene;
    this.panels = ["heatmap", "flow"].includes(state.mode)
      ? heatmaps(scene, actions, surface, this.panels)
      : new Map();
    const figures = [...this.panels.values()].map((panel) => panel.figure);
    const room = [surface.width, surface.height];
    const inputs = [map, matrix, changes, largest, state.head, data.importance, surface.colours, ...room];
    const wanted = [state.off, state.least, state.top, state.sorted, state.chart, state.measure, data.roles];
    const large = Math.max(matrix.rows, matrix.columns) > MOST_DRAWN && state.mode === "table";
    const lined = ["lines", "arcs", "picture"].includes(state.mode);
    const place = large || lined ? [state.query, state.key] : [];
    const panels = () =>
      scene.effect
        ? effectPanels(figures[0], scene, whole)
        : arrangePanels(figures, heatmapsBeside(scene, surface));
    const make = {
      picture: () => overlays(scene, actions, surface),
      heatmap: panels,
      lines: () => lines(scene, actions, surface),
      arcs: () => arcs(scene, actions, surface),
      flow: panels,
      table: () => tables(scene, actions),
      overview: () => overview(scene, actions, surface),
    };
    const coloured = [scale.name, state.aside, ...inputs, ...wanted, ...place];
    const reused = [...figures, ...room, ...(scene.effect ? coloured : [])];
    this.part.show([state.mode, scene.effect, ...(this.panels.size ? reused : coloured)], () => [
      make[state.mode](),
    ]);
    if (state.mode === "overview") markTiles(this.element, { ...scene, layer }, [], "thumb");
    for (const panel of this.panels.values()) surface.onPaper ? panel.drawNow() : panel.draw();
  }

  /**
   * Marks a row, and optionally a cell in it.
   *
   * @param {number} query
   * @param {number | null} key
   */
  mark(query, key) {
    for (const panel of this.panels.values()) panel.mark(query, key);
  }
}

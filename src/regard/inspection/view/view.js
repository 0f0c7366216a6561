// The view: keeps what is chosen, and puts its parts together whenever that changes.

import { answer } from "./answer.js";
import { isDark, palette } from "./colours.js";
import { keepFocus, node } from "./dom.js";
import { heatmaps } from "./heatmap.js";
import { legend } from "./legend.js";
import { lines } from "./lines.js";
import { overview } from "./overview.js";
import { Player } from "./playback.js";
import { Readout } from "./readout.js";
import { layersNeeded, sceneOf } from "./scene.js";
import { fitted, layerOf, START } from "./state.js";
import { adopt } from "./style.js";
import { observe } from "./surroundings.js";
import { Tokens } from "./tokens.js";
import { toolbar } from "./toolbar.js";
import { touchBar, touched } from "./touch.js";
import { Weights } from "./weights.js";

/** @import { InterventionData, ViewData } from "./data.js" */
/** @import { Heatmap } from "./heatmap.js" */
/** @import { Exact } from "./readout.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */
/** @import { State } from "./state.js" */

/**
 * @typedef {object} Options
 * @property {Exact} [exact] asks for a row's weights as they were computed, where those at hand are rounded
 * @property {(interventions: InterventionData[]) => void} [touch] called with all interventions when heads are
 * switched or a weight is set; without it nothing can be touched
 */

/**
 * @typedef {object} Drawn what is drawn, where there is attention
 * @property {Scene} scene
 * @property {HTMLElement} stage where heatmaps, lines or overview stand
 * @property {Heatmap[]} panels
 * @property {Tokens} tokens
 * @property {Readout} readout
 * @property {number} width for which the stage was drawn
 */

export class View {
  /**
   * @param {Element} element
   * @param {Options} options
   */
  constructor(element, options) {
    this.options = options;
    /** @type {ViewData} */
    this.data = { maps: [] };
    /** @type {State} */
    this.state = { ...START };
    /** @type {InterventionData[]} */
    this.interventions = [];
    this.weights = new Weights();
    this.ticket = 0;
    this.onPaper = false;
    /** @type {Drawn | null} */
    this.drawn = null;
    this.player = new Player(
      (frame) => this.choose({ frame }),
      () => this.choose({}),
    );
    /** @type {Actions} */
    this.actions = {
      choose: (change) => this.choose(change),
      point: (query, key, head) => this.point(query, key, head),
      touch: (change, undo) => this.touch(touched(this.interventions, change, undo)),
      untouch: () => this.touch([]),
    };
    this.root = node("div", { class: "regard-view" });
    element.replaceChildren(this.root);
    adopt(element);
    this.unobserve = observe(this.root, {
      resized: () => this.resized(),
      recoloured: () => this.choose({}),
      printing: (onPaper) => this.printing(onPaper),
    });
  }

  /** Leave the page. */
  destroy() {
    this.ticket += 1;
    this.unobserve();
    this.player.stop();
    this.root.remove();
  }

  /**
   * Show other data; what was chosen stays chosen where it still can be.
   *
   * @param {ViewData} data
   */
  update(data) {
    this.data = data;
    if (data.interventions) this.interventions = data.interventions;
    if (!data.playback) this.player.stop();
    const map = Math.min(this.state.map, data.maps.length - 1);
    return this.choose({ map, frame: data.playback ? this.state.frame : null });
  }

  get map() {
    const { data, state } = this;
    return state.frame === null || !data.playback ? data.maps[state.map] : data.playback.frames[state.frame];
  }

  /**
   * Change what is shown, then draw; nothing is drawn where something else was chosen meanwhile.
   *
   * @param {Partial<State>} change
   */
  async choose(change) {
    this.state = { ...this.state, ...change };
    this.ticket += 1;
    const { data, map, state, weights, ticket } = this;
    const layer = layerOf(map, state.layer);
    if (!layer) return this.draw(null);
    await weights.prepare(layersNeeded(data, map, layer, state));
    if (ticket !== this.ticket) return;
    const fitting = fitted(state, weights.of(layer, false), weights.of(layer, state.words));
    this.state = { ...fitting, layer: layer.name };
    this.draw(sceneOf(data, map, layer, this.state, weights));
  }

  /**
   * @param {Scene | null} scene null: there is no attention
   */
  draw(scene) {
    keepFocus(this.root, () => {
      this.root.replaceChildren(answer(this.map, this.data.original));
      this.drawn = scene && this.assembled(scene);
      if (!scene) this.root.append(node("p", { class: "quiet" }, "This model has no attention to show."));
      this.drawStage();
    });
  }

  /**
   * Put the parts into the page, with an empty stage.
   *
   * @param {Scene} scene
   * @returns {Drawn}
   */
  assembled(scene) {
    const { actions, data, options, root } = this;
    const { colours } = this.surface();
    const stage = node("div");
    const readout = new Readout(scene, options.exact);
    const tokens = new Tokens(scene, actions, colours);
    root.append(toolbar(scene, actions));
    if (options.touch) root.append(touchBar(scene, this.interventions, actions));
    if (data.playback) root.append(this.player.bar(data.playback, scene.state.frame));
    root.append(stage, readout.element, tokens.element, legend(scene, colours));
    return { scene, stage, panels: [], tokens, readout, width: 0 };
  }

  /** Draw the weights again, where only the surface has changed. */
  redrawStage() {
    keepFocus(this.root, () => this.drawStage());
  }

  drawStage() {
    if (!this.drawn) return;
    const { scene, stage } = this.drawn;
    const surface = this.surface();
    const draw = {
      heatmap: () => heatmaps(scene, this.actions, surface),
      lines: () => ({ element: lines(scene, this.actions, surface), panels: [] }),
      overview: () => ({ element: overview(scene, this.actions, surface), panels: [] }),
    };
    const { element, panels } = draw[scene.state.mode]();
    stage.replaceChildren(element);
    Object.assign(this.drawn, { panels, width: surface.width });
    for (const panel of panels) panel.draw();
  }

  /** @returns {Surface} */
  surface() {
    return { colours: palette(this.onPaper || !isDark(this.root)), width: this.root.clientWidth };
  }

  resized() {
    if (this.drawn && Math.abs(this.root.clientWidth - this.drawn.width) > 1) this.redrawStage();
  }

  /** @param {boolean} onPaper */
  printing(onPaper) {
    this.onPaper = onPaper;
    this.redrawStage();
  }

  /**
   * A query, and perhaps a key, is pointed at.
   *
   * @param {number} query
   * @param {number | null} key
   * @param {number | null} head
   */
  point(query, key, head) {
    if (!this.drawn) return;
    this.drawn.tokens.light(query, head);
    this.drawn.readout.tell(query, key, head);
    for (const panel of this.drawn.panels) panel.mark(query, key);
  }

  /** @param {InterventionData[]} interventions */
  touch(interventions) {
    this.interventions = interventions;
    this.options.touch?.(interventions);
  }
}

// The view: keeps what is chosen, and puts its parts together whenever that changes.

import { isDark, palette } from "./colours.js";
import { keepFocus, node } from "./dom.js";
import { Drawing } from "./drawing.js";
import { Player } from "./playback.js";
import { previewed } from "./preview.js";
import { modeOf, sceneOf } from "./scene.js";
import { fitted, layerOf, START } from "./state.js";
import { adopt } from "./style.js";
import { observe } from "./surroundings.js";
import { touched } from "./touch.js";
import { Weights } from "./weights.js";

/** @import { InterventionData, ViewData } from "./data.js" */
/** @import { AskRow } from "./long.js" */
/** @import { Exact } from "./readout.js" */
/** @import { Actions, Placed, Scene, Surface } from "./scene.js" */
/** @import { State } from "./state.js" */
/** @import { Explain } from "./sum.js" */

/**
 * @typedef {object} Options
 * @property {Exact} [exact] asks for a row's weights as they were computed, where those at hand are rounded
 * @property {(interventions: InterventionData[]) => void} [touch] called with all interventions when heads are
 * switched or a weight is set; without it nothing can be touched
 * @property {Explain} [explain] asks how a weight comes about; without it that cannot be shown
 * @property {boolean} [keeps] whether it is told of what the data keeps: not of every map
 * @property {AskRow} [row] asks for one row of a long input; without it only squares of it can be seen
 * @property {Partial<State>} [state] what is chosen at first
 * @property {(state: State) => void} [chosen] called with all that is chosen whenever that changes
 */

const PAPER = 680; // width of what is printed, pixels

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
    this.state = { ...START, ...options.state };
    /** @type {InterventionData[]} */
    this.interventions = [];
    /** Whether nobody has chosen a query yet: a step that sees itself alone says nothing, the last one the most. */
    this.opening = options.state?.query === undefined;
    this.weights = new Weights();
    this.onPaper = false;
    /** @type {Scene | null} */
    this.scene = null;
    this.player = new Player(
      (frame) => this.choose({ frame }),
      () => this.choose({}),
    );
    /** @type {Actions} */
    this.actions = {
      choose: (change) => this.choose(change),
      point: (query, key, head) => this.drawing.point(query, key, head, this.surface()),
      rest: () => {
        const { query, key } = this.scene?.state ?? this.state;
        this.drawing.point(query, key, null, this.surface());
      },
      touch: (change, undo) => this.touch(touched(this.interventions, change, undo)),
      preview: (place, to) => this.preview(place, to),
      untouch: () => this.touch([]),
    };
    this.root = node("div", { class: "regard-view" });
    this.drawing = new Drawing(this.root, this.actions, this.player, options);
    element.replaceChildren(this.root);
    adopt(element);
    this.unobserve = observe(this.root, {
      resized: () => this.resized(),
      recoloured: () => this.draw(),
      printing: (onPaper) => this.printing(onPaper),
    });
    this.width = this.root.clientWidth;
  }

  /** Leave the page. */
  destroy() {
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
   * Change what is shown, then draw.
   *
   * @param {Partial<State>} change
   */
  choose(change) {
    this.state = { ...this.state, ...change };
    const { data, map, weights } = this;
    let { state } = this;
    const layer = layerOf(map, state.layer);
    if (!layer) {
      this.scene = null;
      return this.draw();
    }
    const small = ["picture", "overview"].includes(modeOf(map, layer, state.mode));
    const whole = weights.of(layer, false);
    if (this.opening && whole.causal) state = { ...state, query: whole.rows - 1 };
    if (this.opening && state.layer === null && layer.name === map.opens)
      state = { ...state, head: state.head ?? map.head };
    this.opening = false;
    const fitting = fitted(state, whole, weights.of(layer, state.words), small);
    this.state = { ...fitting, layer: layer.name };
    this.scene = sceneOf(data, map, layer, this.state, weights);
    this.draw();
    this.options.chosen?.(this.state);
  }

  /** Put into the page what has changed, and leave the rest. */
  draw() {
    if (!this.data.maps.length) return;
    const { data, map, scene, interventions } = this;
    const surface = this.surface();
    this.width = this.root.clientWidth;
    this.root.classList.toggle("dark", surface.colours.dark);
    keepFocus(this.root, () => this.drawing.show({ data, map, scene, interventions }, surface));
  }

  /**
   * Show a weight as it is dragged, until the model has answered.
   *
   * @param {Placed} place
   * @param {number} to
   */
  preview(place, to) {
    const found = this.scene && previewed(this.scene, place, to);
    if (found) this.drawing.preview(found, this.surface());
  }

  /** @returns {Surface} */
  surface() {
    const width = this.root.clientWidth;
    return {
      colours: palette(this.onPaper || !isDark(this.root)),
      width: this.onPaper ? Math.min(width || PAPER, PAPER) : width,
      onPaper: this.onPaper,
    };
  }

  resized() {
    if (Math.abs(this.root.clientWidth - this.width) > 1) this.draw();
  }

  /** @param {boolean} onPaper */
  printing(onPaper) {
    this.onPaper = onPaper;
    this.draw();
  }

  /** @param {InterventionData[]} interventions */
  touch(interventions) {
    this.interventions = interventions;
    this.options.touch?.(interventions);
  }
}

// The view: keeps the state and updates the drawing when it changes.

import { isDark, palette } from "./colours.js";
import { keepFocus, node } from "./dom.js";
import { Drawing } from "./drawing.js";
import { textFactor } from "./design-tokens.js";
import { keyboardHelp } from "./keyboard-help.js";
import { clearestHead, clearestLayer, openingRow } from "./opening.js";
import { navigatorSize, TABS } from "./navigator.js";
import { Player } from "./playback.js";
import { previewScene } from "./preview.js";
import { currentMode, makeScene } from "./scene.js";
import { headCount } from "./packing.js";
import { fitState, currentLayer, opensOneHead, START } from "./state.js";
import { addStyle } from "./style.js";
import { setTextScale } from "./text-width.js";
import { observe } from "./page-events.js";
import { updateInterventions } from "./interventions.js";
import { Weights } from "./weights.js";

/** @import { InterventionData, ViewData } from "./data.js" */
/** @import { AskRow } from "./exact-row.js" */
/** @import { Exact } from "./readout.js" */
/** @import { Actions, Placed, Scene, Surface } from "./scene.js" */
/** @import { State } from "./state.js" */
/** @import { Explain } from "./sum.js" */

/**
 * @typedef {object} Options
 * @property {Exact} [exact] requests the exact weights of a row, if those of the data are rounded
 * @property {(interventions: InterventionData[]) => void} [touch] receives all interventions when they change
 * @property {Explain} [explain] requests the computation of a weight, which is otherwise not displayed
 * @property {import("./why.js").AskWhy} [why] requests the parts of the score of a weight
 * @property {boolean} [keeps] whether the data may contain the computation of weights
 * @property {AskRow} [row] requests one row of a long input; otherwise only squares are displayed
 * @property {boolean} [fits] whether the view has the height of its element, so that its panes scroll and not the page
 * @property {Partial<State>} [state] initial state
 * @property {(state: State) => void} [chosen] called with the whole state whenever it changes
 */

const PAPER = 680; // width of a printed page in pixels
const LEAST_STAGE = 240; // pixels of a drawing

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
    /** Whether no query is chosen yet. */
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
        const { query, key } = this.drawing.scene?.state ?? this.state;
        this.drawing.point(query, key, null, this.surface());
      },
      touch: (change, undo) => {
        const next = updateInterventions(this.interventions, change, undo);
        const dragged = typeof change.to === "number" && next.length === this.interventions.length;
        if (!dragged) this.history.push(this.interventions); // a drag is undone as a whole
        this.touch(next);
      },
      preview: (place, to) => this.preview(place, to),
      untouch: () => {
        this.history.push(this.interventions);
        this.touch([]);
      },
      undo: () => this.undo(),
      open: (name, head) => this.open(name, head),
    };
    /** @type {InterventionData[][]} interventions before each change */
    this.history = [];
    this.root = node("div", { class: options.fits ? "regard-view fits" : "regard-view" });
    const help = keyboardHelp(this.root, () => this.undo());
    this.pressed = help.pressed;
    this.drawing = new Drawing(this.root, this.actions, this.player, help.show, options);
    this.root.append(help.dialog);
    element.replaceChildren(this.root);
    addStyle(element);
    this.unobserve = observe(this.root, this.drawing.stage.element, {
      resized: () => this.resized(),
      recoloured: () => this.draw(),
      printing: (onPaper) => this.printing(onPaper),
    });
    this.measured = "";
  }

  /** Leave the page. */
  destroy() {
    this.unobserve();
    this.player.stop();
    this.root.remove();
  }

  /**
   * Shows other data; the state is kept as far as it applies.
   *
   * @param {ViewData} data
   */
  update(data) {
    this.data = data;
    if (data.interventions && data.interventions !== this.interventions) {
      this.interventions = data.interventions;
      if (!data.interventions.length) this.history = [];
    }
    if (!data.playback) this.player.stop();
    const map = Math.min(this.state.map, data.maps.length - 1);
    return this.choose({ map, frame: data.playback ? this.state.frame : null });
  }

  get map() {
    const { data, state } = this;
    return state.frame === null || !data.playback ? data.maps[state.map] : data.playback.frames[state.frame];
  }

  /**
   * Changes the state and redraws.
   *
   * @param {Partial<State>} change
   */
  choose(change) {
    this.state = { ...this.state, ...change };
    const { data, map, weights } = this;
    let { state } = this;
    const usual = currentLayer(map, state.layer);
    if (!usual) {
      this.scene = null;
      return this.draw();
    }
    const free =
      this.opening && state.layer === null && state.head === null && opensOneHead(headCount(usual), state);
    const layer = free ? clearestLayer(data, map, usual, weights) : usual;
    const small = ["picture", "overview"].includes(currentMode(map, layer, state.mode));
    const whole = weights.of(layer, false);
    if (this.opening && state.layer === null && layer.name === map.opens)
      state = { ...state, head: state.head ?? map.head };
    const first = () => clearestHead(data, layer, whole);
    if (this.opening && (!small || whole.causal))
      state = { ...state, query: openingRow(whole, state.head ?? clearestHead(data, layer, whole), layer.kind) };
    this.opening = false;
    const fitting = fitState(state, whole, weights.of(layer, state.words), small, first);
    this.state = { ...fitting, layer: layer.name };
    this.scene = makeScene(data, map, layer, this.state, weights);
    this.draw();
    this.options.chosen?.(this.state);
  }

  /** Put into the page what has changed, and leave the rest. */
  draw() {
    if (!this.data.maps.length) return;
    const { data, map, scene, interventions } = this;
    const dark = !this.onPaper && isDark(this.root);
    this.root.classList.toggle("dark", dark);
    setTextScale(this.onPaper ? 1 : textFactor());
    if (scene) {
      const { width } = navigatorSize(scene, this.surface());
      this.root.style.setProperty("--heads", `${width}px`);
    }
    keepFocus(this.root, () => this.drawing.show({ data, map, scene, interventions }, () => this.surface()));
    this.measured = this.room();
  }

  /**
   * Shows a dragged weight until the model has answered.
   *
   * @param {Placed} place
   * @param {number} to
   */
  preview(place, to) {
    const scene = this.scene && previewScene(this.scene, place, to);
    if (scene) this.drawing.preview(scene, this.surface());
  }

  /** @returns {Surface} */
  surface() {
    const { clientWidth: width, clientHeight: height } = this.drawing.stage.element;
    const whole = this.root.clientWidth;
    const fitted = this.options.fits && !this.onPaper && whole > TABS;
    return {
      colours: palette(this.onPaper || !isDark(this.root)),
      width: this.onPaper ? Math.min(width || PAPER, PAPER) : width,
      height: fitted ? Math.max(height, LEAST_STAGE) : null,
      whole,
      high: fitted ? this.root.clientHeight : null,
      factor: textFactor(),
      onPaper: this.onPaper,
    };
  }

  /** The room that the drawing was made for. */
  room() {
    const { width, height, whole } = this.surface();
    return [width, height, whole].join();
  }

  resized() {
    const room = this.room().split(",").map(Number);
    const before = this.measured.split(",").map(Number);
    if (room.some((pixels, index) => Math.abs(pixels - before[index]) > 1)) this.draw();
  }

  /**
   * Shows a head; the row stays.
   *
   * @param {string} name of the layer
   * @param {number} head
   */
  open(name, head) {
    const { mode } = this.state;
    const kept = mode === "overview" || mode === "flow" ? null : mode;
    this.choose({ layer: name, head, focus: head, mode: kept, key: null });
    this.drawing.showPane("picture");
  }

  /** Takes back the last change of the model. */
  undo() {
    const before = this.history.pop();
    if (before) this.touch(before);
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

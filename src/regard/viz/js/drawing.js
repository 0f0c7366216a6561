// The parts of the view; each is rebuilt only if its data has changed.

import { answer } from "./answer.js";
import { arcs } from "./arcs.js";
import { comparedMap } from "./comparison.js";
import { button, node, Part, secondaryText } from "./dom.js";
import { legend, symbolLegend } from "./legend.js";
import { Long } from "./exact-row.js";
import { lines } from "./lines.js";
import { overview } from "./overview.js";
import { overlays } from "./overlay.js";
import { heatmaps, heatmapsBeside, arrangePanels } from "./panels.js";
import { Readout } from "./readout.js";
import { saveButtons } from "./saving.js";
import { sentences } from "./sentence.js";
import { Sum } from "./sum.js";
import { tables } from "./table.js";
import { Tokens } from "./tokens.js";
import { choices, toolbar } from "./toolbar.js";
import { TouchBar } from "./interventions.js";
import { explainCommand } from "./selected-weight.js";

/** @import { Palette } from "./colours.js" */
/** @import { InterventionData, MapData, ViewData } from "./data.js" */
/** @import { Heatmap } from "./heatmap.js" */
/** @import { AskRow } from "./exact-row.js" */
/** @import { Player } from "./playback.js" */
/** @import { Exact } from "./readout.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */
/** @import { Explain } from "./sum.js" */

/**
 * @typedef {object} Shown
 * @property {ViewData} data
 * @property {MapData} map
 * @property {Scene | null} scene null: there is no attention
 * @property {InterventionData[]} interventions
 */

const MOST_TOKENS = 160; // of more tokens, only those around the selected one are shown

export class Drawing {
  /**
   * @param {HTMLElement} root
   * @param {Actions} actions
   * @param {Player} player
   * @param {{ exact?: Exact, explain?: Explain, keeps?: boolean, row?: AskRow, touch?: unknown }} options
   */
  constructor(root, actions, player, { exact, explain, keeps = false, row, touch }) {
    this.actions = actions;
    this.player = player;
    this.touchBar = touch === undefined ? null : new TouchBar(actions);
    this.readout = new Readout(exact);
    this.long = row && new Long(row);
    this.keeps = keeps;
    this.sum = explain && new Sum(explain, actions);
    /** @type {Scene | null} */
    this.scene = null;
    /** @type {Map<string, Heatmap>} */
    this.panels = new Map();
    /** @type {Tokens | null} */
    this.tokens = null;
    this.parts = {
      answer: new Part(),
      sentence: new Part(),
      toolbar: new Part(),
      stage: new Part(),
      legend: new Part("below"),
      choices: new Part("choices"),
      readout: new Part(),
      long: new Part(),
      sum: new Part(),
      touch: new Part(),
      player: new Part(),
      tokens: new Part(),
      save: new Part("save"),
    };
    root.append(...Object.values(this.parts).map((part) => part.element));
    this.parts.readout.show([], () => [this.readout.element]);
  }

  /**
   * Updates the parts that have changed.
   *
   * @param {Shown} shown
   * @param {Surface} surface
   */
  show(shown, surface) {
    const { data, map, scene } = shown;
    this.scene = scene;
    const compared = scene && comparedMap(data, map, scene.state);
    this.parts.answer.show([map, data.original, compared?.map], () => [answer(map, data.original, compared)]);
    if (scene) this.drawScene(scene, shown.interventions, surface);
    else this.drawNothing();
  }

  /**
   * Shows dragged weights before the model has answered; parts with the model's answer wait.
   *
   * @param {Scene} scene
   * @param {Surface} surface
   */
  preview(scene, surface) {
    const { state } = scene;
    this.drawStage(scene, surface);
    this.parts.legend.show([scene.largest, surface.colours], () => [legend(scene, surface.colours)]);
    this.tokens?.light(scene, surface.colours, state.query, state.head);
    this.readout.tell(scene, state.query, state.key, null);
  }

  drawNothing() {
    for (const part of Object.values(this.parts)) {
      if (part !== this.parts.answer && part !== this.parts.readout) part.show([null], () => []);
    }
    this.readout.element.textContent = "";
    this.parts.stage.show([undefined], () => [
      node("p", { class: "quiet" }, "This model has no attention to show."),
    ]);
  }

  /**
   * @param {Scene} scene
   * @param {InterventionData[]} interventions
   * @param {Surface} surface
   */
  drawScene(scene, interventions, surface) {
    const { actions, parts, player } = this;
    const { data, map, layer, matrix, state, largest, before } = scene;
    const { colours } = surface;
    const shown = [data, map, layer, matrix, state.head, state.mode];
    const drawn = [
      state.off,
      state.mean,
      state.least,
      state.top,
      scene.beside?.name,
      scene.scale.name,
      state.aside,
    ];
    parts.sentence.show([...shown, state.query, state.also, state.focus, state.key === null, state.off], () =>
      sentences(scene),
    );
    parts.toolbar.show(shown, () => [toolbar(scene, actions)]);
    this.drawStage(scene, surface);
    parts.legend.show([...shown, largest, colours, state.change, state.words, before, ...drawn], () => {
      return [legend(scene, colours)];
    });
    parts.choices.show([...shown, state.change, state.words, before, ...drawn], () => {
      return [...symbolLegend(scene), ...choices(scene, actions)];
    });
    const { touchBar } = this;
    parts.touch.show([touchBar], () => (touchBar ? [touchBar.element] : []));
    touchBar?.show(scene, interventions);
    parts.player.show([data.playback], () => (data.playback ? [player.bar(data.playback)] : []));
    player.tell(data.playback ? state.frame : null);
    this.drawTokens(scene, colours);
    parts.save.show([scene, colours], () => [saveButtons(scene, colours, parts.stage.element)]);
    this.readout.tell(scene, state.query, state.key, null);
    const { long } = this;
    const squares = long !== undefined && layer.square > 1 && state.frame === null;
    parts.long.show([squares], () => (squares ? [long.element] : []));
    if (squares) long.show(scene, colours, surface.width);
    this.drawSum(scene, colours);
    if (data.behind) touchBar?.ahead();
  }

  /**
   * The computation of a weight: not for merged words, averages or snapshots.
   *
   * @param {Scene} scene
   * @param {Palette} colours
   */
  drawSum(scene, colours) {
    const { sum, actions, parts } = this;
    const { state, derived, matrix } = scene;
    const can = sum !== undefined && !derived && !matrix.names && !state.words && state.frame === null;
    const available = !this.keeps || scene.map.sums !== undefined;
    const command = can && !available ? explainCommand(scene) : null;
    parts.sum.show([can, state.sum, command], () => {
      if (!can) return [];
      if (command) return [commandHint(command)];
      const shown = button("Explain this weight", () => actions.choose({ sum: !state.sum }), state.sum);
      return [shown, ...(state.sum ? [sum.element] : [])];
    });
    if (can && available && state.sum) sum.show(scene, colours);
  }

  /**
   * @param {Scene} scene
   * @param {Surface} surface
   */
  drawStage(scene, surface) {
    const { actions } = this;
    const { stage } = this.parts;
    const { map, matrix, changes, largest, state, data } = scene;
    this.panels = ["heatmap", "flow"].includes(state.mode)
      ? heatmaps(scene, actions, surface, this.panels)
      : new Map();
    const figures = [...this.panels.values()].map((panel) => panel.figure);
    const inputs = [map, matrix, changes, largest, state.head, data.importance, surface.colours, surface.width];
    const wanted = [state.off, state.least, state.top, state.sorted, data.roles, scene.scale.name, state.aside];
    const place = Math.max(matrix.rows, matrix.columns) > MOST_TOKENS ? [state.query, state.key] : [];
    const row = state.mode === "picture" ? [state.query, state.key] : [];
    const panels = () => arrangePanels(figures, heatmapsBeside(scene, surface.width));
    const make = {
      picture: () => overlays(scene, actions, surface),
      heatmap: panels,
      lines: () => lines(scene, actions, surface),
      arcs: () => arcs(scene, actions, surface),
      flow: panels,
      table: () => tables(scene, actions),
      overview: () => overview(scene, actions, surface),
    };
    const all = this.panels.size ? [...figures, surface.width] : [...inputs, ...wanted, ...place, ...row];
    stage.show([state.mode, ...all], () => [make[state.mode]()]);
    for (const panel of this.panels.values()) surface.onPaper ? panel.drawNow() : panel.draw();
  }

  /**
   * @param {Scene} scene
   * @param {Palette} colours
   */
  drawTokens(scene, colours) {
    const { matrix, layer, state } = scene;
    const place = Math.max(matrix.rows, matrix.columns) > MOST_TOKENS ? [state.query, state.key] : [];
    const named = state.mode !== "picture"; // patches are labelled by their position
    this.parts.tokens.show([layer, matrix, named, ...place], () => {
      this.tokens = null;
      if (!named) return [];
      this.tokens = new Tokens(scene, this.actions);
      return [this.tokens.element];
    });
    this.tokens?.light(scene, colours, state.query, state.head);
  }

  /**
   * Highlights the query and key under the pointer.
   *
   * @param {number} query
   * @param {number | null} key
   * @param {number | null} head
   * @param {Surface} surface
   */
  point(query, key, head, { colours }) {
    const { scene } = this;
    if (!scene) return;
    this.tokens?.light(scene, colours, query, head);
    this.readout.tell(scene, query, key, head);
    for (const panel of this.panels.values()) panel.mark(query, key);
  }
}

/** @param {string} command */
function commandHint(command) {
  const element = secondaryText("This page does not contain the computation of weights. For a run of Regard, ");
  element.append(node("code", {}, command), " prints it.");
  return element;
}

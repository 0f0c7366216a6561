// The parts of the view; each is rebuilt only if its data has changed.

import { answer } from "./answer.js";
import { comparedMap } from "./comparison.js";
import { node, Part } from "./dom.js";
import { legend, symbolLegend } from "./legend.js";
import { Long } from "./exact-row.js";
import { makePanes } from "./panes.js";
import { Navigator } from "./navigator.js";
import { Readout } from "./readout.js";
import { rowList } from "./row-list.js";
import { saveButtons } from "./saving.js";
import { sentences } from "./sentence.js";
import { Stage } from "./stage.js";
import { Sum } from "./sum.js";
import { Tokens } from "./tokens.js";
import { choices, toolbar } from "./toolbar.js";
import { changeMark, TouchBar } from "./interventions.js";
import { effectActions, effectOf } from "./effect.js";
import { whatChanged } from "./changes.js";
import { drawSum } from "./sum-card.js";
import { Why } from "./why.js";

/** @import { Palette } from "./colours.js" */
/** @import { InterventionData, MapData, ViewData } from "./data.js" */
/** @import { AskRow } from "./exact-row.js" */
/** @import { Player } from "./playback.js" */
/** @import { Exact } from "./readout.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */
/** @import { Explain } from "./sum.js" */
/** @import { AskWhy } from "./why.js" */

/**
 * @typedef {object} Shown
 * @property {ViewData} data
 * @property {MapData} map
 * @property {Scene | null} scene null: there is no attention
 * @property {InterventionData[]} interventions
 */

const MOST_TOKENS = 160; // of more tokens, only those around the selected one are shown

/**
 * What the legend and the choices below the picture depend on.
 *
 * @param {Scene} scene
 */
function drawnInputs({ state, before, beside, scale }) {
  const { change, words, off, mean, least, top, aside } = state;
  return [change, words, off, mean, least, top, aside, before, beside?.name, scale.name];
}

export class Drawing {
  /**
   * @param {HTMLElement} root
   * @param {Actions} actions
   * @param {Player} player
   * @param {HTMLElement} help the button that shows the keys
   * @param {{ exact?: Exact, explain?: Explain, why?: AskWhy, keeps?: boolean, row?: AskRow, touch?: unknown }} options
   */
  constructor(root, actions, player, help, { exact, explain, why, keeps = false, row, touch }) {
    this.root = root;
    this.actions = actions;
    this.player = player;
    this.touchBar = touch === undefined ? null : new TouchBar(actions);
    this.readout = new Readout(exact);
    this.long = row && new Long(row);
    this.keeps = keeps;
    this.sum = explain && new Sum(explain, actions);
    this.why = new Why(why);
    this.navigator = new Navigator(actions);
    this.stage = new Stage(actions);
    /** @type {Scene | null} */
    this.scene = null;
    /** @type {Tokens | null} */
    this.tokens = null;
    this.parts = {
      toolbar: new Part(),
      mark: new Part(),
      sentence: new Part("said"),
      player: new Part(),
      legend: new Part("below"),
      choices: new Part("choices"),
      tokens: new Part("strip"),
      save: new Part("save"),
      answer: new Part("card"),
      changes: new Part("card changes"),
      readout: new Part("card"),
      touch: new Part("card"),
      sum: new Part("card"),
      why: new Part("card"),
      row: new Part("row-box"),
      long: new Part(),
    };
    const { toolbar, mark, sentence, player: training, legend, choices, tokens, save, ...inspected } = this.parts;
    const { panes, showPane } = makePanes(root);
    this.showPane = showPane;
    const foot = node("div", { class: "foot" });
    save.element.classList.add("bar");
    foot.append(save.element, help);
    panes.heads.append(this.navigator.element);
    const above = [mark, toolbar, sentence, training].map((part) => part.element);
    const under = node("div", { class: "under" });
    under.append(legend.element, choices.element);
    panes.picture.append(...above, this.stage.element, under, tokens.element, foot);
    panes.inspector.append(...Object.values(inspected).map((part) => part.element));
    this.parts.readout.show([], () => [node("h2", {}, "Weight"), this.readout.element]);
  }

  /**
   * Updates the parts that have changed.
   *
   * @param {Shown} shown
   * @param {() => Surface} surface measures the room, which other parts leave to the picture
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
    this.stage.show(scene, surface);
    this.parts.legend.show([scene.largest, surface.colours], () => [legend(scene, surface.colours)]);
    this.tokens?.light(scene, surface.colours, state.query, state.head);
    this.readout.tell(scene, state.query, state.key, null);
  }

  drawNothing() {
    const kept = [this.parts.answer, this.parts.readout];
    for (const part of Object.values(this.parts)) if (!kept.includes(part)) part.show([null], () => []);
    this.navigator.element.replaceChildren();
    this.readout.element.textContent = "";
    this.stage.showNothing("This model has no attention to show.");
  }

  /**
   * @param {Scene} scene
   * @param {InterventionData[]} interventions
   * @param {() => Surface} measured
   */
  drawScene(scene, interventions, measured) {
    const { parts, player, touchBar } = this;
    const { colours } = measured();
    const effect = effectOf(scene, interventions);
    const pictured = effect?.scene ?? scene;
    const seen = effect?.moved ? pictured : scene; // in numbers, which are 0 for a head that is off
    const actions = effect?.moved ? effectActions(effect, this.actions) : this.actions;
    this.scene = pictured;
    this.drawControls(scene, interventions);
    const { map, layer, matrix, state, largest, before } = pictured;
    const shown = [map, layer, matrix, state.head, state.mode, effect?.text];
    parts.sentence.show(
      [...shown, scene.data, state.query, state.also, state.focus, state.key === null, state.off],
      () => (effect ? [node("p", { class: "sentence" }, effect.text)] : sentences(scene)),
    );
    parts.legend.show([...shown, largest, colours, ...drawnInputs(pictured)], () => [legend(pictured, colours)]);
    this.drawTokens(pictured, colours, actions);
    parts.save.show([seen, colours], () => saveButtons(seen, colours, this.stage.element));
    parts.row.show([...shown, before, state.query, state.key, state.focus, state.off, layer.square], () =>
      layer.square > 1 ? [] : rowList(seen, actions),
    );
    this.readout.tell(seen, state.query, state.key, null);
    const { long } = this;
    const squares = long !== undefined && layer.square > 1 && state.frame === null;
    parts.long.show([squares], () => (squares ? [long.element] : []));
    drawSum(this, parts.sum, scene, colours);
    this.why.show(parts.why, scene, colours);
    const surface = measured(); // all around the picture is there
    if (squares) long.show(scene, colours, surface.width);
    this.stage.show(pictured, surface, actions);
    this.navigator.show(scene, interventions, surface);
    player.tell(scene.data.playback ? state.frame : null);
    if (scene.data.behind) touchBar?.ahead();
  }

  /**
   * The parts by which the view and the model are changed.
   *
   * @param {Scene} scene
   * @param {InterventionData[]} interventions
   */
  drawControls(scene, interventions) {
    const { actions, parts, player, touchBar } = this;
    const { data, map, layer, matrix, state } = scene;
    const shown = [data, map, layer, matrix, state.head, state.mode];
    const undoable = touchBar && actions;
    parts.mark.show([interventions, state.frame], () => changeMark(scene, interventions, undoable));
    parts.changes.show([map, data.original, interventions, state.frame, state.words], () =>
      whatChanged(scene, interventions, actions),
    );
    parts.toolbar.show(shown, () => [toolbar(scene, actions)]);
    parts.choices.show([...shown, ...drawnInputs(scene)], () => [
      ...choices(scene, actions),
      ...symbolLegend(scene),
    ]);
    parts.player.show([data.playback], () => (data.playback ? [player.bar(data.playback)] : []));
    parts.touch.show([touchBar], () => (touchBar ? [node("h2", {}, "Change the model"), touchBar.element] : []));
    touchBar?.show(scene, interventions);
  }

  /**
   * @param {Scene} scene
   * @param {Palette} colours
   * @param {Actions} actions
   */
  drawTokens(scene, colours, actions) {
    const { matrix, layer, state } = scene;
    const place = Math.max(matrix.rows, matrix.columns) > MOST_TOKENS ? [state.query, state.key] : [];
    const named = state.mode !== "picture"; // patches are labelled by their position
    this.parts.tokens.show([layer, matrix, named, ...place], () => {
      this.tokens = null;
      if (!named) return [];
      this.tokens = new Tokens(scene, actions);
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
    this.stage.mark(query, key);
  }
}

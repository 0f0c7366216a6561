// The parts of the view; each is rebuilt only if its data has changed.

import { answer } from "./answer.js";
import { comparedMap } from "./comparison.js";
import { button, node, Part } from "./dom.js";
import { withIcon } from "./icons.js";
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
import { whatChanged } from "./changes.js";
import { commandHint, explainCommand } from "./selected-weight.js";

/** @import { Palette } from "./colours.js" */
/** @import { InterventionData, MapData, ViewData } from "./data.js" */
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
   * @param {HTMLElement} help the button that shows the keys
   * @param {{ exact?: Exact, explain?: Explain, keeps?: boolean, row?: AskRow, touch?: unknown }} options
   */
  constructor(root, actions, player, help, { exact, explain, keeps = false, row, touch }) {
    this.root = root;
    this.actions = actions;
    this.player = player;
    this.touchBar = touch === undefined ? null : new TouchBar(actions);
    this.readout = new Readout(exact);
    this.long = row && new Long(row);
    this.keeps = keeps;
    this.sum = explain && new Sum(explain, actions);
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
    const { actions, parts, player, touchBar } = this;
    const { data, map, layer, matrix, state, largest, before } = scene;
    const { colours } = measured();
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
    const undoable = touchBar && actions;
    parts.mark.show([interventions, state.frame], () => changeMark(scene, interventions, undoable));
    parts.changes.show([map, data.original, interventions, state.frame, state.words], () =>
      whatChanged(scene, interventions, actions),
    );
    parts.toolbar.show(shown, () => [toolbar(scene, actions)]);
    parts.legend.show([...shown, largest, colours, state.change, state.words, before, ...drawn], () => {
      return [legend(scene, colours)];
    });
    parts.choices.show([...shown, state.change, state.words, before, ...drawn], () => {
      return [...choices(scene, actions), ...symbolLegend(scene)];
    });
    parts.player.show([data.playback], () => (data.playback ? [player.bar(data.playback)] : []));
    player.tell(data.playback ? state.frame : null);
    this.drawTokens(scene, colours);
    parts.save.show([scene, colours], () => saveButtons(scene, colours, this.stage.element));
    parts.row.show([...shown, before, state.query, state.key, state.focus, state.off, layer.square], () =>
      layer.square > 1 ? [] : rowList(scene, actions),
    );
    parts.touch.show([touchBar], () => (touchBar ? [node("h2", {}, "Change the model"), touchBar.element] : []));
    touchBar?.show(scene, interventions);
    this.readout.tell(scene, state.query, state.key, null);
    const { long } = this;
    const squares = long !== undefined && layer.square > 1 && state.frame === null;
    parts.long.show([squares], () => (squares ? [long.element] : []));
    this.drawSum(scene, colours);
    const surface = measured(); // all around the picture is there
    if (squares) long.show(scene, colours, surface.width);
    this.stage.show(scene, surface);
    this.navigator.show(scene, interventions, surface);
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
    const hinted = state.key !== null || state.sum;
    const command = can && !available ? (hinted ? explainCommand(scene) : "") : null;
    parts.sum.show([can, state.sum, command], () => {
      if (!can) return [];
      if (command !== null) return command ? [commandHint(command)] : [];
      const shown = withIcon(
        button("Explain this weight", () => actions.choose({ sum: !state.sum }), state.sum),
        "sum",
      );
      return [shown, ...(state.sum ? [sum.element] : [])];
    });
    const explaining = can && available && state.sum;
    const opened = explaining && !this.root.classList.contains("explaining");
    this.root.classList.toggle("explaining", explaining);
    if (opened) parts.sum.element.scrollIntoView({ block: "nearest" });
    if (can && available && state.sum) sum.show(scene, colours);
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
    this.stage.mark(query, key);
  }
}

// The view: keeps the selection, and draws every part from it.

import { clamp } from "./arithmetic.js";
import { isDark, palette } from "./colours.js";
import { Details } from "./details.js";
import { button, keepFocus, menu, node, Part, setTextScale } from "./dom.js";
import { HeadGrid } from "./grid.js";
import { previewScene, updateInterventions } from "./interventions.js";
import { Legend, modeSwitch } from "./legend.js";
import { Weights } from "./matrix.js";
import { Stage } from "./panel.js";
import { Player } from "./player.js";
import { makeScene } from "./scene.js";
import { saveItems } from "./save.js";
import { sentence } from "./sentence.js";
import { drawsAll, fitState, Selection, START } from "./state.js";
import { FirstSteps } from "./steps.js";
import { addStyle, textFactor } from "./style.js";

/** @import { Asks } from "./details.js" */
/** @import { Item } from "./dom.js" */
/** @import { InterventionData, ViewData } from "./data.js" */
/** @import { Actions, Placed, Scene, Surface } from "./scene.js" */
/** @import { State } from "./state.js" */

/**
 * @typedef {object} More
 * @property {(interventions: InterventionData[]) => void} [touch] receives all interventions when they change
 * @property {boolean} [fits] whether the view has the height of the window
 * @property {() => Item[]} [tools] entries of the menu of analyses
 * @property {string} [empty] what is said while there is nothing to show
 * @property {Partial<State>} [state] initial state
 * @property {(state: State) => void} [chosen] called with the whole selection whenever it changes
 */

/** @typedef {Asks & More} Options */

const PAPER = { width: 680, height: 560 }; // pixels of a printed picture
export const DOCKED = 1180; // pixels of a view from which the drawer has a place of its own

export class View {
  /** @param {Element} element @param {Options} options */
  constructor(element, options) {
    this.options = options;
    /** @type {ViewData} */
    this.data = { maps: [] };
    this.selection = new Selection({ ...START, ...options.state });
    this.weights = new Weights();
    /** @type {InterventionData[]} */
    this.interventions = [];
    /** @type {InterventionData[][]} interventions before each change */
    this.history = [];
    this.onPaper = false;
    this.frame = 0;
    /** @type {Scene | null} what is selected, without hovering */
    this.scene = null;
    this.player = new Player((frame) => this.choose({ frame }));
    this.actions = this.makeActions();
    this.root = node("div", { class: options.fits ? "regard-view fits" : "regard-view" });
    this.grid = new HeadGrid(this.actions);
    this.stage = new Stage(this.actions);
    this.legend = new Legend(this.actions);
    this.details = new Details(this.actions, options, () => this.root.classList.toggle("wide", this.details.wide));
    /** @type {import("./steps.js").StepName[]} */
    const steps = ["look"];
    if (options.touch) steps.push("off");
    if (options.why) steps.push("why");
    this.steps = new FirstSteps(steps, (name) => {
      this.showDrawer(true);
      if (name === "why") this.actions.choose({ why: true });
      else this.details.press(name);
    });
    /** A place at the left of the top bar. */
    this.slot = node("div", { class: "slot" });
    this.sentence = node("p", { class: "sentence", "aria-live": "polite" });
    this.modes = new Part();
    this.input = new Part();
    this.playback = new Part();
    const help = keyboardHelp(this.root, () => this.undo());
    this.pressed = help.pressed;
    this.root.append(this.makeTop(help.show), this.makeWork(), help.dialog);
    this.showDrawer(null);
    element.replaceChildren(this.root);
    addStyle(element);
    this.selection.subscribe((chosen) => {
      if (chosen) {
        this.render();
        this.options.chosen?.(this.selection.chosen);
      } else this.schedule();
    });
    this.unobserve = observe(this.root, [this.stage.element, this.grid.element], {
      resized: () => this.schedule(),
      recoloured: () => this.render(),
      printing: (onPaper) => {
        this.onPaper = onPaper;
        this.render();
      },
    });
    this.render();
  }

  /** @param {HTMLElement} help */
  makeTop(help) {
    const { tools } = this.options;
    this.analyse = tools && menu("Analyse", tools);
    const save = menu("Save", () => (this.scene ? saveItems(this.scene, this.surface().colours) : []));
    this.opener = button("Details", () => this.showDrawer(!this.drawer));
    const top = node("header", { class: "top" });
    top.append(this.slot, ...(this.analyse ? [this.analyse.element] : []), save.element, this.opener, help);
    return top;
  }

  makeWork() {
    const head = node("div", { class: "over" });
    head.append(this.sentence, this.input.element, this.modes.element);
    const under = node("div", { class: "under" });
    under.append(this.legend.element, this.steps.element);
    const picture = node("section", { class: "picture", "aria-label": "Picture" });
    picture.append(head, this.stage.element, this.playback.element, under);
    const work = node("div", { class: "work" });
    work.append(this.grid.element, picture, this.details.element);
    return work;
  }

  /** @returns {Actions} */
  makeActions() {
    return {
      choose: (change) => {
        if (change.key !== undefined && change.key !== null) this.steps.finish("look");
        if (change.why) this.steps.finish("why");
        this.choose(change);
      },
      point: (hover) => this.selection.point(hover),
      touch: (change, undo) => {
        const next = updateInterventions(this.interventions, change, undo);
        const dragged = typeof change.to === "number" && next.length === this.interventions.length;
        if (!dragged) this.history.push(this.interventions); // a drag is undone as a whole
        if (change.to === "off") this.steps.finish("off");
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
  }

  destroy() {
    this.unobserve();
    this.player.stop();
    cancelAnimationFrame(this.frame);
    this.root.remove();
  }

  /** Shows other data; the selection is kept as far as it applies. @param {ViewData} data */
  update(data) {
    const compare = data.beside && !this.data.beside && { beside: "model-0" }; // the first comparison is shown
    this.data = data;
    if (data.interventions && data.interventions !== this.interventions) {
      this.interventions = data.interventions;
      if (!data.interventions.length) this.history = [];
    }
    if (!data.playback) this.player.stop();
    const map = Math.min(this.selection.chosen.map, data.maps.length - 1);
    return this.choose({ map, ...compare, frame: data.playback ? this.selection.chosen.frame : null });
  }

  /** @param {Pick<State, "map" | "frame">} state */
  mapOf({ map, frame }) {
    const { maps, playback } = this.data;
    return frame === null || !playback ? maps[map] : playback.frames[Math.min(frame, playback.frames.length - 1)];
  }

  get map() {
    return this.mapOf(this.selection.chosen);
  }

  /** Changes the selection and draws it. @param {Partial<State>} change */
  choose(change) {
    const wanted = { ...this.selection.chosen, ...change };
    const map = this.mapOf(wanted);
    this.selection.choose((map && fitState(wanted, this.data, map, this.weights)?.state) ?? wanted);
  }

  /** The scene of a state. @param {State} state */
  sceneOf(state) {
    const map = this.mapOf(state);
    const fitting = map && fitState(state, this.data, map, this.weights);
    return fitting ? makeScene(this.data, map, fitting.layer, fitting.state, this.weights) : null;
  }

  schedule() {
    this.frame ||= requestAnimationFrame(() => this.render());
  }

  /** Draws all parts; each is made anew only if what it shows has changed. */
  render() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { root, data, selection, interventions } = this;
    root.classList.toggle("dark", !this.onPaper && isDark(root));
    setTextScale(this.onPaper ? 1 : textFactor());
    const hovering = selection.hover !== null;
    const drawn = this.sceneOf(selection.current);
    const scene = drawn && { ...drawn, hovering };
    this.scene = hovering ? this.sceneOf(selection.chosen) : scene;
    const map = this.mapOf(selection.current);
    root.classList.toggle("nothing", !scene);
    if (!map || !scene) {
      const text = map ? "This model has no attention to show." : (this.options.empty ?? "");
      Object.assign(this.sentence, { textContent: "", title: "" });
      for (const part of [this.modes, this.input, this.playback]) part.show([null], () => []);
      this.stage.showNothing(text);
      if (map) this.details.show({ data, map, scene: null, interventions }, this.surface().colours);
      return;
    }
    const { layer, state } = scene;
    const { head, query, key } = state;
    root.dataset.selection = JSON.stringify({ input: map.input, layer: layer.name, head, query, key });
    keepFocus(root, () => this.drawScene(scene));
  }

  /** @param {Scene} scene */
  drawScene(scene) {
    const { data, interventions, player } = this;
    const { map, layer, state } = scene;
    const text = sentence(scene);
    if (this.sentence.title !== text) {
      const end = text.indexOf(": ") + 1;
      this.sentence.replaceChildren(node("span", { class: "quiet" }, text.slice(0, end)), text.slice(end));
      this.sentence.title = text;
    }
    this.modes.show([map, layer, state.mode], () => [modeSwitch(scene, this.actions)]);
    this.input.show([data.maps, state.map], () => (data.maps.length > 1 ? [inputList(data, state, this.actions)] : []));
    this.playback.show([data.playback], () => (data.playback ? [player.bar(data.playback)] : []));
    if (data.playback) player.tell(state.frame);
    const { colours } = this.surface();
    this.legend.show(scene, colours);
    this.details.show({ data, map, scene, interventions }, colours);
    this.grid.show(scene, interventions, { colours, onPaper: this.onPaper, ...this.gridRoom() });
    this.stage.show(scene, this.surface()); // all around the picture is there
  }

  /** Shows a dragged weight until the model has answered. @param {Placed} place @param {number} to */
  preview(place, to) {
    const scene = this.scene && previewScene(this.scene, place, to);
    if (!scene) return;
    this.stage.show(scene, this.surface());
    this.details.readout.tell(scene);
  }

  /** @returns {Surface} */
  surface() {
    const { clientWidth, clientHeight } = this.stage.element;
    const colours = palette(this.onPaper || !isDark(this.root));
    const { onPaper } = this;
    if (onPaper) return { colours, onPaper, ...PAPER, width: Math.min(clientWidth || PAPER.width, PAPER.width) };
    return { colours, onPaper, width: Math.max(clientWidth, 40), height: Math.max(clientHeight, 40) };
  }

  /** The room of the heads, whose part is as wide as they need. */
  gridRoom() {
    const { clientWidth: wide } = this.root;
    const largest = clamp(wide / 16, 40, 110 * textFactor());
    if (wide < ONE_COLUMN) return { width: wide - 2 * GRID_EDGE, height: innerHeight / 2, largest };
    const height = this.grid.element.clientHeight - GRID_AROUND * textFactor();
    return { width: Math.max(NARROWEST_GRID, wide / 5) - 2 * GRID_EDGE, height, largest };
  }

  /** Opens or closes the drawer; null: as the width suggests. @param {boolean | null} open */
  showDrawer(open) {
    this.drawer = open ?? (this.root.clientWidth || innerWidth) >= DOCKED;
    this.root.classList.toggle("open", this.drawer);
    this.opener?.setAttribute("aria-expanded", String(this.drawer));
  }

  /** @param {string} title @param {HTMLElement} content @param {{ wide?: boolean, closed?: () => void }} [how] */
  openTool(title, content, how) {
    this.details.openTool(title, content, how);
    this.showDrawer(true);
  }

  /** Shows a head; the row stays. A second click on it shows all heads of the layer. @param {string} name of the layer @param {number} head */
  open(name, head) {
    const { scene } = this;
    const { layer, head: shown } = this.selection.chosen;
    const again = scene && layer === name && shown === head && !drawsAll(scene.state, scene.matrix.heads);
    this.choose(again ? { all: true } : { layer: name, head, all: false, key: null });
  }

  undo() {
    const before = this.history.pop();
    if (before) this.touch(before);
  }

  /** @param {InterventionData[]} interventions */
  touch(interventions) {
    this.interventions = interventions;
    this.options.touch?.(interventions);
  }
}

const GRID_EDGE = 2; // pixels beside the grid of heads
const GRID_AROUND = 145; // pixels of the lists above and below it
const NARROWEST_GRID = 240; // pixels that it can have
const ONE_COLUMN = 700; // pixels of a view; in narrower ones, the heads are below the picture

/** @param {ViewData} data @param {State} state @param {Actions} actions */
function inputList({ maps }, { map }, { choose }) {
  const list = node("select", { "aria-label": "Input", "data-name": "Input" });
  maps.forEach(({ input }, index) => {
    const option = node("option", { value: index }, input || `input ${index}`);
    option.selected = index === map;
    list.append(option);
  });
  list.addEventListener("change", () => choose({ map: list.selectedIndex, query: 0, key: null }));
  return list;
}

/** @typedef {{ resized: () => void, recoloured: () => void, printing: (onPaper: boolean) => void }} Listeners */

/**
 * Calls the listeners on events; returns a function that removes them. Changes of the text colour by a notebook
 * theme or the system are detected by the CSS transition of a probe element.
 * @param {Element} element @param {Element[]} sized its parts that change their sizes
 * @param {Listeners} listeners
 */
export function observe(element, sized, { resized, recoloured, printing }) {
  const size = new ResizeObserver(resized);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const probe = node("span", { class: "probe", "aria-hidden": "true" });
  const before = () => printing(true);
  const after = () => printing(false);
  for (const part of sized) size.observe(part);
  probe.addEventListener("transitionend", recoloured);
  element.append(probe);
  scheme.addEventListener("change", recoloured);
  addEventListener("beforeprint", before);
  addEventListener("afterprint", after);
  return () => {
    size.disconnect();
    probe.remove();
    scheme.removeEventListener("change", recoloured);
    removeEventListener("beforeprint", before);
    removeEventListener("afterprint", after);
  };
}

// The keys of the view, shown on "?".

/** @type {[keys: string, meaning: string][]} */
const KEYS = [
  ["Tab", "next control; the heads and each picture are one stop"],
  ["← ↑ → ↓", "move between heads or weights"],
  ["[  ]", "previous and next head, on a picture"],
  ["+  −  0", "zoom in, out, and show all, on a matrix"],
  ["Ctrl + Z", "undo the last change of the model"],
  ["?", "this list"],
  ["Esc", "close it"],
];

/**
 * A button that shows the keys, and the list itself.
 * @param {HTMLElement} root receives the keys "?" and Ctrl + Z
 * @param {() => void} undo
 */
function keyboardHelp(root, undo) {
  const dialog = node("dialog", { "aria-label": "Keys" });
  const list = node("dl");
  for (const [keys, meaning] of KEYS) list.append(node("dt", {}, keys), node("dd", {}, meaning));
  const close = button("Close", () => dialog.close());
  const text =
    "Rows are queries, columns are keys; the stronger the color, the larger the weight. Point at a square to read it, " +
    "click to select it. Large weights need not matter: switch a head off and see whether the answer changes.";
  dialog.append(node("h2", {}, "Keys"), node("p", {}, text), list, close);
  const show = button("?", () => dialog.showModal());
  show.title = "Keys of this page (?)";
  show.setAttribute("aria-label", "Keys");
  show.setAttribute("aria-keyshortcuts", "?");
  /** @param {KeyboardEvent} event */
  const pressed = (event) => {
    if (isTyped(event)) return;
    if (event.key === "?") {
      if (!dialog.open) dialog.showModal();
    } else if (event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey) undo();
    else return;
    event.preventDefault();
  };
  root.addEventListener("keydown", pressed);
  return { show, dialog, pressed };
}

/** Whether a key belongs to a text field. @param {KeyboardEvent} event */
function isTyped({ target }) {
  return target instanceof HTMLElement && target.matches("textarea, input:not([type=range]):not([type=checkbox])");
}

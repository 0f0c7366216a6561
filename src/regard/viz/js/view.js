// The view: keeps the state and updates the drawing when it changes.

import { isDark, palette } from "./colours.js";
import { button, keepFocus, node, setTextScale, svg, withIcon } from "./dom.js";
import { Drawing } from "./drawing.js";
import { addStyle, textFactor } from "./style.js";
import { clearestHead, clearestLayer, currentLayer, fitState, openingRow, opensOneHead, START } from "./state.js";
import { navigatorSize, TABS } from "./stage.js";
import { previewScene, updateInterventions } from "./interventions.js";
import { currentMode, makeScene } from "./scene.js";
import { headCount, Weights } from "./matrix.js";

/** @import { InterventionData, PlaybackData, ViewData } from "./data.js" */
/** @import { AskRow, Exact } from "./drawing.js" */
/** @import { Actions, Placed, Scene, Surface } from "./scene.js" */
/** @import { State } from "./state.js" */
/** @import { Explain } from "./sum.js" */

/**
 * @typedef {object} Options
 * @property {Exact} [exact] requests the exact weights of a row, if those of the data are rounded
 * @property {(interventions: InterventionData[]) => void} [touch] receives all interventions when they change
 * @property {Explain} [explain] requests the computation of a weight, which is otherwise not displayed
 * @property {import("./sum.js").AskWhy} [why] requests the parts of the score of a weight
 * @property {boolean} [keeps] whether the data may contain the computation of weights
 * @property {AskRow} [row] requests one row of a long input; otherwise only squares are displayed
 * @property {boolean} [fits] whether the view has the height of its element, so that its panes scroll and not the page
 * @property {Partial<State>} [state] initial state
 * @property {(state: State) => void} [chosen] called with the whole state whenever it changes
 */

const PAPER = 680; // width of a printed page in pixels
const LEAST_STAGE = 240; // pixels of a drawing

export class View {
  /** @param {Element} element @param {Options} options */
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

  destroy() {
    this.unobserve();
    this.player.stop();
    this.root.remove();
  }

  /** Shows other data; the state is kept as far as it applies. @param {ViewData} data */
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

  /** Changes the state and redraws. @param {Partial<State>} change */
  choose(change) {
    this.state = { ...this.state, ...change };
    const { data, map, weights } = this;
    let { state } = this;
    const usual = currentLayer(map, state.layer);
    if (!usual) {
      this.scene = null;
      return this.draw();
    }
    const free = this.opening && state.layer === null && state.head === null && opensOneHead(headCount(usual), state);
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

  /** Shows a dragged weight until the model has answered. @param {Placed} place @param {number} to */
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

  /** Shows a head; the row stays. @param {string} name of the layer @param {number} head */
  open(name, head) {
    const { mode } = this.state;
    const kept = mode === "overview" || mode === "flow" ? null : mode;
    this.choose({ layer: name, head, focus: head, mode: kept, key: null });
    this.drawing.showPane("picture");
  }

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

// Events around a view: resizing, colour scheme, printing.

/** @typedef {{ resized: () => void, recoloured: () => void, printing: (onPaper: boolean) => void }} Listeners */

/**
 * Calls the listeners on events; returns a function that removes them. Changes of the text colour by a notebook
 * theme or the system are detected by the CSS transition of a probe element.
 * @param {Element} element
 * @param {Element} stage its drawing, which also changes its size
 * @param {Listeners} listeners
 */
export function observe(element, stage, { resized, recoloured, printing }) {
  const size = new ResizeObserver(resized);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const probe = node("span", { class: "probe", "aria-hidden": "true" });
  const before = () => printing(true);
  const after = () => printing(false);
  size.observe(element);
  size.observe(stage);
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
  ["Tab", "next control; a grid, a list of tokens or a heatmap is one stop"],
  ["← ↑ → ↓", "move between heads, weights or tokens"],
  ["Enter", "choose the head or token"],
  ["[  ]", "previous and next head, on a heatmap"],
  ["+  −  0", "zoom in, out, and show all, on a heatmap"],
  ["Shift + Enter", "add the row of a token"],
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
  dialog.append(
    node("h2", {}, "Keys"),
    list,
    button("Close", () => dialog.close()),
  );
  const show = withIcon(
    button("Keys", () => dialog.showModal()),
    "keys",
  );
  show.title = "Keys of this page (?)";
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

// Playback of training: a frame for each snapshot, with a play button and a slider.

const PAUSE = 350; // milliseconds between frames

export class Player {
  /** @param {(frame: number) => void} go shows a frame @param {() => void} stopped */
  constructor(go, stopped) {
    this.go = go;
    this.stopped = stopped;
    /** @type {number | undefined} */
    this.timer = undefined;
    /** @type {(frame: number | null) => void} say which frame is shown; null: the last */
    this.tell = () => {};
  }

  /** Plays the following frames, from the start after the last one. @param {number} at @param {number} last */
  play(at, last) {
    let frame = at === last ? 0 : at;
    this.timer = window.setInterval(() => {
      if (frame === last) this.stop();
      this.go(frame);
      frame = Math.min(frame + 1, last);
    }, PAUSE);
    this.go(frame);
  }

  stop() {
    window.clearInterval(this.timer);
    this.timer = undefined;
  }

  // Button, slider and loss curve, which stay in place; `tell` updates the position.
  /** @param {PlaybackData} playback */
  bar({ steps, losses, frames }) {
    const last = frames.length - 1;
    const play = button("play", () => {
      if (this.timer === undefined) return this.play(Number(slider.value), last);
      this.stop();
      this.stopped();
    });
    const slider = node("input", {
      ...{ type: "range", min: 0, max: last, step: 1 },
      "aria-label": "training step",
      "data-name": "time",
    });
    slider.addEventListener("input", () => this.go(Number(slider.value)));
    const step = node("span", { class: "step" });
    const loss = node("span");
    const bar = node("div", { class: "playback" });
    bar.append(play, slider, step, loss);
    this.tell = (frame) => {
      const at = frame ?? last;
      play.textContent = this.timer === undefined ? "play" : "pause";
      slider.value = String(at);
      step.textContent = `after ${steps[at].toLocaleString("en")} training steps`;
      slider.setAttribute("aria-valuetext", step.textContent);
      loss.replaceChildren(curve(losses, steps[at]));
    };
    return bar;
  }
}

const CURVE_WIDTH = 180;
const CURVE_HEIGHT = 36;

/**
 * The curve with a mark at a step; the axis is logarithmic, since the loss changes most in early steps.
 * @param {number[][]} losses pairs of step and loss
 * @param {number} step
 */
export function curve(losses, step) {
  const size = { width: CURVE_WIDTH, height: CURVE_HEIGHT };
  const picture = svg("svg", { ...size, role: "img", "aria-label": "loss during training" });
  if (!losses.length) return picture;
  const last = losses[losses.length - 1][0];
  const largest = Math.max(...losses.map(([, loss]) => loss), 1e-9);
  /** @param {number} at */
  const x = (at) => 2 + ((CURVE_WIDTH - 4) * Math.log1p(at)) / Math.log1p(last);
  /** @param {number} loss */
  const y = (loss) => CURVE_HEIGHT - 3 - ((CURVE_HEIGHT - 6) * loss) / largest;
  const points = losses.map(([at, loss]) => `${x(at).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
  picture.append(
    svg("polyline", { points, fill: "none", stroke: "currentColor", "stroke-opacity": 0.7 }),
    svg("line", { x1: x(step), x2: x(step), y1: 0, y2: CURVE_HEIGHT, stroke: "#d97706", "stroke-width": 2 }),
  );
  return picture;
}

// The drawer: the answer, the selected weight and its row, what can be changed, and the results of tools.

import { latest } from "./arithmetic.js";
import { pairedBars, whatChanged } from "./changes.js";
import { shade } from "./colours.js";
import { button, canvasContext, messageOf, node, Part, scrollBox, secondaryText, table } from "./dom.js";
import { changeMark, TouchBar } from "./interventions.js";
import {
  headImportance,
  headTitle,
  importanceSentence,
  isolate,
  roleSentence,
  signedNumber,
  tokenLabel,
} from "./labels.js";
import { halve } from "./matrix.js";
import { comparedMap } from "./scene.js";
import { answer, rowFacts } from "./sentence.js";
import { commandHint, explainCommand, Sum, WHAT, Why } from "./sum.js";

/** @import { Palette } from "./colours.js" */
/** @import { InterventionData, MapData, RowData, ViewData } from "./data.js" */
/** @import { Level } from "./matrix.js" */
/** @import { Actions, Scene } from "./scene.js" */
/** @import { AskWhy, Explain } from "./sum.js" */

/** @typedef {{ map: number, layer: string, head: number, query: number }} Row a row of weights */
/** @typedef {(row: Row) => Promise<number[]>} Exact asks for the weights of a row as they were computed */
/** @typedef {{ layer: string, head: number, step: number }} LongRow */
/** @typedef {(which: LongRow) => Promise<RowData>} AskRow */
/** @typedef {{ exact?: Exact, explain?: Explain, why?: AskWhy, keeps?: boolean, row?: AskRow, touch?: unknown }} Asks */

const LISTED = 7; // keys of a row
const LEAST = 0.0005; // smaller weights are not listed
const POINT = "Point at a weight to read it.";

export class Details {
  /** @param {Actions} actions @param {Asks} asks @param {() => void} widened is told when the drawer changes its width */
  constructor(actions, { exact, explain, why, keeps = false, row, touch }, widened) {
    this.actions = actions;
    this.widened = widened;
    this.keeps = keeps;
    this.touchBar = touch === undefined ? null : new TouchBar(actions);
    this.readout = new Readout(exact);
    this.long = row && new Long(row);
    this.sum = explain && new Sum(explain, actions);
    this.why = why && new Why(why);
    this.parts = {
      mark: new Part(),
      answer: new Part(),
      row: new Part("row"),
      weight: new Part(),
      touch: new Part(),
      changes: new Part("changes"),
      facts: new Part("facts"),
      why: new Part("part"),
      sum: new Part("part"),
      long: new Part(),
    };
    /** A place for what only some pages have. */
    this.slot = node("div", { class: "slot" });
    this.tool = node("section", { class: "tool", hidden: true });
    this.element = node("aside", { class: "drawer", "aria-label": "Details", tabindex: 0 });
    const elements = Object.values(this.parts).map((part) => part.element);
    elements.splice(6, 0, this.slot);
    this.element.append(this.tool, ...elements);
    this.parts.weight.show([], () => [this.readout.element]);
    this.wide = false;
  }

  /** Presses a button. @param {string} name */
  press(name) {
    /** @type {HTMLElement | null} */ (this.element.querySelector(`[data-name=${name}]`))?.click();
  }

  /**
   * Shows the result of a tool above the details until it is closed.
   * @param {string} title @param {HTMLElement} content @param {{ wide?: boolean, closed?: () => void }} [how]
   */
  openTool(title, content, { wide = false, closed = () => {} } = {}) {
    const close = button("Close", () => {
      this.closeTool();
      closed();
    });
    close.setAttribute("aria-label", `Close ${title}`);
    const top = node("div", { class: "bar between" });
    top.append(node("h2", {}, title), close);
    this.tool.replaceChildren(top, content);
    this.tool.hidden = false;
    this.tool.setAttribute("aria-label", title);
    this.toolWide = wide;
    this.element.scrollTop = 0;
    this.widen();
  }

  closeTool() {
    this.tool.hidden = true;
    this.tool.replaceChildren();
    this.toolWide = false;
    this.widen();
  }

  widen() {
    const wide = Boolean(this.toolWide) || this.explaining === true;
    if (wide === this.wide) return;
    this.wide = wide;
    this.widened();
  }

  /**
   * @param {{ data: ViewData, map: MapData, scene: Scene | null, interventions: InterventionData[] }} shown
   * @param {Palette} colours
   */
  show({ data, map, scene, interventions }, colours) {
    const { parts, actions, touchBar } = this;
    const compared = scene && comparedMap(data, map, scene.state);
    parts.answer.show([map, data.original, compared?.map], () => [answer(map, data.original, compared)]);
    if (!scene) {
      for (const [name, part] of Object.entries(parts))
        if (name !== "answer" && name !== "weight") part.show([null], () => []);
      this.readout.element.textContent = "";
      return;
    }
    const { state, matrix, layer, head, before, derived } = scene;
    const place = [map, matrix, before, layer, state.query, state.key, head];
    parts.mark.show([interventions, state.frame], () => changeMark(scene, interventions, touchBar && actions));
    this.readout.tell(scene);
    parts.row.show([map, matrix, before, layer, state.query, head], () =>
      layer.square > 1 ? [] : rowList(scene, actions),
    );
    for (const item of parts.row.element.querySelectorAll("li")) {
      const on = item.dataset.key === String(state.key);
      item.classList.toggle("on", on);
      item.toggleAttribute("aria-current", on);
    }
    parts.touch.show([touchBar], () => (touchBar ? [touchBar.element] : []));
    touchBar?.show(scene, interventions);
    if (data.behind) touchBar?.ahead();
    parts.changes.show([map, data.original, interventions, state.frame, state.words], () =>
      whatChanged(scene, interventions, actions),
    );
    parts.facts.show([...place, data.importance, data.roles, data.examined, state.frame], () => facts(scene));
    const { long } = this;
    const squares = long !== undefined && layer.square > 1 && state.frame === null;
    parts.long.show([squares], () => (squares ? [long.element] : []));
    if (squares) long.show(scene, colours);
    // Not for merged words, rollouts or snapshots.
    const can = !derived && !matrix.names && !state.words && state.frame === null;
    this.showWhy(scene, colours, can);
    this.showSum(scene, colours, can);
    this.widen();
  }

  /** @param {Scene} scene @param {Palette} colours @param {boolean} can */
  showWhy(scene, colours, can) {
    const { why, actions } = this;
    const { state } = scene;
    const hint = can && !why && state.key !== null ? `${explainCommand(scene)} --why` : "";
    this.parts.why.show([can, state.why, hint], () => {
      if (hint) return [commandHint(hint, WHAT, ", and the page of regard show displays it")];
      if (!can || !why) return [];
      return [
        opener("Why it looks there", state.why, () => actions.choose({ why: !state.why })),
        ...(state.why ? [why.element] : []),
      ];
    });
    if (can && why && state.why && !scene.hovering) why.show(scene, colours); // it asks the model
    if (state.why && !this.explaining) this.parts.why.element.scrollIntoView({ block: "start" });
  }

  /** @param {Scene} scene @param {Palette} colours @param {boolean} can */
  showSum(scene, colours, can) {
    const { sum, keeps, actions } = this;
    const { state } = scene;
    const stored = !keeps || scene.map.sums !== undefined;
    const command = can && sum && !stored && (state.key !== null || state.sum) ? explainCommand(scene) : "";
    this.parts.sum.show([can, stored, state.sum, command], () => {
      if (command) return [commandHint(command)];
      if (!can || !sum || !stored) return [];
      return [
        opener("How it is computed", state.sum, () => actions.choose({ sum: !state.sum })),
        ...(state.sum ? [sum.element] : []),
      ];
    });
    const open = can && sum && stored && state.sum;
    this.explaining = Boolean(open || (can && this.why && state.why));
    if (open && !scene.hovering) sum.show(scene, colours);
  }
}

/** The title of a part that opens and closes. @param {string} title @param {boolean} open @param {() => void} toggle */
function opener(title, open, toggle) {
  const element = button(title, toggle);
  element.setAttribute("aria-expanded", String(open));
  element.classList.add("opener");
  return element;
}

let factsOpen = false; // kept from head to head

/** What is known of the selected row and head. @param {Scene} scene */
function facts(scene) {
  const { data, layer, matrix, head, state } = scene;
  const lines = rowFacts(scene);
  if (state.frame === null && !matrix.names) {
    // the other facts hold for the trained model only
    const worth = headImportance(data, layer.name, head);
    const role = data.roles?.[layer.name]?.[head];
    const examined = data.examined?.[layer.name]?.[head];
    if (worth) lines.push(importanceSentence(worth));
    if (role) lines.push(roleSentence(role));
    if (examined !== undefined) lines.push(`Examination: ${examined}`);
  }
  const [first, ...more] = lines.map((line) => node("p", { class: "quiet" }, line));
  if (!more.length) return first ? [first] : [];
  const box = node("details", { open: factsOpen || undefined });
  box.append(node("summary", {}, "More about this head"), ...more);
  box.addEventListener("toggle", () => (factsOpen = box.open));
  return [first, box];
}

// The largest weights of the selected row as bars.

/** @param {Scene} scene @param {Actions} actions */
function rowList({ map, layer, matrix, head, state, before }, actions) {
  if (!matrix.rows || !matrix.columns) return [];
  const row = matrix.row(matrix.slices[head], state.query);
  const old = before && before.rows === matrix.rows ? before.row(before.slices[head], state.query) : null;
  /** @param {number} key */
  const larger = (key) => Math.max(row[key], old?.[key] ?? 0);
  const sorted = [...row.keys()].sort((first, second) => larger(second) - larger(first)).slice(0, LISTED);
  const order = sorted.filter((key, place) => !place || larger(key) >= LEAST);
  const largest = Math.max(larger(order[0]), 1e-9);
  const list = node("ol");
  for (const key of order) {
    const item = node("li", { "data-key": key });
    const text = old ? `${old[key].toFixed(2)} → ${row[key].toFixed(2)}` : row[key].toFixed(3);
    const bars = pairedBars(old && old[key] / largest, row[key] / largest);
    item.append(node("span", { class: "key-name" }, matrix.keys[key]), bars, node("span", { class: "number" }, text));
    item.addEventListener("pointerenter", () => actions.point({ key }));
    item.addEventListener("pointerleave", () => actions.point(null));
    item.addEventListener("click", () => actions.choose({ query: state.query, key }));
    list.append(item);
  }
  const rest = row.reduce((sum, weight) => sum + weight, 0) - order.reduce((sum, key) => sum + row[key], 0);
  const name = matrix.names ? matrix.name(head) : headTitle(map.layers, layer, head);
  const title = `Largest weights of ${isolate(matrix.queries[state.query])}, ${name}${old ? ": before → now" : ""}`;
  const left = matrix.columns - order.length;
  const others = left > 1 ? `The other ${left} keys, together` : left ? "The other key" : "";
  const told = others && [secondaryText(`${others}: ${Math.max(0, rest).toFixed(3)}`)];
  return [node("h2", {}, title), list, ...told];
}

// The selected weight as a number.

class Readout {
  /** @param {Exact} [exact] */
  constructor(exact) {
    this.exact = exact;
    this.element = node("output", { "aria-live": "polite" });
    this.text = "";
  }

  /** @param {Scene} scene */
  tell(scene) {
    const { matrix, state, layer, derived, preview, hovering, head } = scene;
    const text = describeWeight(scene);
    const { query, key } = state;
    if (text === this.text) return; // an exact weight may have replaced it
    this.text = text;
    this.element.textContent = text;
    // Exact weights exist for the maps only, not for the frames of a playback, nor for a weight that is dragged.
    const rounded = !matrix.exact && !derived && !preview && layer.square === 1 && !state.words && state.frame === null;
    if (!this.exact || key === null || !rounded || hovering) return;
    this.exact({ map: state.map, layer: layer.name, head, query }).then(
      (row) => {
        if (text === this.text) this.element.textContent = describeWeight(scene, `${row[key]} exactly`);
      },
      () => {}, // the rounded weight stays
    );
  }
}

/** @param {Scene} scene @param {string} [exactly] the weight as it was computed */
export function describeWeight({ matrix, state, before, head, layer, hovering = false }, exactly) {
  if (!matrix.rows || !matrix.columns) return "";
  const { query, key: to } = state;
  if (to === null) return POINT;
  const weight = matrix.at(head, query, to);
  const { square } = layer;
  const where = square > 1 ? `steps ${to * square} to ${(to + 1) * square - 1}, the largest weight` : `step ${to}`;
  const [from, name] = [isolate(matrix.queries[query]), isolate(matrix.keys[to])];
  const number =
    exactly ?? (matrix.exact && !hovering ? `${Number(weight.toPrecision(9))} exactly` : weight.toFixed(4));
  const was =
    before && before.rows === matrix.rows && before.columns === matrix.columns ? before.at(head, query, to) : null;
  const change = was === null ? "" : ` (was ${was.toFixed(4)}, ${signedNumber(weight - was)})`;
  return `${from} → ${name} (${where}): ${number}${change}`;
}

// One exact row of a long input, which is requested, since the map contains only the maximum of each square.

const STRIP_HEIGHT = 24; // pixels
const STRIP_WIDTH = 240; // columns

class Long {
  /** @param {AskRow} ask */
  constructor(ask) {
    this.step = 0;
    /** @type {unknown[]} */
    this.askedFor = [];
    /** @type {RowData | null} */
    this.found = null;
    /** @type {{ scene: Scene, colours: Palette } | null} */
    this.shown = null;
    this.number = node("input", { type: "number", min: 0, step: 1, "data-name": "step" });
    this.number.addEventListener("change", () => this.go(Number(this.number.value)));
    this.row = new Part();
    this.element = node("section", { "aria-label": "Exact row" });
    const label = node("label", {}, "Exact row: step");
    label.append(this.number);
    this.element.append(label, this.row.element);
    this.ask = latest(async (/** @type {LongRow} */ which) => {
      try {
        this.found = await ask(which);
        this.draw();
      } catch (error) {
        this.row.show([error], () => [node("p", { role: "alert" }, messageOf(error))]);
      }
    });
  }

  // Shows the selected row: the first of its square, unless another is typed.
  /** @param {Scene} scene @param {Palette} colours */
  show(scene, colours) {
    const { state, layer, map } = scene;
    this.shown = { scene, colours };
    const asked = [map, layer.name, state.head, state.query];
    if (asked.every((value, index) => value === this.askedFor[index])) return this.draw();
    if (state.query !== this.askedFor[3] || Math.floor(this.step / layer.square) !== state.query) {
      this.step = state.query * layer.square;
    }
    this.askedFor = asked;
    this.go(this.step);
  }

  /** @param {number} step */
  go(step) {
    if (!this.shown || !Number.isInteger(step)) return;
    const { layer, state } = this.shown.scene;
    this.step = step;
    this.number.value = String(step);
    this.ask({ layer: layer.name, head: state.head, step });
  }

  draw() {
    const { found, shown } = this;
    if (!found || !shown) return;
    const rows = found.largest.map(({ step, key, weight }) => [String(step), tokenLabel(key), weight.toPrecision(6)]);
    this.row.show([found, shown.colours], () => [
      node("p", {}, `Attention of “${isolate(tokenLabel(found.query))}” to all ${found.weights.length} steps:`),
      drawStrip(found.weights, shown.colours),
      scrollBox(table(["step", "key", "weight"], rows), "The largest weights of the row"),
    ]);
  }
}

// A row as a strip of colours, scaled to its largest weight.
/** @param {number[]} weights @param {Palette} colours */
function drawStrip(weights, colours) {
  /** @type {Level} */
  let level = { values: Float32Array.from(weights), rows: 1, columns: weights.length };
  while (level.columns > STRIP_WIDTH) level = halve(level);
  const canvas = node("canvas", { width: level.columns, height: 1, role: "img" });
  canvas.setAttribute("aria-label", `${weights.length} weights as colors; the table below lists the largest`);
  const largest = level.values.reduce((maximum, value) => Math.max(maximum, value), 1e-9);
  const image = canvasContext(canvas).createImageData(level.columns, 1);
  new Uint32Array(image.data.buffer).set(
    Array.from(level.values.subarray(0, level.columns), (value) => colours.table[shade(value / largest)]),
  );
  canvasContext(canvas).putImageData(image, 0, 0);
  Object.assign(canvas.style, { width: "100%", height: `${STRIP_HEIGHT}px`, imageRendering: "pixelated" });
  canvas.style.border = "1px solid var(--edge)";
  return canvas;
}

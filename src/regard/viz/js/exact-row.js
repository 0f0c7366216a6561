// One exact row of a long input, which is requested, since the map contains only the maximum of each square.

import { headRow, scrollBox } from "./bars.js";
import { canvasContext, node, Part } from "./dom.js";
import { shade } from "./colours.js";
import { isolate, tokenLabel } from "./labels.js";
import { latest } from "./latest.js";
import { halve } from "./pyramid.js";

/** @import { Palette } from "./colours.js" */
/** @import { RowData } from "./data.js" */
/** @import { Level } from "./pyramid.js" */
/** @import { Scene } from "./scene.js" */

/** @typedef {{ layer: string, head: number, step: number }} LongRow */
/** @typedef {(which: LongRow) => Promise<RowData>} AskRow */

const STRIP_HEIGHT = 24; // pixels

export class Long {
  /** @param {AskRow} ask */
  constructor(ask) {
    this.step = 0;
    /** @type {unknown[]} */
    this.askedFor = [];
    /** @type {RowData | null} */
    this.found = null;
    /** @type {{ scene: Scene, colours: Palette, width: number } | null} */
    this.shown = null;
    this.number = node("input", { type: "number", min: 0, step: 1, "data-name": "step" });
    this.number.addEventListener("change", () => this.go(Number(this.number.value)));
    this.row = new Part();
    this.element = node("section", { class: "sum", "aria-label": "Exact row" });
    const label = node("label", {}, "Exact row: step");
    label.append(this.number);
    this.element.append(label, this.row.element);
    this.ask = latest(async (/** @type {LongRow} */ which) => {
      try {
        this.found = await ask(which);
        this.draw();
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        this.row.show([error], () => [node("p", { role: "alert" }, message)]);
      }
    });
  }

  /**
   * Shows the selected row: the first of its square, unless another is typed.
   *
   * @param {Scene} scene
   * @param {Palette} colours
   * @param {number} width
   */
  show(scene, colours, width) {
    const { state, layer, map } = scene;
    this.shown = { scene, colours, width };
    const asked = [map, layer.name, state.head ?? state.focus, state.query];
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
    this.ask({ layer: layer.name, head: state.head ?? state.focus, step });
  }

  draw() {
    const { found, shown } = this;
    if (!found || !shown) return;
    this.row.show([found, shown.colours, shown.width], () => [
      node("p", {}, `Attention of “${isolate(tokenLabel(found.query))}” to all ${found.weights.length} steps:`),
      drawStrip(found.weights, shown.colours, shown.width),
      scrollBox(largestOf(found), "The largest weights of the row"),
    ]);
  }
}

/**
 * A row as a strip of colours, scaled to its largest weight.
 *
 * @param {number[]} weights
 * @param {Palette} colours
 * @param {number} width
 */
function drawStrip(weights, colours, width) {
  /** @type {Level} */
  let level = { values: Float32Array.from(weights), rows: 1, columns: weights.length };
  while (level.columns > Math.max(width, 1)) level = halve(level);
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

/** @param {RowData} row */
function largestOf({ largest }) {
  const table = node("table");
  const body = node("tbody");
  for (const { step, key, weight } of largest) {
    const line = node("tr");
    line.append(
      node("td", {}, String(step)),
      node("th", { scope: "row" }, tokenLabel(key)),
      node("td", {}, weight.toPrecision(6)),
    );
    body.append(line);
  }
  table.append(headRow("step", "key", "weight"), body);
  return table;
}

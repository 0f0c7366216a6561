// The pictures of the selected heads, one panel each. A panel is reused, so that zoom, position and focus are kept.

import { button, canvasContext, node, svg, textScale } from "./dom.js";
import { axisLine, heatmap } from "./heatmap.js";
import { headTag, axisTitles, headImportance, isolate, percent, shortImportance, signedNumber } from "./labels.js";
import { lines } from "./lines.js";
import { overlay } from "./overlay.js";
import { CanvasPen, SvgPen } from "./pen.js";
import { listen, Viewport } from "./viewport.js";

/** @import { Margins } from "./heatmap.js" */
/** @import { Palette } from "./colours.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

/** @typedef {{ query: number, key: number | null }} Marked a row, and perhaps a cell in it */

const PAINTERS = { heatmap, lines, picture: overlay, flow: heatmap };
const CAPTION = 22; // pixels
const GAP = 14; // pixels between panels
const TITLED = 300; // pixels of a panel in whose caption the titles of the axes fit
const SQUARE = 1.8; // ratio of the sides of a panel above which more room does not help

let numbered = 0; // panels so far, for unique element names

/** What a painter needs to know. */
export class Panel {
  /** @param {Scene} scene @param {number} head @param {{ width: number, height: number, colours: Palette }} room */
  constructor(scene, head, { width, height, colours }) {
    this.scene = scene;
    this.head = head;
    this.width = width;
    this.height = height;
    this.colours = colours;
    this.viewport = new Viewport(scene.matrix);
    /** @type {Marked} */
    this.mark = scene.state;
    this.titled = true; // whether the titles of the axes are above the matrix
    /** @type {Margins} */
    this.margins = { left: 0, top: 0, upright: false };
    this.right = 0; // of lines: where they end
    this.image = { x: 0, y: 0, width: 0, height: 0 };
  }

  get painter() {
    return PAINTERS[this.scene.state.mode];
  }

  draw() {}

  /** The picture in SVG. */
  vector() {
    this.painter.fit(this);
    const group = svg("g");
    this.painter.paint(new SvgPen(group), this);
    return group;
  }
}

/** A panel on the screen. */
class ScreenPanel extends Panel {
  /** @param {Scene} scene @param {number} head @param {Surface} surface @param {Actions} actions */
  constructor(scene, head, surface, actions) {
    super(scene, head, surface);
    this.frame = 0;
    this.onPaper = false;
    this.canvas = node("canvas", { "aria-hidden": "true" });
    this.caption = node("figcaption");
    this.cell = node("span", { role: "gridcell", id: `regard-cell-${(numbered += 1)}` });
    this.rowName = node("span", { role: "rowheader" });
    this.row = node("div", { role: "row", class: "unseen" });
    this.row.append(this.rowName, this.cell);
    this.grid = node("div", { role: "grid", tabindex: 0, "aria-activedescendant": this.cell.id });
    this.grid.append(this.canvas, this.row);
    this.figure = node("figure");
    this.zoom = this.zoomButtons();
    this.figure.append(this.caption, this.grid, this.zoom);
    listen({
      element: this.grid,
      canvas: this.canvas,
      viewport: this.viewport,
      under: (x, y) => this.painter.under(this, x, y),
      chosen: () => this.scene.state,
      onPoint: (place) => actions.point(place && { key: null, ...place, head: this.selected }),
      onChoose: (place, shift) => this.choose(place, shift, actions),
      onHead: (by) => {
        const { heads } = this.scene.matrix;
        actions.choose({ head: (this.scene.state.head + by + heads) % heads });
      },
      draw: () => this.draw(),
    });
  }

  /** The head that a click in this panel selects. */
  get selected() {
    return this.scene.derived ? this.scene.state.head : this.head;
  }

  /** @param {Partial<{ query: number, key: number }>} place @param {boolean} shift @param {Actions} actions */
  choose({ query, key }, shift, actions) {
    const { state, matrix } = this.scene;
    const head = this.selected;
    const patch = state.mode === "picture" && key !== undefined && !shift && key < matrix.rows;
    if (patch) actions.choose({ head, query: key, key: null });
    else actions.choose({ head, query: query ?? state.query, key: key ?? null });
  }

  /** @param {Scene} scene @param {number} head @param {Surface} surface @param {string} caption @param {{ alone: boolean, first: boolean }} place */
  show(scene, head, surface, caption, { alone, first }) {
    const { width, height, onPaper = false } = surface;
    const { matrix, layer, state } = scene;
    Object.assign(this, { scene, head, mark: state, colours: surface.colours, onPaper });
    Object.assign(this, { width, height: height - (caption ? CAPTION : 0) });
    const { mode } = state;
    this.titled = alone || scene.beside !== null || width < TITLED * textScale();
    this.painter.fit(this);
    const titles =
      first && !this.titled && mode === "heatmap" ? [node("span", { class: "quiet" }, axisLine(this))] : [];
    this.zoom.hidden = !alone || mode === "lines" || mode === "picture" || !this.viewport.zoomable || onPaper;
    this.caption.replaceChildren(caption, ...titles);
    this.figure.classList.toggle("chosen", scene.heads.length > 1 && head === state.head);
    this.caption.hidden = !caption;
    const [down, across] = axisTitles(scene);
    const name = `${layer.title}, ${matrix.name(head)}: rows ${down}, columns ${across}; arrow keys move`;
    const attributes = { "aria-rowcount": matrix.rows, "aria-colcount": matrix.columns, "aria-label": name };
    for (const [attribute, value] of Object.entries(attributes)) this.grid.setAttribute(attribute, String(value));
    this.tell();
    this.paint();
  }

  /** Announces the marked weight, or the largest of the marked row, to screen readers. */
  tell() {
    const { matrix, changes } = this.scene;
    const { query } = this.mark;
    const key = this.mark.key ?? matrix.strongest(this.head, query);
    this.row.setAttribute("aria-rowindex", String(query + 1));
    this.cell.setAttribute("aria-colindex", String(key + 1));
    this.rowName.textContent = matrix.queries[query] ?? "";
    const change = changes && signedNumber(changes[this.head][query * matrix.columns + key] || 0);
    const value = change ?? percent(matrix.at(this.head, query, key) ?? 0);
    this.cell.textContent = `${isolate(matrix.keys[key] ?? "")} ${value}`;
  }

  /** @override */
  draw() {
    this.frame ||= requestAnimationFrame(() => this.paint()); // a pending frame draws the newest state
  }

  paint() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const { canvas, width, height } = this;
    const ratio = devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== wide) canvas.width = wide;
    if (canvas.height !== high) canvas.height = high;
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    canvas.style.touchAction = this.viewport.factor > 1 ? "none" : "manipulation";
    const context = canvasContext(canvas);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    this.painter.paint(new CanvasPen(context), this);
  }

  zoomButtons() {
    const bar = node("div", { class: "zoom" });
    /** @type {Record<string, [string, number]>} */
    const factors = { "+": ["zoom in", 2], "−": ["zoom out", 0.5], fit: ["show all", 0] };
    for (const [sign, [name, factor]] of Object.entries(factors)) {
      const element = button(sign, () => {
        this.viewport.zoom(factor);
        this.draw();
      });
      element.title = name;
      bar.append(element);
    }
    return bar;
  }
}

/** The panels of a scene: its heads, and in a comparison the displayed map, the other one, and their difference. @param {Scene} scene */
export function panelScenes(scene) {
  const { beside, map, heads } = scene;
  if (!beside) return heads.map((head) => ({ scene, head }));
  const own = { ...scene, changes: null, title: `displayed: ${map.input}` };
  const data = { ...scene.data, importance: undefined }; // of the displayed map only
  const other = { ...own, data, matrix: beside.matrix, before: null, title: `compared: ${beside.name}` };
  const difference = { changes: beside.changes, largest: beside.most, title: "difference: displayed minus compared" };
  const sides = [own, other, ...(beside.changes ? [{ ...own, data, ...difference }] : [])];
  return sides.filter((side) => scene.head < side.matrix.heads).map((side) => ({ scene: side, head: scene.head }));
}

/** The caption of a panel: of several, or where a head has its own scale. @param {Scene} scene @param {number} head @param {number} count of panels */
export function panelCaption(scene, head, count) {
  const { map, layer, data, matrix, scale, state, title, derived } = scene;
  const own = scale.name === "own" && !scene.changes && !derived ? `own scale: 0 to ${scale.end(matrix, [head])}` : "";
  if (title) return [title, own].filter(Boolean).join(", ");
  if (count === 1) return own;
  const worth = state.frame === null ? headImportance(data, layer.name, head, matrix.names) : undefined;
  const parts = [headTag(map.layers, layer, head), own, worth ? `loss ${shortImportance(worth)} when off` : ""];
  return parts.filter(Boolean).join("  ");
}

/**
 * The number of panels in a row that makes the cells largest.
 * @param {number} count @param {number} width @param {number} height
 */
export function panelsPerRow(count, width, height) {
  const sizes = Array.from({ length: count }, (_, index) => {
    const [wide, high] = [width / (index + 1), height / Math.ceil(count / (index + 1)) - CAPTION];
    return Math.min(wide, SQUARE * high) * Math.min(high, SQUARE * wide);
  });
  return sizes.indexOf(Math.max(...sizes)) + 1;
}

export class Stage {
  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    this.element = node("div", { class: "stage" });
    /** @type {ScreenPanel[]} */
    this.panels = [];
  }

  /** @param {string} text */
  showNothing(text) {
    this.panels = [];
    this.element.replaceChildren(node("p", { class: "empty" }, text));
  }

  /** @param {Scene} scene @param {Surface} surface */
  show(scene, surface) {
    const wanted = panelScenes(scene);
    const beside = panelsPerRow(wanted.length, surface.width, surface.height);
    const rows = Math.ceil(wanted.length / beside);
    const width = Math.floor((surface.width - GAP * (beside - 1)) / beside);
    const height = Math.floor((surface.height - GAP * (rows - 1)) / rows);
    const same = this.panels.length === wanted.length;
    const sameSize = this.panels.every(({ viewport }, index) => {
      const { rows: high, columns } = wanted[index]?.scene.matrix ?? {};
      return viewport.rows === high && viewport.columns === columns;
    });
    if (!same || !sameSize)
      this.panels = wanted.map(({ scene, head }) => new ScreenPanel(scene, head, surface, this.actions));
    this.panels.forEach((panel, index) => {
      const { scene: side, head } = wanted[index];
      panel.grid.dataset.name = `picture-${index}`;
      panel.show(side, head, { ...surface, width, height }, panelCaption(side, head, wanted.length), {
        alone: wanted.length === 1,
        first: index === 0,
      });
    });
    this.element.style.gridTemplateColumns = `repeat(${beside}, ${width}px)`;
    if (!same || !sameSize || !this.element.querySelector("figure"))
      this.element.replaceChildren(...this.panels.map((panel) => panel.figure));
  }
}

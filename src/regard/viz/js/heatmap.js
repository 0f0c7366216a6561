// Heatmaps of heads: queries down, keys across. A heatmap is reused for weights of the same size, so that zoom,
// position and keyboard focus are kept.

import { labelInterval, labelMargins, paint } from "./painting.js";
import { button, node, oneTabStop } from "./dom.js";
import { listen, Viewport } from "./viewport.js";
import { axisTitles, headImportance, isolate, layerTitle, percent, shortImportance, signedNumber } from "./labels.js";
import { Pyramid } from "./matrix.js";
import { ownRange } from "./scale.js";

/** @import { Marked, Picture } from "./painting.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

const TALL = 130; // pixels; higher rows have a title beside them

let numbered = 0; // number of heatmaps so far, for unique element names

/** @param {Scene} scene @param {Surface} surface */
function roomFor({ matrix }, { width, height }) {
  return labelMargins(matrix, width, height ?? undefined);
}

/** The heatmap of one head with its frame. */
export class Heatmap {
  /** @param {number} head @param {Scene} scene @param {Surface} surface @param {Actions} actions */
  constructor(head, scene, surface, actions) {
    this.head = head;
    this.scene = scene;
    this.surface = surface;
    this.frame = 0;
    this.viewport = new Viewport(scene.matrix, roomFor(scene, surface), surface.width, surface.height ?? undefined);
    this.canvas = node("canvas", { "aria-hidden": "true" });
    this.caption = node("figcaption");
    this.across = "";
    this.acrossName = node("span", { class: "axis across" });
    this.downName = node("span", { class: "axis down" });
    this.cell = node("span", { role: "gridcell", id: `regard-cell-${(numbered += 1)}` });
    this.rowName = node("span", { role: "rowheader" });
    this.row = node("div", { role: "row", class: "unseen" });
    this.row.append(this.rowName, this.cell);
    this.grid = node("div", { role: "grid", tabindex: 0, "aria-activedescendant": this.cell.id });
    this.grid.append(this.canvas, this.row);
    this.figure = node("figure");
    this.figure.append(this.caption, this.acrossName, this.downName, this.grid);
    if (this.viewport.zoomable) this.figure.append(this.zoomButtons());
    /** @type {Picture} */
    this.picture = this.pictured();
    /** @type {Marked} */
    this.marked = scene.state;
    listen({
      element: this.grid,
      canvas: this.canvas,
      viewport: this.viewport,
      chosen: () => this.scene.state,
      onPoint: (query, key) => actions.point(query, key, head),
      onLeave: () => actions.rest(),
      onChoose: (query, key) => actions.choose({ query, key, focus: head }),
      onHead: (by) => actions.choose({ head: (this.scene.state.focus + by + this.heads) % this.heads }),
      draw: () => this.draw(),
    });
  }

  get heads() {
    return this.scene.matrix.heads;
  }

  /**
   * Shows other weights with the same number of queries and keys.
   * @param {Scene} scene @param {Surface} surface
   * @param {number} place index among the heatmaps
   */
  show(scene, surface, place) {
    const { matrix, layer, state } = scene;
    const same = surface.width === this.surface.width && surface.height === this.surface.height;
    const moved = scene.matrix !== this.scene.matrix || !same;
    Object.assign(this, { scene, surface, marked: state });
    if (moved) this.viewport.fitInto(roomFor(scene, surface), surface.width, surface.height ?? undefined);
    this.picture = this.pictured();
    const [down, across] = axisTitles(scene);
    this.nameSides(down, `${across} →${matrix.sumsToOne && !scene.changes ? " (each row sums to 1)" : ""}`);
    this.caption.replaceChildren(...makeCaption(this.head, scene));
    this.grid.dataset.name = `heatmap-${place}`;
    const size = { "aria-rowcount": matrix.rows, "aria-colcount": matrix.columns };
    const name = `${layer.title}, ${matrix.name(this.head)}: rows ${down}, columns ${across}; arrow keys move`;
    for (const [key, value] of Object.entries({ ...size, "aria-label": name })) {
      this.grid.setAttribute(key, String(value));
    }
    this.tell(state.query, state.key ?? matrix.strongest(this.head, state.query));
  }

  // Writes the titles of rows and columns, in one line if there are few rows.
  /** @param {string} down @param {string} across */
  nameSides(down, across) {
    const { left, top, height } = this.viewport;
    const tall = height > TALL;
    this.downName.textContent = tall ? `${down} →` : ""; // the text is rotated, so the arrow points down
    this.downName.style.marginTop = `${top}px`;
    this.across = tall ? across : `${down} ↓   ${across}`;
    this.acrossName.style.marginLeft = tall ? `${left}px` : "0";
  }

  /** @returns {Picture} */
  pictured() {
    const { matrix, changes, largest, scale } = this.scene;
    const { rows, columns, relevant, queries, keys } = matrix;
    const values = (changes ?? matrix.slices)[this.head];
    const known = this.picture?.pyramid;
    return {
      viewport: this.viewport,
      pyramid: known?.levels[0].values === values ? known : new Pyramid({ values, rows, columns }, changes !== null),
      changing: changes !== null,
      share: changes ? (value) => value / largest : scale.of(matrix, this.head).share,
      aside: scale.aside && changes === null,
      queries,
      keys,
      upright: roomFor(this.scene, this.surface).upright,
      relevant,
      colours: this.surface.colours,
    };
  }

  /** Marks a row, and optionally a cell in it. @param {number} query @param {number | null} key */
  mark(query, key) {
    this.marked = { query, key };
    this.draw();
  }

  /** Announces a weight to screen readers. @param {number} query @param {number} key */
  tell(query, key) {
    const { matrix, changes, title } = this.scene;
    this.row.setAttribute("aria-rowindex", String(query + 1));
    this.cell.setAttribute("aria-colindex", String(key + 1));
    this.rowName.textContent = matrix.queries[query] ?? "";
    const change = changes && title ? signedNumber(changes[this.head][query * matrix.columns + key] || 0) : null;
    const value = change ?? percent(matrix.at(this.head, query, key) ?? 0);
    this.cell.textContent = `${isolate(matrix.keys[key] ?? "")} ${value}`;
  }

  draw() {
    this.frame ||= requestAnimationFrame(() => this.drawNow()); // a pending frame draws the newest state
  }

  drawNow() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    paint(this.canvas, this.picture, this.marked);
    const every = labelInterval(Math.min(this.viewport.cell, this.viewport.rowCell)); // changes with the zoom
    this.acrossName.textContent = `${this.across}${every > 1 ? ` (1 in ${every} is labeled)` : ""}`;
  }

  zoomButtons() {
    const { viewport } = this;
    const bar = node("div", { class: "zoom" });
    /** @type {HTMLButtonElement[]} */
    const buttons = [];
    /** @type {[string, string, () => void][]} */
    const offered = [
      ["+", "zoom in", () => viewport.zoom(2)],
      ["−", "zoom out", () => viewport.zoom(0.5)],
      ["fit", "show all", () => viewport.fit()],
    ];
    for (const [sign, name, change] of offered) {
      const element = button(sign, () => {
        change();
        this.draw();
      });
      element.title = name;
      bar.append(element);
      buttons.push(element);
    }
    oneTabStop(buttons, 0);
    return bar;
  }
}

// The caption of a heatmap: head, layer or comparison, and the importance of the head.

/** @param {number} head @param {Scene} scene */
function makeCaption(head, scene) {
  const { data, map, layer, matrix, state, title } = scene;
  const parts = [node("b", {}, matrix.heads > 1 || matrix.names ? matrix.name(head) : layerTitle(layer, map.layers))];
  if (matrix.heads > 1 && !matrix.names && !title)
    parts.push(node("span", { class: "quiet", title: layer.title }, layerTitle(layer, map.layers)));
  const range = ownRange(scene, head);
  if (range) parts.push(node("span", { class: "quiet" }, range));
  if (title) parts.push(node("span", {}, title));
  const known = !matrix.names && state.frame === null; // importance describes heads of the trained model
  const worth = headImportance(data, layer.name, head, !known);
  if (worth) parts.push(node("span", { class: "quiet" }, `off: loss ${shortImportance(worth)}`));
  return parts;
}

// The picture of the chosen head or layer, in the chosen way to draw.

import { arcs, lines } from "./lines.js";
import { button, buttonGroup, checkbox, node, Part, select } from "./dom.js";
import { effectPanels, effectSurface } from "./changes.js";
import { overlays } from "./overlay.js";
import { arrangePanels, heatmaps, heatmapsBeside } from "./panels.js";
import { markTiles, measureBars, measureMatrix, measureTable, poster, posterRows } from "./poster.js";
import { availableMeasures, chosenMeasure, MEASURES } from "./measures.js";
import { headCount } from "./matrix.js";
import { axisTitles, nearbyIndices, shortNames } from "./labels.js";
import { clamp } from "./arithmetic.js";

/** @import { Heatmap } from "./heatmap.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */
/** @import { InterventionData, LayerData } from "./data.js" */

const MOST_DRAWN = 160; // of more tokens, lines and tables show those around the chosen one

export class Stage {
  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    this.part = new Part("stage");
    this.element = this.part.element;
    /** @type {Map<string, Heatmap>} */
    this.panels = new Map();
  }

  /** @param {string} reason */
  showNothing(reason) {
    this.panels = new Map();
    this.part.show([reason], () => [node("p", { class: "quiet" }, reason)]);
  }

  /** @param {Scene} scene @param {Surface} whole @param {Actions} actions */
  show(scene, whole, actions = this.actions) {
    const surface = scene.effect ? effectSurface(whole) : whole;
    const { map, layer, matrix, changes, largest, state, data, scale } = scene;
    this.panels = ["heatmap", "flow"].includes(state.mode) ? heatmaps(scene, actions, surface, this.panels) : new Map();
    const figures = [...this.panels.values()].map((panel) => panel.figure);
    const room = [surface.width, surface.height];
    const inputs = [map, matrix, changes, largest, state.head, data.importance, surface.colours, ...room];
    const wanted = [state.off, state.least, state.top, state.sorted, state.chart, state.measure, data.roles];
    const large = Math.max(matrix.rows, matrix.columns) > MOST_DRAWN && state.mode === "table";
    const lined = ["lines", "arcs", "picture"].includes(state.mode);
    const place = large || lined ? [state.query, state.key] : [];
    const panels = () =>
      scene.effect ? effectPanels(figures[0], scene, whole) : arrangePanels(figures, heatmapsBeside(scene, surface));
    const make = {
      picture: () => overlays(scene, actions, surface),
      heatmap: panels,
      lines: () => lines(scene, actions, surface),
      arcs: () => arcs(scene, actions, surface),
      flow: panels,
      table: () => tables(scene, actions),
      overview: () => overview(scene, actions, surface),
    };
    const coloured = [scale.name, state.aside, ...inputs, ...wanted, ...place];
    const reused = [...figures, ...room, ...(scene.effect ? coloured : [])];
    this.part.show([state.mode, scene.effect, ...(this.panels.size ? reused : coloured)], () => [make[state.mode]()]);
    if (state.mode === "overview") markTiles(this.element, { ...scene, layer }, [], "thumb");
    for (const panel of this.panels.values()) surface.onPaper ? panel.drawNow() : panel.draw();
  }

  /** Marks a row, and optionally a cell in it. @param {number} query @param {number | null} key */
  mark(query, key) {
    for (const panel of this.panels.values()) panel.mark(query, key);
  }
}

// The overview: the poster of all heads with role and importance, and measures as bars and as a matrix.

const CHARTS = /** @type {const} */ (["heads", "bars", "matrix"]);
const LEAST_SIDE = 14; // pixels of a picture
const LARGEST_SIDE = 84;
const APART_THUMBS = 6;
const NAMES_ROOM = 40; // pixels of the layers' names

/** @param {Scene} scene @param {Actions} actions @param {Surface} surface */
export function overview(scene, actions, surface) {
  const { data, state } = scene;
  const measured = chosenMeasure(scene);
  const box = node("div", { class: "overview" });
  const bar = node("div", { class: "bar" });
  const names = ["Heads", `Bars: ${measured.title}`, `Matrix: ${measured.title}`];
  const at = CHARTS.indexOf(state.chart);
  bar.append(buttonGroup("Overview", names, at, (index) => actions.choose({ chart: CHARTS[index] })));
  if (data.importance && state.chart === "heads")
    bar.append(checkbox("sorted by importance", state.sorted, (sorted) => actions.choose({ sorted })));
  box.append(bar);
  if (state.chart === "heads") {
    const heads = Math.max(...scene.map.layers.map(headCount), 1);
    const room = (surface.width - NAMES_ROOM) / Math.min(heads, posterRows(scene)[0].length) - APART_THUMBS;
    const side = Math.round(Math.max(LEAST_SIDE, Math.min(LARGEST_SIDE * surface.factor, room)));
    box.append(poster(scene, actions, surface, { side, kind: "thumb" }), ...notes(scene));
    return box;
  }
  const chart = state.chart === "bars" ? measureBars : measureMatrix;
  const picture = node("div", { class: "chart" });
  picture.append(chart(scene, surface.colours, surface.width - 12));
  const numbers = node("details");
  numbers.append(node("summary", {}, "The numbers"), measureTable(scene));
  box.append(node("p", { class: "quiet" }, `${measured.title}: ${measured.unit}.`), picture, numbers);
  return box;
}

/** @param {Scene} scene */
function notes(scene) {
  const { importance, roles } = scene.data;
  const measured = chosenMeasure(scene);
  const parts = [`The bar below each head: ${measured.title} (${measured.unit}).`];
  if (importance)
    parts.push("Signed numbers: the loss increase when the head is off, in brackets if it is not significant.");
  if (roles && Object.keys(roles).length)
    parts.push(
      "Words: the role of the head over many samples, and its strength (0: uniform attention, 1: this role alone).",
    );
  return [node("p", { class: "quiet" }, parts.join(" "))];
}

// Weights as numbers in tables, for screen readers and exact values.

const MOST = 40; // rows and columns shown at once

/** A table for each selected head. @param {Scene} scene @param {Actions} actions */
export function tables(scene, actions) {
  const { matrix, state } = scene;
  const box = node("div", { class: "tables" });
  const queries = nearbyIndices(matrix.rows, state.query, MOST);
  const keys = nearbyIndices(matrix.columns, state.key ?? 0, MOST);
  for (const head of matrix.shown(state)) box.append(headTable(scene, head, queries, keys, actions));
  const left = matrix.rows - queries.length + matrix.columns - keys.length;
  if (left > 0) {
    const shown = `${queries.length} of ${matrix.rows} rows and ${keys.length} of ${matrix.columns} columns`;
    box.append(node("p", { class: "quiet" }, `${shown}; the saved CSV file contains all.`));
  }
  return box;
}

/**
 * @param {Scene} scene @param {number} head @param {number[]} queries @param {number[]} keys
 * @param {Actions} actions
 */
function headTable(scene, head, queries, keys, { choose }) {
  const { matrix, changes, layer } = scene;
  const [down, across] = axisTitles(scene);
  const table = node("table");
  const quantity = changes ? "change of the weights" : "weights";
  table.append(
    node("caption", {}, `${layer.title}, ${matrix.name(head)}: ${quantity}; rows ${down}, columns ${across}`),
  );
  const top = node("tr");
  top.append(node("td"), ...keys.map((key) => node("th", { scope: "col" }, matrix.keys[key])));
  const [body, first] = [node("tbody"), node("thead")];
  first.append(top);
  for (const query of queries) {
    const row = node("tr");
    const name = node("th", { scope: "row" });
    const chosen = button(matrix.queries[query], () => choose({ query, key: null, focus: head }));
    chosen.dataset.name = `row-${head}-${query}`;
    name.append(chosen);
    row.append(name);
    for (const key of keys) {
      const value = (changes ?? matrix.slices)[head][query * matrix.columns + key];
      row.append(node("td", {}, value.toFixed(3)));
    }
    body.append(row);
  }
  table.append(first, body);
  const box = node("div", {
    class: "scrolling",
    tabindex: 0,
    role: "region",
    "aria-label": `weights of ${matrix.name(head)}`,
  });
  box.dataset.name = `table-${head}`;
  box.append(table);
  return box;
}

// The navigator: all heads of the model as a grid, from which one is chosen.

const TILE_GAP = 3; // pixels between pictures
const AROUND_TILES = 56; // pixels of the layers' names and of the pane's edges
const ABOVE_TILES = 128; // pixels of the list, the sentence, the numbers and the pane's edges
const LARGEST_TILE = 72; // pixels of a picture
const SMALLEST_TILE = 14;
const MOST_HIGH = 640; // pixels of all pictures of a column, with their bars, where the height is not limited
const BAR_SPACE = 7; // pixels of a bar and of the gaps around it
const STRETCH = 1.7; // ratio of the sides of a picture of equally many queries and keys
const LONGEST_NAME = 3; // characters of a layer's name above a column
const MOST_WIDE = 0.35; // of the view's width
const LEAST_WIDE = 220; // pixels
export const TABS = 900; // pixels of a view below which its panes are tabs, as in style.js

/**
 * The pixels of a picture and of the whole navigator.
 * @param {Pick<Scene, "map">} scene @param {Pick<Surface, "whole" | "high" | "factor">} surface
 */
export function navigatorSize({ map }, { whole, high, factor }) {
  const heads = Math.max(...map.layers.map(headCount), 1);
  const layers = Math.max(map.layers.length, 1);
  const uniform = isUniform(map.layers);
  const most = whole > TABS ? whole * MOST_WIDE : whole; // a tab has the whole width
  const room = most - AROUND_TILES * factor;
  const below = high === null ? MOST_HIGH : Math.max(high - ABOVE_TILES * factor, MOST_HIGH / 2);
  /** @param {number} columns @param {number} rows */
  const fitting = (columns, rows) => {
    const [wide, tall] = [room / columns - TILE_GAP, below / rows - BAR_SPACE - TILE_GAP];
    const limit = LARGEST_TILE * factor;
    if (!uniform) return { side: clamp(wide, SMALLEST_TILE, limit), tall: undefined };
    const side = clamp(Math.min(wide, STRETCH * tall), SMALLEST_TILE, limit);
    return { side, tall: clamp(tall, side / STRETCH, Math.min(side * STRETCH, limit)) };
  };
  // Twelve heads in each of six layers get larger pictures if each layer is a column.
  const flat = fitting(heads, layers);
  const turned = fitting(layers, heads);
  const legible = below / heads >= SMALLEST_TILE + BAR_SPACE;
  const upright = uniform && legible && turned.side * (turned.tall ?? 0) > flat.side * (flat.tall ?? 0);
  const { side, tall } = upright ? turned : flat;
  const wanted = AROUND_TILES * factor + (upright ? layers : heads) * (Math.floor(side) + TILE_GAP);
  return {
    side: Math.floor(side),
    tall: tall && Math.floor(tall),
    upright,
    width: Math.round(clamp(wanted, LEAST_WIDE * factor, Math.max(most, LEAST_WIDE))),
  };
}

// Whether the layers are of one kind, with equal numbers of heads and short names.
/** @param {LayerData[]} layers */
function isUniform(layers) {
  const [first] = layers;
  return (
    layers.length > 0 &&
    layers.every(
      (layer) => layer.kind === first.kind && layer.kind !== "cross" && headCount(layer) === headCount(first),
    ) &&
    [...shortNames(layers).values()].every((name) => name.length <= LONGEST_NAME)
  );
}

export class Navigator {
  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    this.choice = new Part("choice-of-rank");
    this.grid = new Part("scrolling");
    this.element = node("div");
    this.element.append(this.choice.element, this.grid.element);
  }

  /** @param {Scene} scene @param {readonly InterventionData[]} interventions @param {Surface} surface */
  show(scene, interventions, surface) {
    const { actions } = this;
    const { data, map, state, scale } = scene;
    const { side, tall, upright } = navigatorSize(scene, surface);
    const measures = availableMeasures(scene);
    const measured = chosenMeasure(scene);
    const known = [data.importance, data.roles];
    this.choice.show([measured.name, measures.join()], () => {
      const names = measures.map((name) => MEASURES[name].title);
      const list = select("Rank by", names, measures.indexOf(measured.name), (index) =>
        actions.choose({ measure: measures[index] }),
      );
      list.title = "What orders the heads; the bar below each head shows it";
      return [list, node("p", { class: "quiet unit" }, measured.unit)];
    });
    const shared = scale.name === "shared" && state.frame !== null ? scale.largest : 0;
    const inputs = [map, ...known, state.words, measured.name, scale.name, shared, state.aside];
    this.grid.show([...inputs, surface.colours, side, tall], () => {
      const look = { side, tall, upright, kind: "tile" };
      return [poster({ ...scene, state: { ...state, sorted: false } }, actions, surface, look)];
    });
    markTiles(this.grid.element, scene, interventions, "tile");
  }
}

// The poster of a model: small pictures of all heads in a grid of layers and heads.

import { headName } from "./labels.js";
import { node, oneTabStop } from "./dom.js";
import { rankHeads } from "./ranking.js";
import { layerTitle, shortNames } from "./layer-names.js";
import { headImportance, shortImportance } from "./importance.js";
import { chosenMeasure } from "./measures.js";
import { headRole, roleSentence, shortRole } from "./roles.js";
import { headCount } from "./packing.js";
import { posterScale } from "./scene-scale.js";
import { thumbPixels } from "./thumbs.js";

/** @import { InterventionData, LayerData } from "./data.js" */
/** @import { Measured } from "./measures.js" */
/** @import { Small } from "./ranking.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

const TEXT_FROM = 54; // pixels of a picture below which nothing is written under it
const NUMBERS_FROM = 15; // pixels of a picture below which only each fourth head is numbered
const AT_ONCE = 250_000; // weights; of more, the heads are drawn after the picture, so that a page opens quickly
const SLICE = 12; // milliseconds of drawing without a pause

/**
 * All heads, a row for each layer; in a single row by descending importance if that is chosen.
 *
 * @param {Scene} scene
 * @returns {Small[][]}
 */
export function posterRows({ map, data, state }) {
  const kinds = [...new Set(map.layers.map((layer) => layer.kind))];
  const grouped = kinds.flatMap((kind) => map.layers.filter((layer) => layer.kind === kind));
  const rows = grouped.map((layer) => Array.from({ length: headCount(layer) }, (_, head) => ({ layer, head })));
  const { importance } = data;
  if (!state.sorted || !importance) return rows;
  /** @param {Small} small */
  const added = ({ layer, head }) => headImportance(data, layer.name, head)?.added ?? 0;
  return [rows.flat().sort((first, second) => added(second) - added(first))];
}

/**
 * @typedef {object} Look
 * @property {number} side pixels of the longer side of a picture
 * @property {number} [tall] pixels of its height if it is stretched
 * @property {string} kind CSS class of a picture: "thumb" in the overview, "tile" in the navigator
 * @property {boolean} [upright] whether each layer is a column, which needs an equal number of heads in all layers
 */

/**
 * The grid; its pictures are drawn at once, or one layer after the other if there are many weights.
 *
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Surface} surface
 * @param {Look} look
 */
export function poster(scene, actions, surface, look) {
  const rows = posterRows(scene);
  const sorted = rows.length === 1 && scene.map.layers.length > 1;
  const upright = look.upright === true;
  const grid = upright ? rows[0].map((_, head) => rows.map((row) => row[head])) : rows;
  const columns = Math.max(...grid.map((row) => row.length), 1);
  const box = node("div", { class: `poster${sorted ? " sorted" : ""}${upright ? " upright" : ""}` });
  const names = shortNames(scene.map.layers);
  /** @param {LayerData} layer */
  const layerLabel = (layer) => node("span", { class: "layer", title: layer.title }, names.get(layer.name));
  const ranking = node("p", { class: "ranking" });
  box.append(ranking);
  if (!sorted) {
    box.style.gridTemplateColumns = `max-content repeat(${columns}, max-content)`;
    const labels = upright ? grid[0].map(({ layer }) => layerLabel(layer)) : headNumbers(columns, look.side);
    const axes = upright ? "layers →, heads ↓" : "heads →, layers ↓";
    box.append(node("span", { class: "axes" }, axes), node("span"), ...labels);
  }
  const kinds = new Set(scene.map.layers.map((layer) => layer.kind));
  let kind = "";
  /** @type {HTMLButtonElement[]} */
  const all = [];
  for (const row of grid) {
    const [{ layer, head }] = row;
    if (!sorted && kinds.size > 1 && layer.kind !== kind) box.append(node("span", { class: "kind" }, layer.kind));
    kind = layer.kind;
    const buttons = row.map((small) => tile(scene, small, actions, look, sorted));
    if (!sorted) {
      box.append(upright ? headNumber(head) : layerLabel(layer));
      buttons[buttons.length - 1].style.gridColumnEnd = "span 1";
    }
    box.append(...buttons);
    if (!sorted && row.length < columns)
      box.append(...Array.from({ length: columns - row.length }, () => node("span")));
    all.push(...buttons);
  }
  oneTabStop(
    all,
    Math.max(
      0,
      all.findIndex((button) => button.classList.contains("on")),
    ),
    sorted ? 1 : columns,
  );
  fillTiles(scene, surface, look, grid, all, (values) => {
    ranking.append(...rankHeads(scene, grid.flat(), all, values, actions));
  });
  return box;
}

/**
 * @param {number} columns
 * @param {number} side
 */
function headNumbers(columns, side) {
  const every = side >= NUMBERS_FROM ? 1 : 4;
  return Array.from({ length: columns }, (_, head) => headNumber(head % every ? "" : head));
}

/** @param {number | string} head */
function headNumber(head) {
  return node("span", { class: "number", "aria-hidden": "true" }, String(head));
}

/**
 * @param {Scene} scene
 * @param {Small} small
 * @param {Actions} actions
 * @param {Look} look
 * @param {boolean} sorted
 */
function tile(scene, { layer, head }, actions, { kind, side }, sorted) {
  const { data, map } = scene;
  const role = headRole(data, layer.name, head);
  const worth = headImportance(data, layer.name, head);
  const name = `${layer.title}, ${headName(layer, head)}`;
  const parts = [name];
  if (worth) parts.push(`without it loss ${shortImportance(worth)}`);
  if (role) parts.push(roleSentence(role));
  const written = kind === "thumb" && side >= TEXT_FROM;
  const said = parts.join(", ");
  const element = node("button", { type: "button", class: kind, title: said });
  if (!written) element.setAttribute("aria-label", said);
  element.dataset.name = `${kind}-${layer.name}-${head}`;
  element.style.width = `${side}px`;
  element.append(node("span", { class: "seat" }), node("span", { class: "measure", "aria-hidden": "true" }));
  if (written) {
    if (!sorted) element.append(node("span", { class: "unseen" }, `${layer.title}, `));
    const short = worth ? ` ${shortImportance(worth)}` : "";
    element.append(node("span", {}, `${headName(layer, head)}${short}`));
    if (sorted) element.append(node("span", { class: "quiet" }, layerTitle(layer, map.layers)));
    if (role) element.append(node("span", { class: role.role ? "role" : "role quiet" }, shortRole(role)));
  }
  element.addEventListener("click", () => actions.open(layer.name, head));
  return element;
}

/**
 * Draws the pictures and the bars of the chosen measure.
 *
 * @param {Scene} scene
 * @param {Surface} surface
 * @param {Look} look
 * @param {Small[][]} rows
 * @param {HTMLButtonElement[]} buttons
 * @param {(values: (Measured | null)[]) => void} finished called when all are drawn
 */
function fillTiles(scene, { colours, onPaper }, { side, tall }, rows, buttons, finished) {
  const flat = rows.flat();
  const measured = chosenMeasure(scene);
  /** @type {(Measured | null)[]} */
  const values = [];
  const kinds = new Set(scene.map.layers.map((layer) => layer.kind));
  const scales = new Map([...kinds].map((kind) => [kind, posterScale(scene, kind)]));
  /** @param {number} index */
  const fill = (index) => {
    const { layer, head } = flat[index];
    const matrix = scene.shown(layer);
    const scale = scales.get(layer.kind) ?? scene.scale;
    const { canvas } = thumbPixels({ matrix, head, scale }, colours, side, tall);
    buttons[index].children[0].replaceChildren(canvas);
    values[index] = measured.of(layer, head);
    const text = values[index]?.text;
    if (text) buttons[index].title += `, ${measured.title} ${text}`;
  };
  const finish = () => {
    const largest = values.reduce((maximum, found) => Math.max(maximum, found?.value ?? 0), 1e-9);
    const full = ["importance", "distance"].includes(measured.name) ? largest : 1;
    buttons.forEach((button, index) => {
      const found = values[index];
      if (!found) return;
      const bar = node("i", { class: found.sure ? undefined : "unsure" });
      bar.style.width = `${(100 * Math.max(0, Math.min(found.value / full, 1))).toFixed(1)}%`;
      button.children[1].replaceChildren(bar);
    });
    finished(values);
  };
  const weights = scene.map.layers.reduce(
    (sum, layer) => sum + layer.queries.length * layer.keys.length * headCount(layer),
    0,
  );
  if (weights <= AT_ONCE || onPaper) {
    flat.forEach((_, index) => fill(index));
    return finish();
  }
  /** @param {number} first */
  const go = (first) => {
    if (!buttons[0].isConnected) return; // replaced meanwhile
    const end = performance.now() + SLICE;
    let index = first;
    while (index < flat.length && performance.now() < end) {
      fill(index);
      index += 1;
    }
    if (index < flat.length) setTimeout(() => go(index));
    else finish();
  };
  setTimeout(() => go(0));
}

/**
 * Marks the chosen heads, and those that are switched off.
 *
 * @param {HTMLElement} box
 * @param {Scene} scene
 * @param {readonly InterventionData[]} interventions
 * @param {string} kind
 */
export function markTiles(box, { layer, state }, interventions, kind) {
  /** @type {Map<string, string>} */
  const changed = new Map();
  for (const { layer: name, heads, to } of interventions)
    for (const head of heads)
      changed.set(`${kind}-${name}-${head}`, to === "off" ? "×" : to === "uniform" ? "≡" : "•");
  for (const element of box.querySelectorAll(`.${kind}`)) {
    if (!(element instanceof HTMLElement)) continue;
    const name = element.dataset.name ?? "";
    const own = name.startsWith(`${kind}-${layer.name}-`);
    const on = own && (state.head === null || name === `${kind}-${layer.name}-${state.head}`);
    element.classList.toggle("on", on);
    element.classList.toggle("changed", changed.has(name));
    element.dataset.change = changed.get(name) ?? "";
    if (on && state.head !== null) element.setAttribute("aria-current", "true");
    else element.removeAttribute("aria-current");
  }
}

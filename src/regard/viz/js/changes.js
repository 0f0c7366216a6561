// What an intervention changed: probabilities of the answer, and attention weights by layer.

import { cached, largestValue } from "./arithmetic.js";
import { button, node, secondaryText } from "./dom.js";
import { differences, originalLayer } from "./scene.js";
import { layerTitle, namesWithKind, percent, tokenLabel } from "./labels.js";
import { Scale } from "./scale.js";
import { capitalised, isOff } from "./sentence.js";
import { thumbPixels } from "./painting.js";

/** @import { InterventionData, LayerData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

const MOST_OUTPUTS = 8; // outputs with bars: of more, those that changed most
const MOST_MOVED = 3; // heads that are named
const LEAST_MOVED = 0.0005; // share of the weight below which a head is said to stay

/**
 * The answer and the weights after the interventions, beside those before.
 * @param {Scene} scene @param {readonly InterventionData[]} interventions @param {Actions} actions
 */
export function whatChanged(scene, interventions, actions) {
  const { map, data } = scene;
  const { original } = data;
  if (!original || !map.interventions.length || scene.state.frame !== null) return [];
  return [node("h2", {}, "What changed"), ...outputBars(scene), ...weightBars(scene, interventions, actions)];
}

/** @param {Scene} scene */
function outputBars({ map, data }) {
  const { original } = data;
  const same = map.outputs.every((label, step) => label === original?.outputs[step]);
  if (!original || !map.probabilities.length) return [];
  if (!same) return [secondaryText("The outputs changed, so their probabilities are not compared.")];
  const change = map.probabilities.map((now, step) => Math.abs(now - original.probabilities[step]));
  const steps = [...change.keys()]
    .sort((first, second) => change[second] - change[first])
    .slice(0, MOST_OUTPUTS)
    .sort((first, second) => first - second);
  const rows = steps.map((step) => {
    const [before, now] = [original.probabilities[step], map.probabilities[step]];
    return pairedRow(tokenLabel(map.outputs[step]), before, now, `${percent(before)} → ${percent(now)}`);
  });
  const left = map.outputs.length - steps.length;
  const title = `Probability of each output${left ? `; ${left} outputs that changed less are left out` : ""}`;
  return [barList(title, rows)];
}

/**
 * The heads whose weights moved, the one that moved most first; the mean of each layer; the number of layers that
 * cannot be compared. Heads with an intervention do not count.
 * @param {Pick<Scene, "map" | "data" | "shown">} scene @param {readonly InterventionData[]} interventions
 */
function movedHeads({ map, data, shown }, interventions) {
  const touched = new Set(interventions.flatMap(({ layer, heads }) => heads.map((head) => `${layer} ${head}`)));
  /** @type {{ layer: LayerData, before: Matrix, head: number, moved: number }[]} */
  const heads = [];
  const rows = [];
  let left = 0;
  for (const layer of map.layers) {
    const before = originalLayer(data, layer);
    const thumbnail = "side" in layer.weights && layer.weights.side > 1;
    if (!before || thumbnail) left += 1;
    if (!before || thumbnail) continue;
    const old = shown(before);
    const others = movedWeight(shown(layer), old)
      .map((moved, head) => ({ layer, before: old, head, moved }))
      .filter(({ head }) => !touched.has(`${layer.name} ${head}`));
    heads.push(...others.filter(({ moved }) => moved >= LEAST_MOVED));
    const mean = others.reduce((sum, { moved }) => sum + moved, 0) / others.length;
    if (others.length) rows.push({ layer, mean });
  }
  return { heads: heads.sort((one, two) => two.moved - one.moved), rows, left };
}

// How much the rows of each layer's weights moved, and the heads that moved most.
/** @param {Scene} scene @param {readonly InterventionData[]} interventions @param {Actions} actions */
function weightBars(scene, interventions, actions) {
  const { map, state } = scene;
  const names = namesWithKind(map.layers);
  const { heads: most, rows, left } = movedHeads(scene, interventions);
  const note = left
    ? [secondaryText(`Layers left out, because their tokens differ or only parts were sent: ${left}.`)]
    : [];
  if (!most.length) return [secondaryText("The weights of all other heads stay."), ...note];
  const largest = Math.max(...rows.map(({ mean }) => mean), 1e-9);
  const items = rows.map(({ layer, mean }) =>
    pairedRow(names.get(layer.name) ?? "", null, mean / largest, percent(mean)),
  );
  const links = node("p", { class: "ranking" }, "Most moved (layer.head): ");
  for (const { layer, head, moved } of most.slice(0, MOST_MOVED)) {
    const link = button(`${names.get(layer.name)}.${head}`, () =>
      actions.choose({ layer: layer.name, head, focus: head, change: state.mode === "heatmap" }),
    );
    const item = node("span", { class: "together" });
    item.append(link, ` ${percent(moved)}`);
    links.append(item, " ");
  }
  return [barList("Weight moved to other keys in each layer, mean of its other heads", items), links, ...note];
}

// The mean over the rows of each head of half the sum of absolute differences: the share of weight on other keys.
/** @param {Matrix} now @param {Matrix} before */
function movedWeight(now, before) {
  return cached(now, "moved", () =>
    now.slices.map((slice, head) => {
      const old = before.slices[head];
      const sum = slice.reduce((total, weight, index) => total + Math.abs(weight - old[index]), 0);
      return sum / 2 / Math.max(now.rows, 1);
    }),
  );
}

/** @param {string} title @param {HTMLElement[]} rows */
function barList(title, rows) {
  const box = node("div", { class: "pairs" });
  box.append(node("p", { class: "quiet" }, title), ...rows);
  return box;
}

/**
 * A label with bars before and after.
 * @param {string} label
 * @param {number | null} before from 0 to 1; null: a single bar
 * @param {number} now from 0 to 1
 * @param {string} text
 */
function pairedRow(label, before, now, text) {
  const row = node("div", { class: "pair" });
  row.append(
    node("span", { class: "key-name" }, label),
    pairedBars(before, now),
    node("span", { class: "number" }, text),
  );
  return row;
}

/** Two bars, the upper one before the change. @param {number | null} before @param {number} now */
export function pairedBars(before, now) {
  const track = node("span", { class: "track", "aria-hidden": "true" });
  for (const [name, share] of /** @type {const} */ ([
    ["before", before],
    ["now", now],
  ])) {
    if (share === null) continue;
    const bar = node("i", { class: name });
    bar.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
    track.append(bar);
  }
  return track;
}

// The picture in place of a head that is switched off, which has no weights: what this changed elsewhere.

const PAIR = 132; // pixels of a small picture
const PAIR_GAP = 16;
const BESIDE_FROM = 400; // pixels of a drawing from which they are beside the large one

/** @typedef {{ scene: Scene, text: string, moved: boolean }} Effect `moved`: whether the scene shows another head */

/**
 * The scene in place of a single head that is off: the change of the head that moved most, otherwise the weights
 * before. Null for other drawings.
 * @param {Scene} scene @param {readonly InterventionData[]} interventions @returns {Effect | null}
 */
export function effectOf(scene, interventions) {
  const { map, layer, matrix, state, before, beside, changes, derived, shown } = scene;
  const [head, ...others] = matrix.shown(state);
  const plain = state.mode === "heatmap" && state.frame === null && !beside && !changes && !derived;
  if (!plain || others.length || !before || layer.square > 1 || !isOff(map, layer, matrix, head)) return null;
  const off = `${capitalised(matrix.heads > 1 ? matrix.name(head) : layerTitle(layer, map.layers))} is off.`;
  const [most] = movedHeads(scene, interventions).heads;
  if (!most) {
    const earlier = { ...scene, matrix: before, title: "before it was switched off" };
    return { scene: earlier, text: `${off} The weights of all compared heads stay.`, moved: false };
  }
  const [now, old] = [shown(most.layer), most.before];
  const changed = cached(now, "changes", () => differences(now, old));
  const rows = Array.from({ length: now.rows }, (_, row) =>
    now.row(changed[most.head], row).reduce((sum, change) => sum + Math.abs(change), 0),
  );
  const query = rows.indexOf(Math.max(...rows));
  const effect = {
    ...scene,
    layer: most.layer,
    matrix: now,
    before: old,
    effect: true,
    changes: changed,
    largest: Math.max(largestValue(changed[most.head], true), 1e-9),
    title: `${layerTitle(most.layer, map.layers)}: change`,
    state: { ...state, head: most.head, focus: most.head, query, key: null, off: "", also: "", change: true },
  };
  const name = `${now.name(most.head)} of ${layerTitle(most.layer, map.layers)}`;
  const text = `${off} The picture shows ${name}, which changed most (${percent(most.moved)} moved).`;
  return { scene: effect, text, moved: true };
}

/**
 * The actions of the effect's picture: a choice in it opens its head.
 * @param {Effect} effect @param {Actions} actions @returns {Actions}
 */
export function effectActions({ scene: { layer, state } }, actions) {
  const { head, focus, query } = state;
  return {
    ...actions,
    choose: (change) => actions.choose({ layer: layer.name, head, focus, query, change: true, ...change }),
  };
}

/**
 * The room of the change, beside the small pictures if the drawing is wide enough.
 * @param {Surface} surface @returns {Surface}
 */
export function effectSurface(surface) {
  return surface.width < BESIDE_FROM ? surface : { ...surface, width: surface.width - PAIR - PAIR_GAP };
}

/**
 * The change with the weights before and after.
 * @param {HTMLElement} change @param {Scene} scene @param {Surface} whole
 */
export function effectPanels(change, { matrix, before, scale, state }, { colours, width }) {
  const box = node("div", { class: width < BESIDE_FROM ? "effect narrow" : "effect" });
  const pair = node("div", { class: "before-after" });
  const both = /** @type {Matrix[]} */ ([before, matrix]);
  const same = new Scale(scale.name, scale.largest, scale.aside, () => both);
  both.forEach((weights, place) => {
    const picture = node("figure");
    const { canvas } = thumbPixels({ matrix: weights, head: state.focus, scale: same }, colours, PAIR);
    canvas.removeAttribute("aria-hidden");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `weights ${place ? "now" : "before"}`);
    picture.append(node("figcaption", {}, place ? "now" : "before"), canvas);
    pair.append(picture);
  });
  box.append(change, pair);
  return box;
}

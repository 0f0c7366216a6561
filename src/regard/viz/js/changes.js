// What an intervention changed: probabilities of the answer, and attention weights by layer.

import { cached } from "./arithmetic.js";
import { button, node, secondaryText } from "./dom.js";
import { originalLayer } from "./scene.js";
import { headTag, namesWithKind, percent, tokenLabel } from "./labels.js";

/** @import { InterventionData, LayerData, MapData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Actions, Scene } from "./scene.js" */

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
  /** The answer at a step, if it is a number. @param {Pick<MapData, "prediction">} from @param {number} step */
  const said = ({ prediction }, step) => (Array.isArray(prediction) ? `${prediction[step]}: ` : "");
  const change = map.probabilities.map(
    (now, step) => Math.abs(now - original.probabilities[step]) + Number(said(map, step) !== said(original, step)),
  );
  const steps = [...change.keys()]
    .sort((first, second) => change[second] - change[first])
    .slice(0, MOST_OUTPUTS)
    .sort((first, second) => first - second);
  const rows = steps.map((step) => {
    const [before, now] = [original.probabilities[step], map.probabilities[step]];
    return pairedRow(
      tokenLabel(map.outputs[step]),
      before,
      now,
      `${said(original, step)}${percent(before)} → ${said(map, step)}${percent(now)}`,
    );
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
    const link = button(headTag(map.layers, layer, head), () =>
      actions.choose({ layer: layer.name, head, all: false, change: state.mode === "heatmap" }),
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

/** Shares before and after as bars; before: null for a single bar. @param {string} label @param {number | null} before @param {number} now @param {string} text */
function pairedRow(label, before, now, text) {
  const row = node("div", { class: "pair" });
  const number = node("span", { class: "number" }, text);
  row.append(node("span", { class: "key-name" }, label), pairedBars(before, now), number);
  return row;
}

/** Two bars, the upper one before the change. @param {number | null} before @param {number} now */
export function pairedBars(before, now) {
  const track = node("span", { class: "track", "aria-hidden": "true" });
  for (const [name, share] of Object.entries({ before, now })) {
    if (share === null) continue;
    const bar = node("i", { class: name });
    bar.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
    track.append(bar);
  }
  return track;
}

// Selection of input, kind of layer, layer, head and display mode.

import { availableModes, comparableMaps } from "./scene.js";
import { buttonGroup, checkbox, node, select, withIcon } from "./dom.js";
import { layerTitle } from "./labels.js";
import { SCALE_NAMES, SCALES } from "./scale.js";
import { hasWordPieces } from "./matrix.js";

/** @import { LayerData } from "./data.js" */
/** @import { Actions, Scene } from "./scene.js" */
/** @import { Mode } from "./state.js" */

const KINDS = { encoder: "encoder", decoder: "decoder", cross: "cross (outputs to inputs)" };
/** @type {Record<Mode, string>} */
const MODES = {
  picture: "Picture",
  heatmap: "Heatmap",
  lines: "Lines",
  arcs: "Arcs",
  flow: "Flow",
  table: "Table",
  overview: "Overview",
};
const LEAST_WEIGHTS = [0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5]; // choices for the smallest weight of a line
const LARGEST_OF_ROW = [0, 1, 2, 3, 5, 10]; // choices for the number of lines of each query

/** @param {Scene} scene @param {Actions} actions */
export function toolbar(scene, actions) {
  const box = node("div", { class: "toolbar" });
  const flow = scene.state.mode === "flow"; // a rollout spans all layers and averages heads
  const lists = [
    ...inputs(scene, actions),
    ...kinds(scene, actions),
    ...(flow ? [] : [...layers(scene, actions), ...heads(scene, actions)]),
  ];
  for (const parts of [lists, [modes(scene, actions)]]) {
    const bar = node("div", { class: "bar" });
    bar.append(...parts);
    if (parts.length) box.append(bar);
  }
  return box;
}

/** @param {Scene} scene @param {Actions} actions */
function inputs({ data, state }, { choose }) {
  if (data.maps.length === 1) return [];
  const names = data.maps.map((map, index) => map.input || `input ${index}`);
  return [select("Input", names, state.map, (map) => choose({ map, query: 0, key: null }))];
}

/** Selecting another kind shows the layer with the same number. @param {Scene} scene @param {Actions} actions */
function kinds(scene, { choose }) {
  const { map, layer } = scene;
  const kinds_ = availableKinds(scene);
  if (kinds_.length === 1) return [];
  const number = layersOfKind(scene, layer.kind).indexOf(layer);
  const names = kinds_.map((kind) => KINDS[kind]);
  return [
    select("Kind", names, kinds_.indexOf(layer.kind), (index) => {
      const others = layersOfKind({ map }, kinds_[index]);
      choose({ layer: others[Math.min(number, others.length - 1)].name, query: 0, key: null });
    }),
  ];
}

/** @param {Scene} scene @param {Actions} actions */
function layers(scene, { choose }) {
  const { layer } = scene;
  const candidates = layersOfKind(scene, layer.kind);
  if (candidates.length === 1 && availableKinds(scene).length > 1) return [];
  const titles = candidates.map((candidate) => {
    const title = layerTitle(candidate, scene.map.layers);
    return candidates.length > 1 ? title.replace(/^.*, (?=layer \d+$)/, "") : title; // the kind is in its own list
  });
  const list = [
    select("Layer", titles, candidates.indexOf(layer), (index) => {
      choose({ layer: candidates[index].name, query: 0, key: null });
    }),
  ];
  for (const label of list) label.title = layer.title;
  return list;
}

/** @param {Scene} scene @param {Actions} actions */
function heads({ matrix, state }, { choose }) {
  if (matrix.heads === 1) return [];
  const names = ["all heads", ...matrix.chosen(null).map((head) => matrix.name(head))];
  const chosen = state.head === null ? 0 : state.head + 1;
  return [select("Head", names, chosen, (index) => choose({ head: index === 0 ? null : index - 1, all: index === 0 }))];
}

/** @param {Scene} scene @param {Actions} actions */
function modes({ map, layer, state }, { choose }) {
  const all = availableModes(map, layer);
  const names = all.map((mode) => MODES[mode]);
  const group = buttonGroup("Display", names, all.indexOf(state.mode), (index) => choose({ mode: all[index] }));
  [...group.children].forEach((child, index) => child instanceof HTMLElement && withIcon(child, all[index]));
  return group;
}

/**
 * Options of the display, below the weights, so that they are reached quickly.
 * @param {Scene} scene @param {Actions} actions
 */
export function choices({ data, map, layer, state, before, shown, scale, changes }, { choose }) {
  const controls = [];
  if (!changes && !["picture", "table"].includes(state.mode)) {
    const at = SCALE_NAMES.indexOf(scale.name);
    controls.push(
      select("Colors", Object.values(SCALES), at, (index) => choose({ scale: SCALE_NAMES[index] })),
      checkbox("set aside first token", state.aside, (aside) => choose({ aside })),
    );
  }
  if (shown(layer).heads > 1 && state.head === null && !["overview", "flow"].includes(state.mode)) {
    controls.push(checkbox("average of the heads", state.mean, (mean) => choose({ mean })));
  }
  if (["lines", "arcs"].includes(state.mode)) {
    const least = LEAST_WEIGHTS.map((limit) => (limit ? `${limit} and more` : "all"));
    controls.push(
      select("Weights", least, LEAST_WEIGHTS.indexOf(state.least), (index) => choose({ least: LEAST_WEIGHTS[index] })),
    );
    const top = LARGEST_OF_ROW.map((limit) => (limit ? `the ${limit} largest` : "all"));
    controls.push(
      select("Of each row", top, LARGEST_OF_ROW.indexOf(state.top), (index) => choose({ top: LARGEST_OF_ROW[index] })),
    );
  }
  if (map.layers.some(hasWordPieces)) {
    controls.push(checkbox("whole words", state.words, (words) => choose({ words, query: 0, key: null })));
  }
  const others = comparableMaps(data, map);
  if (others.length && state.mode === "heatmap") {
    const names = ["nothing", ...others.map((entry) => entry.name)];
    const at = others.findIndex((entry) => entry.key === state.beside) + 1;
    controls.push(select("Compare with", names, at, (index) => choose({ beside: others[index - 1]?.key ?? "" })));
  }
  if (before && !state.beside) {
    controls.push(checkbox("difference to the original", state.change, (change) => choose({ change })));
  }
  return controls;
}

/** @param {Pick<Scene, "map">} scene */
function availableKinds({ map }) {
  return [...new Set(map.layers.map((layer) => layer.kind))];
}

/** @param {Pick<Scene, "map">} scene @param {LayerData["kind"]} kind */
function layersOfKind({ map }, kind) {
  return map.layers.filter((layer) => layer.kind === kind);
}

// What is shown, and how: input, kind of layer, layer, head, and the way to draw.

import { check, choice, node, select } from "./dom.js";
import { inPieces } from "./words.js";

/** @import { LayerData } from "./data.js" */
/** @import { Actions, Scene } from "./scene.js" */
/** @import { Mode } from "./state.js" */

const KINDS = { encoder: "encoder", decoder: "decoder", cross: "cross (outputs to inputs)" };
/** @type {Record<Mode, string>} */
const MODES = { heatmap: "Heatmap", lines: "Lines", table: "Table", overview: "Overview" };

/**
 * @param {Scene} scene
 * @param {Actions} actions
 */
export function toolbar(scene, actions) {
  const bar = node("div", { class: "bar" });
  bar.append(
    ...inputs(scene, actions),
    ...kinds(scene, actions),
    ...layers(scene, actions),
    ...heads(scene, actions),
    modes(scene, actions),
  );
  return bar;
}

/**
 * @param {Scene} scene
 * @param {Actions} actions
 */
function inputs({ data, state }, { choose }) {
  if (data.maps.length === 1) return [];
  const names = data.maps.map((each, index) => each.input || `input ${index}`);
  return [select("Input", names, state.map, (map) => choose({ map, query: 0, key: null }))];
}

/**
 * Of another kind, the layer of the same number is shown.
 *
 * @param {Scene} scene
 * @param {Actions} actions
 */
function kinds(scene, { choose }) {
  const { map, layer } = scene;
  const found = kindsOf(scene);
  if (found.length === 1) return [];
  const number = layersOfKind(scene, layer.kind).indexOf(layer);
  const names = found.map((kind) => KINDS[kind]);
  return [
    select("Kind", names, found.indexOf(layer.kind), (index) => {
      const others = layersOfKind({ map }, found[index]);
      choose({ layer: others[Math.min(number, others.length - 1)].name, query: 0, key: null });
    }),
  ];
}

/**
 * @param {Scene} scene
 * @param {Actions} actions
 */
function layers(scene, { choose }) {
  const { layer } = scene;
  const found = layersOfKind(scene, layer.kind);
  if (found.length === 1 && kindsOf(scene).length > 1) return [];
  const titles = found.map((each) => each.title);
  return [
    select("Layer", titles, found.indexOf(layer), (index) => {
      choose({ layer: found[index].name, query: 0, key: null });
    }),
  ];
}

/**
 * @param {Scene} scene
 * @param {Actions} actions
 */
function heads({ matrix, state }, { choose }) {
  if (matrix.heads === 1) return [];
  const names = ["all heads", ...matrix.chosen(null).map((head) => `head ${head}`)];
  const chosen = state.head === null ? 0 : state.head + 1;
  return [select("Head", names, chosen, (index) => choose({ head: index === 0 ? null : index - 1 }))];
}

/**
 * @param {Scene} scene
 * @param {Actions} actions
 */
function modes({ state }, { choose }) {
  const all = /** @type {Mode[]} */ (Object.keys(MODES));
  const names = all.map((mode) => MODES[mode]);
  return choice("How to draw", names, all.indexOf(state.mode), (index) => choose({ mode: all[index] }));
}

/**
 * What is shown of the weights; stands below them, so that the way to them is short.
 *
 * @param {Scene} scene
 * @param {Actions} actions
 */
export function choices({ map, state, before }, { choose }) {
  const found = [];
  if (map.layers.some(inPieces)) {
    found.push(check("whole words", state.words, (words) => choose({ words, query: 0, key: null })));
  }
  if (before) {
    found.push(check("difference to the original", state.change, (change) => choose({ change })));
  }
  return found;
}

/** @param {Pick<Scene, "map">} scene */
function kindsOf({ map }) {
  return [...new Set(map.layers.map((each) => each.kind))];
}

/**
 * @param {Pick<Scene, "map">} scene
 * @param {LayerData["kind"]} kind
 */
function layersOfKind({ map }, kind) {
  return map.layers.filter((each) => each.kind === kind);
}

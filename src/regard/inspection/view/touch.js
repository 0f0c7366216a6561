// Interventions: heads switched off or made uniform, and single weights set.

import { button, node } from "./dom.js";
import { isolated } from "./labels.js";

/** @import { InterventionData } from "./data.js" */
/** @import { Actions, Scene } from "./scene.js" */

/**
 * The interventions with one more, in place of an older one of the same head or weight; `undo`: without it.
 *
 * @param {readonly InterventionData[]} interventions
 * @param {InterventionData} change
 * @param {boolean} undo
 */
export function touched(interventions, change, undo) {
  const others = interventions.filter((each) => !isOf(each, change));
  return undo ? others : [...others, change];
}

/**
 * Whether two interventions are of the same head, or of the same weight.
 *
 * @param {InterventionData} one
 * @param {InterventionData} other
 */
function isOf(one, other) {
  if (one.layer !== other.layer || one.heads[0] !== other.heads[0]) return false;
  if (typeof one.to === "string" || typeof other.to === "string") return typeof one.to === typeof other.to;
  return one.query === other.query && one.key === other.key;
}

/**
 * What can be done to the head and the weight that are chosen.
 *
 * @param {Scene} scene
 * @param {readonly InterventionData[]} interventions that are made
 * @param {Actions} actions
 */
export function touchBar(scene, interventions, actions) {
  const { matrix, state } = scene;
  const bar = node("div", { class: "bar touch" });
  if (isEarlier(scene)) {
    const said = "This is the model in the middle of its training; what is touched is the trained one.";
    bar.append(node("span", { class: "quiet" }, said));
    bar.append(button("to the trained model", () => actions.choose({ frame: null })));
    return bar;
  }
  if (state.head === null && state.key === null && matrix.heads > 1) {
    const invitation = "Choose a head to switch it off, or point at a weight to change it.";
    bar.append(node("span", { class: "quiet" }, invitation));
  } else {
    bar.append(...switches(scene, interventions, actions));
    if (!state.words && state.key !== null && state.mode === "heatmap")
      bar.append(slider(scene, state.key, actions));
  }
  if (interventions.length) {
    bar.append(node("span", { class: "quiet" }, `${interventions.length} changed`));
    bar.append(button("undo all", actions.untouch));
  }
  return bar;
}

/**
 * Whether a snapshot is shown that is not the last one, which is the model itself.
 *
 * @param {Pick<Scene, "data" | "state">} scene
 */
function isEarlier({ data, state }) {
  return !!data.playback && state.frame !== null && state.frame < data.playback.frames.length - 1;
}

/**
 * @param {Scene} scene
 * @param {readonly InterventionData[]} interventions
 * @param {Actions} actions
 */
function switches({ layer, matrix, state }, interventions, actions) {
  const head = state.focus;
  const name = matrix.heads === 1 ? "attention" : `head ${head}`;
  return /** @type {const} */ (["off", "uniform"]).map((to) => {
    const change = { layer: layer.name, heads: [head], to };
    const on = interventions.some((each) => each.to === to && isOf(each, change));
    return button(`${name} ${to}`, () => actions.touch(change, on), on);
  });
}

/**
 * @param {Scene} scene
 * @param {number} key
 * @param {Actions} actions
 */
function slider({ layer, matrix, state }, key, actions) {
  const { query, focus: head } = state;
  const weight = matrix.at(head, query, key);
  const found = node("input", {
    type: "range",
    min: 0,
    max: 1,
    step: 0.01,
    value: weight,
    "data-name": "weight",
  });
  const said = node("span", {}, weight.toFixed(2));
  found.addEventListener("input", () => {
    said.textContent = Number(found.value).toFixed(2);
  });
  found.addEventListener("change", () => {
    actions.touch({ layer: layer.name, heads: [head], to: Number(found.value), query, key }, false);
  });
  const [from, to] = [isolated(matrix.queries[query]), isolated(matrix.keys[key])];
  const wrapper = node("label", {}, `weight of ${from} on ${to}`);
  wrapper.append(found, said);
  return wrapper;
}

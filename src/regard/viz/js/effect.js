// The picture in place of a head that is switched off, which has no weights: what this changed elsewhere.

import { largestValue } from "./arithmetic.js";
import { cached } from "./cache.js";
import { movedHeads } from "./changes.js";
import { differences } from "./difference.js";
import { node } from "./dom.js";
import { percent } from "./labels.js";
import { layerTitle } from "./layer-names.js";
import { Scale } from "./scale.js";
import { capitalised, isOff } from "./sentence.js";
import { thumbPixels } from "./thumbs.js";

/** @import { InterventionData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

const PAIR = 132; // pixels of a small picture
const PAIR_GAP = 16;
const BESIDE_FROM = 400; // pixels of a drawing from which they are beside the large one

/** @typedef {{ scene: Scene, text: string, moved: boolean }} Effect `moved`: whether the scene shows another head */

/**
 * The scene in place of a single head that is off: the change of the head that moved most, otherwise the weights
 * before. Null for other drawings.
 *
 * @param {Scene} scene
 * @param {readonly InterventionData[]} interventions
 * @returns {Effect | null}
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
 *
 * @param {Effect} effect
 * @param {Actions} actions
 * @returns {Actions}
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
 *
 * @param {Surface} surface
 * @returns {Surface}
 */
export function effectSurface(surface) {
  return surface.width < BESIDE_FROM ? surface : { ...surface, width: surface.width - PAIR - PAIR_GAP };
}

/**
 * The change with the weights before and after.
 *
 * @param {HTMLElement} change
 * @param {Scene} scene
 * @param {Surface} whole
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

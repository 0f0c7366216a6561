// A line with the weight under the pointer, or else the selected one.

import { node } from "./dom.js";
import { isolate, signedNumber } from "./labels.js";

/** @import { Matrix } from "./matrix.js" */
/** @import { Scene } from "./scene.js" */

/** @typedef {{ map: number, layer: string, head: number, query: number }} Row a row of weights */
/** @typedef {(row: Row) => Promise<number[]>} Exact asks for the weights of a row as they were computed */

export class Readout {
  /** @param {Exact} [exact] */
  constructor(exact) {
    this.exact = exact;
    this.element = node("output", { "aria-live": "polite" });
    this.told = 0;
  }

  /**
   * @param {Scene} scene
   * @param {number} query
   * @param {number | null} key null: the key with the largest weight
   * @param {number | null} head null: the head in which the query was selected
   */
  tell(scene, query, key, head) {
    const { element, exact } = this;
    element.textContent = describeWeight(scene, query, key, head);
    element.classList.toggle("invitation", key === null && head === null); // it is not printed
    this.told += 1;
    const { matrix, state, layer, derived, preview } = scene;
    const chosen = key !== null && query === state.query && key === state.key && !state.words;
    // Exact weights exist for the maps only, not for the frames of a playback, nor for a weight that is dragged.
    const rounded = !matrix.exact && !derived && !preview && layer.square === 1;
    if (!exact || !chosen || !rounded || state.frame !== null) return;
    const at = head ?? state.focus;
    const { told: ticket } = this;
    exact({ map: state.map, layer: layer.name, head: at, query }).then((row) => {
      if (ticket !== this.told) return;
      element.textContent = `${describeHead(scene, at, query, key)}: ${row[key]} exactly${describeChange(scene, at, query, key)}`;
    });
  }
}

/**
 * The description of a weight.
 *
 * @param {Pick<Scene, "matrix" | "state" | "before">} scene
 * @param {number} query
 * @param {number | null} key
 * @param {number | null} head
 */
export function describeWeight(scene, query, key, head) {
  const { matrix, state } = scene;
  if (key === null && head === null) return invitation(matrix);
  const at = head ?? state.focus;
  const to = key ?? matrix.strongest(at, query);
  const weight = matrix.at(at, query, to);
  const name = describeHead(scene, at, query, to, key === null);
  const chosen = key !== null && query === state.query && key === state.key && !state.words;
  const value = chosen && matrix.exact ? `${Number(weight.toPrecision(9))} exactly` : weight.toFixed(4);
  return `${name}: ${value}${describeChange(scene, at, query, to)}`;
}

/**
 * The change of a weight, if there is an original one.
 *
 * @param {Pick<Scene, "matrix" | "before">} scene
 * @param {number} head
 * @param {number} query
 * @param {number} key
 */
function describeChange({ matrix, before }, head, query, key) {
  if (!before) return "";
  const was = before.at(head, query, key);
  return ` (was ${was.toFixed(4)}, ${signedNumber(matrix.at(head, query, key) - was)})`;
}

/** @param {Matrix} matrix */
function invitation({ rows, columns, heads, names }) {
  const scope = names ? "" : ` in each of ${heads} head${heads > 1 ? "s" : ""}`;
  const size = `${rows} × ${columns} weights${scope}`;
  return `Point at a weight, or use the arrow keys on a heatmap. ${size}.`;
}

/**
 * @param {Pick<Scene, "matrix"> & Partial<Pick<Scene, "layer">>} scene
 * @param {number} head
 * @param {number} query
 * @param {number} key
 */
function describeHead({ matrix, layer }, head, query, key, mainly = false) {
  const [from, to] = [isolate(matrix.queries[query]), isolate(matrix.keys[key])];
  const side = layer?.square ?? 1;
  const step = side > 1 ? `steps ${key * side} to ${(key + 1) * side - 1}, the largest weight` : `step ${key}`;
  return `${matrix.name(head)}: ${from} →${mainly ? " mainly" : ""} ${to} (${step})`;
}

// One line that says the weight that is pointed at, or else chosen.

import { node } from "./dom.js";
import { signed } from "./labels.js";

/** @import { Scene } from "./scene.js" */

/** @typedef {{ map: number, layer: string, head: number, query: number }} Row a row of weights */
/** @typedef {(row: Row) => Promise<number[]>} Exact asks for the weights of a row as they were computed */

export class Readout {
  /**
   * @param {Scene} scene
   * @param {Exact} [exact]
   */
  constructor(scene, exact) {
    this.scene = scene;
    this.exact = exact;
    this.element = node("output", { "aria-live": "polite" });
    this.told = 0;
    this.tell(scene.state.query, scene.state.key, null);
  }

  /**
   * @param {number} query
   * @param {number | null} key null: the one with the largest weight
   * @param {number | null} head null: the one in which the query was chosen
   */
  tell(query, key, head) {
    const { scene, element, exact } = this;
    element.textContent = told(scene, query, key, head);
    this.told += 1;
    const { matrix, state, layer } = scene;
    const chosen = key !== null && query === state.query && key === state.key && !state.words;
    // Only the maps themselves can be asked about, and not the frames of a playback.
    if (!exact || !chosen || matrix.exact || state.frame !== null) return;
    const at = head ?? state.focus;
    const { told: ticket } = this;
    exact({ map: state.map, layer: layer.name, head: at, query }).then((row) => {
      if (ticket === this.told) element.textContent = `${named(scene, at, query, key)}: ${row[key]} exactly`;
    });
  }
}

/**
 * What there is to say of a weight.
 *
 * @param {Pick<Scene, "matrix" | "state" | "changes">} scene
 * @param {number} query
 * @param {number | null} key
 * @param {number | null} head
 */
export function told({ matrix, state, changes }, query, key, head) {
  if (key === null && head === null) return invitation(matrix);
  const at = head ?? state.focus;
  const to = key ?? matrix.strongest(at, query);
  const weight = matrix.at(at, query, to);
  const name = named({ matrix }, at, query, to, key === null);
  const chosen = key !== null && query === state.query && key === state.key && !state.words;
  if (chosen && matrix.exact) return `${name}: ${Number(weight.toPrecision(9))} exactly`;
  const change = changes ? ` (${signed(changes[at][query * matrix.columns + to])})` : "";
  return `${name}: ${weight.toFixed(4)}${change}`;
}

/** @param {{ rows: number, columns: number, heads: number }} matrix */
function invitation({ rows, columns, heads }) {
  const size = `${rows} × ${columns} weights in each of ${heads} head${heads > 1 ? "s" : ""}`;
  return `Point at a weight, or use the arrow keys on a heatmap. ${size}.`;
}

/**
 * @param {Pick<Scene, "matrix">} scene
 * @param {number} head
 * @param {number} query
 * @param {number} key
 */
function named({ matrix }, head, query, key, mainly = false) {
  return `head ${head}: ${matrix.queries[query]} →${mainly ? " mainly" : ""} ${matrix.keys[key]} (step ${key})`;
}

// The weights of all layers that have been looked at: unpacked once, and kept beside the data, which is not written to.

import { unpack } from "./packing.js";
import { inPieces, merge } from "./words.js";

/** @import { LayerData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */

export class Weights {
  /** @type {WeakMap<LayerData, Promise<Matrix>>} */
  #coming = new WeakMap();
  /** @type {WeakMap<LayerData, Matrix>} */
  #here = new WeakMap();
  /** @type {WeakMap<LayerData, Matrix>} */
  #merged = new WeakMap();

  /**
   * Unpack the weights of layers; those that are ready cost nothing.
   *
   * @param {LayerData[]} layers
   */
  async prepare(layers) {
    for (const layer of layers) {
      const coming = this.#coming.get(layer) ?? unpack(layer);
      this.#coming.set(layer, coming);
      this.#here.set(layer, await coming);
    }
  }

  /**
   * The weights of a layer that is prepared; `words`: between words, where there are any.
   *
   * @param {LayerData} layer
   * @param {boolean} words
   */
  of(layer, words) {
    const matrix = this.#here.get(layer);
    if (!matrix) throw new Error(`the weights of ${layer.name} are not prepared`);
    if (!words || !inPieces(layer)) return matrix;
    const merged = this.#merged.get(layer) ?? merge(matrix, layer);
    this.#merged.set(layer, merged);
    return merged;
  }
}

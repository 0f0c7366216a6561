// The weights of all displayed layers, unpacked once and cached separately, since the data is read-only.

import { unpack } from "./packing.js";
import { hasWordPieces, mergeWords } from "./words.js";

/** @import { LayerData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */

export class Weights {
  /** @type {WeakMap<LayerData, Matrix>} */
  #here = new WeakMap();
  /** @type {WeakMap<LayerData, Matrix>} */
  #merged = new WeakMap();

  /**
   * The weights of a layer; `words`: between words, if possible.
   *
   * @param {LayerData} layer
   * @param {boolean} words
   */
  of(layer, words) {
    const matrix = this.#here.get(layer) ?? unpack(layer);
    this.#here.set(layer, matrix);
    if (!words || !hasWordPieces(layer)) return matrix;
    const merged = this.#merged.get(layer) ?? mergeWords(matrix, layer);
    this.#merged.set(layer, merged);
    return merged;
  }
}

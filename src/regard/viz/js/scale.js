// The colour scale: the share of the strongest colour that a weight gets.

import { cached, largestValue } from "./arithmetic.js";

/** @import { Matrix } from "./matrix.js" */
/** @import { ScaleName, State } from "./state.js" */
/** @import { LayerData, MapData, ViewData } from "./data.js" */

/** @type {Record<ScaleName, string>} */
export const SCALES = { shared: "all heads alike", own: "each head its own" };
export const SCALE_NAMES = /** @type {ScaleName[]} */ (Object.keys(SCALES));

const SAMPLED = 250_000; // weights of a head that are looked at to describe it: of more, every n-th row
const FEW = 8; // in a head of fewer rows or columns, no column is a sink
const SINK = 0.25; // mean weight of a column from which it is a sink
const EARLY = 4; // the first rows of a causal head, a part of 1 / EARLY, have large weights because they see little

/**
 * The position of a weight on the scale, from 0 to 1. The square root keeps small weights visible, and still no weak
 * head is as dark as a strong one.
 * @param {number} weight @param {number} top the weight of the strongest colour
 */
export function shareOf(weight, top) {
  return Math.sqrt(weight / top);
}

/** The weight of the strongest colour, and whether there are larger ones. */
export class Scale {
  /**
   * @param {ScaleName} name
   * @param {number} largest the weight of the strongest colour if all heads share it
   * @param {boolean} [aside] whether the first key is left out
   * @param {(matrix: Matrix) => Matrix[]} [alike] matrices whose heads share their own scales, such as snapshots
   */
  constructor(name, largest, aside = false, alike = (matrix) => [matrix]) {
    this.name = name;
    this.largest = largest;
    this.aside = aside;
    this.alike = alike;
  }

  /** @param {Matrix} matrix @param {number} head */
  top(matrix, head) {
    if (this.name === "shared") return this.largest;
    const sources = this.alike(matrix).filter((source) => head < source.heads);
    return Math.max(1e-9, ...sources.map((source) => headTop(source, head, this.aside)));
  }

  /**
   * The end of a colour bar; "≥" if larger weights have the strongest colour too.
   * @param {Matrix} matrix @param {number[]} heads
   */
  end(matrix, heads) {
    const top = Math.max(...heads.map((head) => this.top(matrix, head)));
    const above = heads.some((head) => matrix.peakOf(head) > this.top(matrix, head) * 1.0001);
    return `${above ? "≥ " : ""}${top < 0.01 ? top.toPrecision(2) : top.toFixed(2)}`;
  }
}

/**
 * The largest weight of a head: not of the first row of a causal head, which sees one key, nor of a key set aside.
 * @param {Matrix} matrix @param {number} head @param {boolean} aside
 */
function headTop(matrix, head, aside) {
  return cached(matrix, `top ${head} ${aside}`, () => {
    const { columns } = matrix;
    const slice = matrix.causal ? matrix.slices[head].subarray(columns) : matrix.slices[head];
    if (!aside) return largestValue(slice);
    return slice.reduce((largest, weight, index) => (index % columns && weight > largest ? weight : largest), 0);
  });
}

/**
 * The columns that receive a quarter of the weight or more on average, such as the first token or a separator.
 * @param {Matrix} matrix @param {number} head @returns {number[]}
 */
export function sinks(matrix, head) {
  const { rows, columns } = matrix;
  if (rows < FEW || columns < FEW) return [];
  return cached(matrix, `sinks ${head}`, () => {
    const means = new Float32Array(columns);
    const every = Math.max(1, Math.ceil((rows * columns) / SAMPLED));
    const count = Math.ceil(rows / every);
    for (let row = 0; row < rows; row += every) {
      matrix.row(matrix.slices[head], row).forEach((weight, column) => {
        means[column] += weight / count;
      });
    }
    return [...means.keys()].filter((column) => means[column] >= SINK);
  });
}

/**
 * The first row that counts: early rows of a causal head have large weights because they have few keys.
 * @param {Matrix} matrix
 */
export function firstRow({ rows, causal }) {
  return causal ? Math.min(Math.ceil(rows / EARLY), rows - 1) : 0;
}

/**
 * The scale of a layer: if heads share it, over all layers and all snapshots, and those before an intervention, so that
 * a weight is equally dark in every head, during the playback and after a change.
 * @param {ViewData} data @param {MapData} map @param {LayerData} layer
 * @param {Pick<State, "scale" | "aside">} state @param {(layer: LayerData) => Matrix} shown
 * @param {Matrix | null} beside the compared matrix
 */
export function layerScale({ playback, original }, map, layer, { scale, aside }, shown, beside) {
  const frames = playback?.frames.flatMap((frame) => frame.layers) ?? [];
  const layers = [...map.layers, ...(original?.layers ?? []), ...frames];
  const matrices = [...layers.map(shown), ...(beside ? [beside] : [])];
  /** @param {Matrix} matrix */
  const most = (matrix) =>
    aside ? Math.max(...matrix.slices.map((_, head) => headTop(matrix, head, true))) : matrix.scale;
  const largest = Math.max(...matrices.map(most), 1e-9);
  const own = layers.filter(({ name }) => name === layer.name);
  return new Scale(scale, largest, aside, (matrix) => [matrix, ...own.map(shown), ...(beside ? [beside] : [])]);
}

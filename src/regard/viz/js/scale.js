// The colour scale: the share of the strongest colour that a weight gets.

import { cached, largestValue } from "./arithmetic.js";
import { headCount } from "./matrix.js";

/** @import { Matrix, Weights } from "./matrix.js" */
/** @import { ScaleName, State } from "./state.js" */
/** @import { LayerData, MapData, ViewData } from "./data.js" */

/**
 * The scale of one head.
 * @typedef {object} HeadScale
 * @property {number} top the smallest weight of the strongest colour
 * @property {boolean} above whether larger weights exist
 * @property {(weight: number) => number} share from 0 to 1; NaN for a weight that is not finite
 */

/** @type {Record<ScaleName, string>} */
export const SCALES = {
  shared: "the same for all heads",
  own: "own per head",
  root: "square root, own per head",
  rank: "rank, own per head",
};
export const SCALE_NAMES = /** @type {ScaleName[]} */ (Object.keys(SCALES));

const WEIGHED = 250_000; // weights of a head that are looked at to choose its scale: of more, every n-th row
const FEW = 8; // in a head of fewer rows or columns, no column is a sink
const SINK = 0.25; // mean weight of a column from which it is a sink
const FLOOR = 0.25; // multiple of the mean weight that always gets the strongest colour: noise beside a sink stays pale
const EARLY = 4; // the first rows of a causal head, a part of 1 / EARLY, have large weights because they see little
const SAMPLE = 20_000; // weights of a head that are ranked
const ALIKE = 8; // ratio of the largest to the least weight below which ranks are drawn closer together
const VISIBLE = 0.1; // share of the strongest colour that a reader sees in a small picture
const VISIBLE_SHARED = 0.2; // the same if heads share the scale: beside darker heads, pale ones look empty
const HALF = 0.5; // part of a head's weight that must be visible
const MOST_HEADS = 0.9; // part of the heads for which that must hold

export class Scale {
  /**
   * @param {ScaleName} name
   * @param {number} largest the weight of the strongest colour if all heads share it
   * @param {boolean} aside whether the first key is set aside
   * @param {(matrix: Matrix) => Matrix[]} [alike] matrices whose heads have the same scale, such as snapshots
   */
  constructor(name, largest, aside = false, alike = (matrix) => [matrix]) {
    this.name = name;
    this.largest = largest;
    this.aside = aside;
    this.alike = alike;
  }

  /** @param {Matrix} matrix @param {number} head @returns {HeadScale} */
  of(matrix, head) {
    const { name, aside, largest } = this;
    if (name === "rank") return cached(matrix, `ranks ${head} ${aside}`, () => rankScale(matrix, head, aside));
    const sources = this.alike(matrix).filter((source) => head < source.heads);
    const tops = sources.map((source) => cached(source, `top ${head} ${aside}`, () => headTop(source, head, aside)));
    const top = name === "shared" ? largest : Math.max(...tops);
    const above = cached(matrix, `largest ${head}`, () => largestValue(matrix.slices[head])) > top * 1.0001;
    return { top, above, share: name === "root" ? (weight) => Math.sqrt(weight / top) : (weight) => weight / top };
  }
}

/**
 * The weight of the strongest colour of some heads, and whether larger ones exist.
 * @param {Scale} scale @param {Matrix} matrix @param {number[]} heads
 */
export function rangeEnd(scale, matrix, heads) {
  const scales = heads.map((head) => scale.of(matrix, head));
  const { top } = scales[0];
  return `${top < 0.01 ? top.toPrecision(2) : top.toFixed(3)}${scales.some(({ above }) => above) ? " and more" : ""}`;
}

/**
 * The range of a head in its title, if each of several heads has its own.
 * @param {{ matrix: Matrix, scale: Scale, changes: unknown, state: Pick<State, "head" | "off"> }} scene
 * @param {number} head
 */
export function ownRange({ matrix, scale, changes, state }, head) {
  if (changes || scale.name === "shared" || scale.name === "rank" || matrix.shown(state).length === 1) return "";
  return `0 to ${rangeEnd(scale, matrix, [head])}`;
}

// Rows that are looked at to describe a head: all, or every n-th of many.
/** @param {Pick<Matrix, "rows" | "columns">} matrix */
function sampledRows({ rows, columns }) {
  const every = Math.max(1, Math.ceil((rows * columns) / WEIGHED));
  return Array.from({ length: Math.ceil(rows / every) }, (_, index) => index * every);
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
    const sample = sampledRows(matrix);
    for (const row of sample) {
      matrix.row(matrix.slices[head], row).forEach((weight, column) => {
        means[column] += weight / sample.length;
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
 * The largest weight of a head outside sinks; the early rows of a causal head do not count.
 * @param {Matrix} matrix @param {number} head
 * @param {boolean} aside whether the first key is set aside
 */
function headTop(matrix, head, aside) {
  const { rows, columns } = matrix;
  const left = new Set(aside ? [...sinks(matrix, head), 0] : sinks(matrix, head));
  const slice = matrix.slices[head];
  let largest = 0;
  for (let row = firstRow(matrix); row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const weight = slice[row * columns + column];
      if (weight > largest && !left.has(column)) largest = weight;
    }
  }
  return Math.max(largest, FLOOR / Math.max(columns, 1));
}

/**
 * Ranks among the weights above 0. Ranks of nearly equal weights are drawn closer together, so that a uniform head
 * looks uniform.
 * @param {Matrix} matrix @param {number} head @param {boolean} aside @returns {HeadScale}
 */
function rankScale(matrix, head, aside) {
  const { columns } = matrix;
  const seen = matrix.slices[head].filter((weight, index) => weight > 0 && !(aside && index % columns === 0));
  const stride = Math.max(1, Math.floor(seen.length / SAMPLE));
  const sorted = seen.filter((_, index) => index % stride === 0).sort();
  const [low, high] = [sorted[0] ?? 1, largestValue(seen) || 1];
  const spread = Math.min(1, Math.log(high / low) / Math.log(ALIKE));
  /** @param {number} weight */
  const share = (weight) => {
    if (!(weight > 0)) return weight;
    let [first, last] = [0, sorted.length];
    while (first < last) {
      const middle = (first + last) >> 1;
      if (sorted[middle] < weight) first = middle + 1;
      else last = middle;
    }
    return 0.5 + (first / Math.max(sorted.length - 1, 1) - 0.5) * spread;
  };
  return { top: sorted.at(-1) ?? 0, above: false, share };
}

/**
 * The first scale on which at least 90 % of the heads show half of their weight outside sinks; square root if none
 * does.
 * @param {Matrix[]} matrices
 * @param {number} largest the weight of the strongest colour if all heads share it
 * @returns {ScaleName}
 */
export function chooseScale(matrices, largest) {
  const heads = matrices.flatMap((matrix) => matrix.slices.map((_, head) => ({ matrix, head })));
  /** @type {ScaleName[]} */
  const candidates = ["shared", "own"];
  return (
    candidates.find((name) => {
      const scale = new Scale(name, largest);
      const shown = heads.filter(({ matrix, head }) => visibleWeight(scale, matrix, head) >= HALF);
      return shown.length >= MOST_HEADS * heads.length;
    }) ?? "root"
  );
}

// The part of a head's weight that is visible: outside sinks, unless almost all of it is on them.
/** @param {Scale} scale @param {Matrix} matrix @param {number} head */
function visibleWeight(scale, matrix, head) {
  const left = new Set(sinks(matrix, head));
  const { share } = scale.of(matrix, head);
  const least = scale.name === "shared" ? VISIBLE_SHARED : VISIBLE;
  let [all, seen, total] = [0, 0, 0];
  for (const row of sampledRows(matrix)) {
    matrix.row(matrix.slices[head], row).forEach((weight, column) => {
      total += weight;
      if (left.has(column)) return;
      all += weight;
      if (share(weight) >= least) seen += weight;
    });
  }
  return all < 0.03 * total || all === 0 ? 1 : seen / all;
}

// The colour scale of a drawing: which layers, snapshots and maps share it.

const MOST_WEIGHED = 200_000; // weights from which the scale is chosen: of more, those of every n-th layer
const LEAST_LAYERS = 4; // layers from which it is chosen: the first one of a deep model differs from the others

/**
 * The scale that shows most heads of an input; the same for all its layers, snapshots and interventions.
 * @param {ViewData} data @param {number} input @param {Weights} weights
 */
export function usualScale({ maps, original }, input, weights) {
  const map = original ?? maps[input];
  // By the outputs, which stay the same when whole layers replace thumbnails: so do the colours.
  return cached(map.outputs, "scale", () => {
    const largest = Math.max(...map.layers.map((layer) => layer.queries.length * layer.keys.length * headCount(layer)));
    const wanted = Math.max(LEAST_LAYERS, Math.floor(MOST_WEIGHED / Math.max(largest, 1)));
    const every = Math.ceil(map.layers.length / wanted);
    const matrices = map.layers.filter((_, index) => index % every === 0).map((layer) => weights.of(layer, false));
    return chooseScale(matrices, Math.max(...matrices.map((matrix) => matrix.scale)));
  });
}

/**
 * The matrices whose heads have the same scale as those of a layer: in all snapshots and in the compared map.
 * @param {ViewData} data @param {LayerData} layer @param {(layer: LayerData) => Matrix} shown
 * @param {{ matrix: Matrix } | null} beside the compared matrix
 * @returns {(matrix: Matrix) => Matrix[]}
 */
export function scaledAlike({ playback }, layer, shown, beside) {
  const frames = playback?.frames.flatMap((frame) => frame.layers) ?? [];
  const compared = beside ? [beside.matrix, shown(layer)] : [];
  return (matrix) => {
    if (matrix !== shown(layer) && !compared.includes(matrix)) return [matrix];
    return [matrix, ...frames.filter((frame) => frame.name === layer.name).map(shown), ...compared];
  };
}

/**
 * The layers that share a colour scale: all in the overview, otherwise the displayed one, in all snapshots, so that
 * colours keep their meaning during the playback.
 * @param {ViewData} data @param {MapData} map @param {LayerData} layer @param {{ mode: string | null }} state
 */
export function layersOnScale({ playback }, map, layer, state) {
  const frames = playback?.frames.flatMap((frame) => frame.layers) ?? [];
  if (state.mode === "overview") return [...map.layers, ...frames];
  return [layer, ...frames.filter((frame) => frame.name === layer.name)];
}

/**
 * The scale of a layer's small pictures: if heads share it, over all layers of the same kind. The other kinds
 * can have 1,500 keys where this one has four, and would be white.
 * @param {{ map: MapData, scale: Scale, shown: (layer: LayerData) => Matrix }} scene
 * @param {LayerData["kind"]} kind
 */
export function posterScale({ map, scale, shown }, kind) {
  const layers = map.layers.filter((layer) => layer.kind === kind);
  const largest = scale.name === "shared" ? layers.map((layer) => shown(layer).scale) : [scale.largest];
  return new Scale(scale.name, Math.max(...largest, 1e-9), scale.aside, scale.alike);
}

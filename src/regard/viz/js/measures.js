// Measures of heads: what ranks the heads in the grid.

import { cached } from "./arithmetic.js";
import { headImportance, isolate, shortImportance, shortRole } from "./labels.js";
import { headCount } from "./matrix.js";
import { firstRow, sinks } from "./scale.js";

/** @import { LayerData, MapData, ViewData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Scene } from "./scene.js" */
/** @import { MeasureName } from "./state.js" */

/**
 * The value of a head.
 * @typedef {object} Measured
 * @property {number} value
 * @property {number | null} low of the 95 % interval
 * @property {number | null} high
 * @property {string} text
 * @property {boolean} sure whether 0 is outside the interval, if there is one
 * @property {number} [query] the row that it describes
 */

/**
 * @typedef {object} Measure
 * @property {string} title
 * @property {string} unit
 * @property {(layer: LayerData, head: number) => Measured | null} of null: unknown
 */

/** @type {Record<MeasureName, { title: string, unit: string }>} */
export const MEASURES = {
  importance: { title: "importance", unit: "loss increase without the head, in nats" },
  role: { title: "role", unit: "strength of the role, from 0 to 1" },
  relevant: { title: "weight on relevant inputs", unit: "mean over the outputs" },
  relation: { title: "clearest relation", unit: "of two words: weight beyond what distance and key explain" },
  peak: { title: "largest weight", unit: "mean of the rows, without the own token and sinks" },
  entropy: { title: "entropy", unit: "0: one key, 1: uniform" },
  distance: { title: "distance", unit: "mean distance of query and key in tokens" },
};
export const MEASURE_NAMES = /** @type {MeasureName[]} */ (Object.keys(MEASURES));

/**
 * The measures that are known for a map, the default first.
 * @param {Pick<Scene, "data" | "map" | "state">} scene @returns {MeasureName[]}
 */
export function availableMeasures({ data, map, state }) {
  const trained = state.frame === null; // importance and roles describe the trained model
  const known = {
    importance: trained && data.importance !== undefined,
    role: trained && Object.keys(data.roles ?? {}).length > 0,
    relevant: map.layers.some((layer) => layer.relevant?.length),
    relation: hasRelations(map, data) && weightCount(map.layers) <= MOST_COMPARED,
    peak: true,
    entropy: true,
    distance: map.layers.some((layer) => layer.kind !== "cross"),
  };
  return MEASURE_NAMES.filter((name) => known[name]);
}

/** @param {Pick<Scene, "data" | "map" | "state" | "shown">} scene @returns {Measure & { name: MeasureName }} */
export function chosenMeasure(scene) {
  const all = availableMeasures(scene);
  const name = all.find((candidate) => candidate === scene.state.measure) ?? all[0];
  return { name, ...MEASURES[name], of: (layer, head) => measure(scene, name, layer, head) };
}

/** @param {Pick<Scene, "data" | "shown">} scene @param {MeasureName} name @param {LayerData} layer @param {number} head @returns {Measured | null} */
export function measure({ data, shown }, name, layer, head) {
  const plain = { low: null, high: null, sure: true };
  if (name === "importance") {
    const worth = headImportance(data, layer.name, head);
    const text = worth && shortImportance(worth);
    return worth && text ? { ...worth, value: worth.added, text, sure: !text.startsWith("(") } : null;
  }
  if (name === "role") {
    const role = data.roles?.[layer.name]?.[head];
    return role ? { ...plain, value: role.strength?.mean ?? 0, text: shortRole(role), sure: role.role !== null } : null;
  }
  const matrix = shown(layer);
  if (name === "relation") {
    const { score, query, key } = cached(matrix, `relation ${head}`, () => clearestRelation(matrix, head));
    const text = `${isolate(matrix.queries[query])} → ${isolate(matrix.keys[key])}`;
    return { ...plain, value: score, text: score ? text : "none", sure: score > 0, query };
  }
  if (name === "distance" && layer.kind === "cross") return null;
  if (name === "relevant" && !matrix.relevant?.length) return null;
  const compute = { relevant: relevantWeight, peak, entropy, distance }[name];
  const sent = layer.measures?.[name]?.[head]; // of a thumbnail, whose weights are maxima
  const value = sent ?? cached(matrix, `${name} ${head}`, () => compute(matrix, head, layer.kind));
  const text =
    name === "distance" ? value.toFixed(1) : name === "relevant" ? `${Math.round(100 * value)}%` : value.toFixed(2);
  return { ...plain, value, text };
}

/** The mean entropy of the rows, divided by its largest possible value. @param {Matrix} matrix @param {number} head */
export function entropy(matrix, head) {
  let [total, rows] = [0, 0];
  for (let query = 0; query < matrix.rows; query += 1) {
    let [sum, seen] = [0, 0];
    for (const weight of matrix.row(matrix.slices[head], query)) {
      if (!(weight > 0)) continue;
      sum -= weight * Math.log(weight);
      seen += 1;
    }
    if (seen < 2 && matrix.causal) continue; // a step that sees itself alone
    rows += 1;
    total += seen < 2 ? 0 : sum / Math.log(matrix.causal ? query + 1 : matrix.columns);
  }
  return rows ? Math.min(total / rows, 1) : 0;
}

/**
 * The mean over the rows of the largest weight outside attention sinks and the row's own token; the early rows of
 * a causal head do not count.
 * @param {Matrix} matrix @param {number} head @param {LayerData["kind"]} kind
 */
export function peak(matrix, head, kind) {
  const left = new Set(sinks(matrix, head));
  const first = firstRow(matrix);
  let sum = 0;
  for (let query = first; query < matrix.rows; query += 1) {
    let largest = 0;
    matrix.row(matrix.slices[head], query).forEach((weight, key) => {
      if (weight > largest && !left.has(key) && (key !== query || kind === "cross")) largest = weight;
    });
    sum += largest;
  }
  return matrix.rows ? sum / (matrix.rows - first) : 0;
}

/** The mean distance of query and key in tokens. @param {Matrix} matrix @param {number} head */
export function distance(matrix, head) {
  let sum = 0;
  matrix.slices[head].forEach((weight, index) => {
    sum += weight * Math.abs(Math.floor(index / matrix.columns) - (index % matrix.columns)) || 0;
  });
  return matrix.rows ? sum / matrix.rows : 0;
}

/** The mean weight on relevant keys, over the queries that have some. @param {Matrix} matrix @param {number} head */
export function relevantWeight(matrix, head) {
  const pairs = matrix.relevant ?? [];
  const queries = new Set(pairs.map(([query]) => query));
  const total = pairs.reduce((sum, [query, key]) => sum + matrix.at(head, query, key), 0);
  return queries.size ? total / queries.size : 0;
}

export const MOST_COMPARED = 250_000; // weights of a map; of more, one layer is looked at, so that the page opens quickly
const CLEAR = 0.4; // weight of a clear relation
const LEAST_COMPARED = 4; // weights of one distance; the mean of fewer is taken over so many
const SPECIAL_TOKEN = /^(\[.*\]|<.*>)$/; // tokens such as [CLS] and </s>

/** The number of weights. @param {LayerData[]} layers */
export function weightCount(layers) {
  const whole = layers.filter(({ measures }) => !measures);
  return whole.reduce((sum, layer) => sum + headCount(layer) * layer.queries.length * layer.keys.length, 0);
}

/** Whether relations of words say most: nothing better is known, and all weights are here. @param {MapData} map @param {Pick<ViewData, "importance">} data */
export function hasRelations({ layers, opens }, { importance }) {
  return (
    !opens && !importance && layers.every(({ kind, measures, relevant }) => kind !== "cross" && !measures && !relevant)
  );
}

/**
 * The largest weight of a head on a different word that neither the distance nor the key alone explains; far words
 * count more. The score is 0 if there is none.
 * @param {Matrix} matrix @param {number} head @param {number} [least] weight
 */
export function clearestRelation(matrix, head, least = CLEAR) {
  const { rows, columns, keys } = matrix;
  const words = keys.map((label) => /[\p{L}\p{N}]/u.test(label) && !SPECIAL_TOKEN.test(label));
  const [ofKey, ofDistance] = [new Float32Array(columns), new Float32Array(rows + columns)];
  matrix.slices[head].forEach((weight, index) => {
    const [query, key] = [Math.floor(index / columns), index % columns];
    ofKey[key] += weight / rows;
    ofDistance[key - query + rows] += weight / Math.max(rows - Math.abs(key - query), LEAST_COMPARED);
  });
  const found = { query: 0, key: 0, score: 0 };
  for (let query = firstRow(matrix); query < rows; query += 1) {
    for (let key = 0; key < columns; key += 1) {
      const weight = matrix.at(head, query, key);
      if (weight < least || !words[query] || !words[key] || keys[query] === keys[key]) continue;
      const unexplained = weight - Math.max(ofKey[key], ofDistance[key - query + rows]);
      const score = unexplained * Math.sqrt(Math.abs(query - key));
      if (score > found.score) Object.assign(found, { query, key, score });
    }
  }
  return found;
}

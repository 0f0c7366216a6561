// The computation of a weight from the intermediate values stored in a page, as the explorer gets it from the
// model.

import { unpackNumbers } from "./packing.js";

/** @import { LayerSumsData, MapData, NumbersData } from "./data.js" */
/** @import { Explained } from "./explanation.js" */
/** @import { Which } from "./selected-weight.js" */

/**
 * The computation of a weight. With another temperature it ends at the context, since later values are not stored.
 *
 * @param {MapData} map with intermediate values
 * @param {Which} which
 * @returns {Promise<Explained>}
 */
export async function storedExplanation(map, { layer: name, head, output, key, temperature }) {
  const layer = map.layers.find((layer) => layer.name === name);
  const sums = map.sums?.layers[name];
  if (!layer || !sums) throw new Error(`This page does not contain the computation of ${name}.`);
  /** @param {NumbersData | null} data @param {number[]} at */
  const slice = async (data, ...at) => (data ? sliceAt(await unpackNumbers(data), data.shape, at) : null);
  /** @param {NumbersData} data @param {number[]} at */
  const row = async (data, ...at) => (await slice(data, ...at)) ?? [];
  const own = temperature === 1;
  const scores = await row(sums.scores, head, output);
  const maySee = (await row(sums.may_see, head, output)).map((flag) => flag === 1);
  const weights = own ? await row(sums.weights, head, output) : softmax(scores, maySee, temperature);
  const values = await Promise.all(layer.keys.map((_, flag) => row(sums.values, head, flag)));
  return {
    query_label: layer.queries[output],
    key_labels: layer.keys,
    query: output,
    key,
    head,
    steps: await scoreSteps(sums, row, { head, output, key }),
    scale: sums.scale,
    scores,
    may_see: maySee,
    temperature,
    weights,
    values,
    context: own ? await row(sums.context, head, output) : weightedSum(values, weights),
    added: await row(sums.added, output),
    own_part: own ? await slice(sums.own_part, head, output) : null,
    before_norm: own ? await slice(sums.before_norm, output) : null,
    after_norm: own ? await slice(sums.after_norm, output) : null,
    answered: own && layer.kind !== "encoder" ? (map.sums?.answers[output] ?? null) : null,
  };
}

/**
 * @param {number[]} scores
 * @param {boolean[]} maySee
 * @param {number} temperature
 */
export function softmax(scores, maySee, temperature) {
  const largest = Math.max(...scores.filter((_, key) => maySee[key]));
  const grown = scores.map((score, key) => (maySee[key] ? Math.exp((score - largest) / temperature) : 0));
  const total = grown.reduce((sum, exponential) => sum + exponential, 0);
  return grown.map((exponential) => (total ? exponential / total : 0)); // 0 if the query may attend to no key
}

/**
 * The weighted sum of vectors.
 *
 * @param {number[][]} values
 * @param {number[]} weights
 */
function weightedSum(values, weights) {
  return values[0].map((_, place) => values.reduce((sum, value, key) => sum + weights[key] * value[place], 0));
}

/**
 * @param {LayerSumsData} sums
 * @param {(data: NumbersData, ...at: number[]) => Promise<number[]>} row
 * @param {{ head: number, output: number, key: number }} which
 */
async function scoreSteps({ steps }, row, { head, output, key }) {
  /** @type {[string, number[]][]} */
  const vectors = [];
  const places = { query: [output], key: [key], pair: [output, key] };
  for (const { name, of, numbers, factors } of steps) {
    if (of !== "product" && numbers) vectors.push([name, await row(numbers, head, ...places[of])]);
    else if (factors) {
      const [left, right] = factors.map((index) => vectors[index][1]);
      vectors.push([name, left.map((value, index) => value * right[index])]);
    }
  }
  return Object.fromEntries(vectors);
}

/**
 * The slice at the given indices of the first dimensions.
 *
 * @param {Float32Array} numbers
 * @param {number[]} shape
 * @param {number[]} at
 */
function sliceAt(numbers, shape, at) {
  const size = shape.slice(at.length).reduce((product, length) => product * length, 1);
  const place = at.reduce((index, length, dimension) => index * shape[dimension] + length, 0);
  return [...numbers.subarray(place * size, (place + 1) * size)];
}

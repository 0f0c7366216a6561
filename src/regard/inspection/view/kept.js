// How a weight comes about, of the numbers that a page keeps: what the explorer asks the model.

import { unpackNumbers } from "./packing.js";

/** @import { LayerSumsData, MapData, NumbersData } from "./data.js" */
/** @import { Explained } from "./explained.js" */
/** @import { Which } from "./which.js" */

/**
 * What is known of a weight, with the model's own temperature.
 *
 * @param {MapData} map with its sums
 * @param {Which} which
 * @returns {Promise<Explained>}
 */
export async function keptSum(map, { layer: name, head, output, key }) {
  const layer = map.layers.find((each) => each.name === name);
  const sums = map.sums?.layers[name];
  if (!layer || !sums) throw new Error(`This page keeps no sums of ${name}.`);
  /** @param {NumbersData | null} data @param {number[]} at */
  const slice = async (data, ...at) => (data ? sliceOf(await unpackNumbers(data), data.shape, at) : null);
  /** @param {NumbersData} data @param {number[]} at */
  const row = async (data, ...at) => (await slice(data, ...at)) ?? [];
  const values = await Promise.all(layer.keys.map((_, each) => row(sums.values, head, each)));
  return {
    query_label: layer.queries[output],
    key_labels: layer.keys,
    query: output,
    key,
    head,
    steps: await stepsOf(sums, row, { head, output, key }),
    scale: sums.scale,
    scores: await row(sums.scores, head, output),
    may_see: (await row(sums.may_see, head, output)).map((each) => each === 1),
    temperature: 1,
    weights: await row(sums.weights, head, output),
    values,
    context: await row(sums.context, head, output),
    added: await row(sums.added, output),
    own_part: await slice(sums.own_part, head, output),
    before_norm: await slice(sums.before_norm, output),
    after_norm: await slice(sums.after_norm, output),
    answered: layer.kind === "encoder" ? null : (map.sums?.answers[output] ?? null),
  };
}

/**
 * @param {LayerSumsData} sums
 * @param {(data: NumbersData, ...at: number[]) => Promise<number[]>} row
 * @param {{ head: number, output: number, key: number }} which
 */
async function stepsOf({ steps }, row, { head, output, key }) {
  /** @type {[string, number[]][]} */
  const found = [];
  const places = { query: [output], key: [key], pair: [output, key] };
  for (const { name, of, numbers, factors } of steps) {
    if (of !== "product" && numbers) found.push([name, await row(numbers, head, ...places[of])]);
    else if (factors) {
      const [one, other] = factors.map((each) => found[each][1]);
      found.push([name, one.map((value, index) => value * other[index])]);
    }
  }
  return Object.fromEntries(found);
}

/**
 * The numbers at a place of the first dimensions.
 *
 * @param {Float32Array} numbers
 * @param {number[]} shape
 * @param {number[]} at
 */
function sliceOf(numbers, shape, at) {
  const size = shape.slice(at.length).reduce((product, each) => product * each, 1);
  const place = at.reduce((index, each, dimension) => index * shape[dimension] + each, 0);
  return [...numbers.subarray(place * size, (place + 1) * size)];
}

// The interactive view of attention, without dependencies: for notebooks, exported pages and the explorer.
//
//   import { show } from "./entry.js";
//   const view = await show(element, { maps: [map] });
//   view.update(await unpackWeights({ maps: [other] }));
//
// See data.js for the type of a map.

import { softmax } from "./arithmetic.js";
import { node } from "./dom.js";
import { bytesOfText, inflate } from "./inflate.js";
import { unpackNumbers, unpackWeights } from "./matrix.js";
import { formatAddress, readAddress, replaceAddress } from "./state.js";
import { View } from "./view.js";

/** @import { LayerSumsData, MapData, NumbersData, ViewData } from "./data.js" */
/** @import { Explained, Explain, Which } from "./sum.js" */
/** @import { Options } from "./view.js" */

export { unpackWeights };

/** @typedef {{ id: string, found?: unknown, error?: string }} Answer to a question of the same id */

/**
 * The interface that anywidget provides to the widget.
 * @typedef {object} Model
 * @property {{ (name: "data"): string, (name: "explains"): boolean }} get
 * @property {(event: string, listener: (message: Answer) => void) => void} on
 * @property {(message: object) => void} send
 */

/**
 * Draws `data` into `element`; returns the view, with `update(data)` and `destroy()`.
 * @param {Element} element @param {ViewData} data @param {Options} options
 */
export async function show(element, data, options = {}) {
  const view = new View(element, options);
  view.update(await unpackWeights(data));
  return view;
}

/**
 * Draws a page with a single view, whose selection is kept in the address.
 * @param {Element} element @param {ViewData} data @param {string} title
 */
async function showPage(element, data, title) {
  const chosen = () => readAddress(location.hash).state;
  const alone = parent === window; // a page around this one, as a lesson is, makes room for it
  document.body.classList.toggle("alone", alone); // gives the page its height
  // Until weights are unpacked, an open frame delays the load event: a page that is printed at once has its picture.
  const frame = document.createElement("iframe");
  frame.hidden = true;
  document.body.append(frame);
  frame.contentDocument?.open();
  const packed = document.getElementById("weights");
  const bytes = inflate(bytesOfText(packed?.textContent ?? "", Number(packed?.dataset.size)));
  await bytes.then((weights) => unpackWeights(data, weights)).catch((error) => (frame.remove(), Promise.reject(error)));
  /** @type {View} */
  const view = await show(element, data, {
    state: chosen(),
    chosen: (state) => replaceAddress(formatAddress(state)),
    explain: (which) => storedExplanation(view.map, which),
    keeps: true,
    fits: alone,
  }).finally(() => frame.remove());
  view.slot.append(node("h1", {}, title));
  document.addEventListener("keydown", (event) => {
    if (event.target === document.body) view.pressed(event);
  });
  addEventListener("hashchange", () => view.choose(chosen()));
  const tell = () => parent.postMessage({ height: document.documentElement.offsetHeight }, "*");
  if (!alone) new ResizeObserver(tell).observe(document.documentElement);
}

const place = document.getElementById("view");
const title = place?.dataset.title;
if (place && title !== undefined)
  showPage(place, JSON.parse(document.getElementById("data")?.textContent ?? ""), title);

/** The widget of a notebook (anywidget). */
export default {
  /** @param {{ model: Model, el: Element }} widget */
  async render({ model, el }) {
    /** @type {Map<string, (answer: Answer) => void>} */
    const waiting = new Map();
    model.on("msg:custom", (answer) => {
      waiting.get(answer.id)?.(answer);
      waiting.delete(answer.id);
    });
    /** @param {object} question @returns {Promise<any>} */
    const ask = (question) =>
      new Promise((resolve, reject) => {
        const id = Math.random().toString(36);
        waiting.set(id, ({ found, error }) => (error === undefined ? resolve(found) : reject(new Error(error))));
        model.send({ ...question, id });
      });
    /** @type {Explain} */
    const explain = (which) => ask({ explain: which });
    const view = await show(el, JSON.parse(model.get("data")), {
      exact: ask,
      ...(model.get("explains") ? { explain } : {}),
    });
    model.on("change:data", async () => {
      const text = model.get("data");
      const data = await unpackWeights(JSON.parse(text));
      if (text === model.get("data")) view.update(data); // not if the data has changed meanwhile
    });
    return () => view.destroy();
  },
};

/**
 * The computation of a weight. With another temperature it ends at the context, since later values are not stored.
 * @param {MapData} map with intermediate values
 * @param {Which} which @returns {Promise<Explained>}
 */
async function storedExplanation(map, { layer: name, head, output, key, temperature }) {
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
    context: own
      ? await row(sums.context, head, output)
      : values[0].map((_, place) => values.reduce((sum, value, key) => sum + weights[key] * value[place], 0)),
    added: await row(sums.added, output),
    own_part: own ? await slice(sums.own_part, head, output) : null,
    before_norm: own ? await slice(sums.before_norm, output) : null,
    after_norm: own ? await slice(sums.after_norm, output) : null,
    answered: own && layer.kind !== "encoder" ? (map.sums?.answers[output] ?? null) : null,
  };
}

/**
 * @param {LayerSumsData} sums @param {(data: NumbersData, ...at: number[]) => Promise<number[]>} row
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

// The slice at the given indices of the first dimensions.
/** @param {Float32Array} numbers @param {number[]} shape @param {number[]} at */
function sliceAt(numbers, shape, at) {
  const size = shape.slice(at.length).reduce((product, length) => product * length, 1);
  const place = at.reduce((index, length, dimension) => index * shape[dimension] + length, 0);
  return [...numbers.subarray(place * size, (place + 1) * size)];
}

// The interactive view of attention, without dependencies: for notebooks, exported pages and the explorer.
//
//   import { show } from "./entry.js";
//   const view = await show(element, { maps: [map] });
//   view.update(await unpackWeights({ maps: [other] }));
//
// See data.js for the type of a map.

import { unpackWeights } from "./packing.js";
import { formatAddress, replaceAddress, readAddress } from "./address.js";
import { storedExplanation } from "./stored-values.js";
import { View } from "./view.js";

/** @import { ViewData } from "./data.js" */
/** @import { Explain } from "./sum.js" */
/** @import { Options } from "./view.js" */

/** @typedef {{ id: string, found?: unknown, error?: string }} Answer to a question of the same id */

/**
 * The interface that anywidget provides to the widget.
 *
 * @typedef {object} Model
 * @property {{ (name: "data"): string, (name: "explains"): boolean }} get
 * @property {(event: string, listener: (message: Answer) => void) => void} on
 * @property {(message: object) => void} send
 */

/**
 * Draws `data` into `element`; returns the view, with `update(data)` and `destroy()`.
 *
 * @param {Element} element
 * @param {ViewData} data
 * @param {Options} options
 */
export async function show(element, data, options = {}) {
  const view = new View(element, options);
  view.update(await unpackWeights(data));
  return view;
}

/**
 * Draws a page with a single view, whose state is kept in the address.
 *
 * @param {Element} element
 * @param {ViewData} data
 */
export async function showPage(element, data) {
  const chosen = () => readAddress(location.hash).state;
  const view = await show(element, data, {
    state: chosen(),
    chosen: (state) => replaceAddress(formatAddress(state)),
    explain: (which) => storedExplanation(view.map, which),
    keeps: true,
    fits: parent === window, // a page around this one gives it its own height
  });
  document.addEventListener("keydown", (event) => {
    if (event.target === document.body) view.pressed(event);
  });
  addEventListener("hashchange", () => view.choose(chosen()));
}

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
    /**
     * @param {object} question
     * @returns {Promise<any>}
     */
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

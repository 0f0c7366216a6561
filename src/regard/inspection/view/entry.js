// Attention you can see and touch, without dependencies: for the notebook, the exported page and the explorer.
//
//   import { show } from "./entry.js";
//   const view = show(element, { maps: [map] });
//   view.update({ maps: [other] });
//
// What a map is, data.js says.

import { addressOf, keepAddress, readAddress } from "./address.js";
import { View } from "./view.js";

/** @import { ViewData } from "./data.js" */
/** @import { Exact } from "./readout.js" */
/** @import { Options } from "./view.js" */

/**
 * What anywidget gives of the widget's Python side.
 *
 * @typedef {object} Model
 * @property {(name: "data") => string} get
 * @property {(event: string, listener: (message: { id: string, weights: number[] }) => void) => void} on
 * @property {(message: object) => void} send
 */

/**
 * Draw `data` into `element`. Returns the view, with `update(data)` and `destroy()`.
 *
 * @param {Element} element
 * @param {ViewData} data
 * @param {Options} options
 */
export function show(element, data, options = {}) {
  const view = new View(element, options);
  view.update(data);
  return view;
}

/**
 * The same in a page that holds nothing else, whose address keeps what is chosen.
 *
 * @param {Element} element
 * @param {ViewData} data
 */
export function showPage(element, data) {
  const chosen = () => readAddress(location.hash).state;
  const view = show(element, data, { state: chosen(), chosen: (state) => keepAddress(addressOf(state)) });
  addEventListener("hashchange", () => view.choose(chosen()));
}

/** The widget of a notebook (anywidget). */
export default {
  /** @param {{ model: Model, el: Element }} widget */
  render({ model, el }) {
    /** @type {Map<string, (weights: number[]) => void>} */
    const waiting = new Map();
    model.on("msg:custom", ({ id, weights }) => {
      waiting.get(id)?.(weights);
      waiting.delete(id);
    });
    /** @type {Exact} */
    const exact = (row) =>
      new Promise((resolve) => {
        const id = Math.random().toString(36);
        waiting.set(id, resolve);
        model.send({ ...row, id });
      });
    const data = () => JSON.parse(model.get("data"));
    const view = show(el, data(), { exact });
    model.on("change:data", () => view.update(data()));
    return () => view.destroy();
  },
};

// A one-minute tour of the explorer, which can be skipped at any time and controlled by keys.

import { button, node } from "./js/dom.js";

/** @typedef {{ at: string, text: string }} Stop what is pointed at, and what is said of it */

/** @type {Stop[]} */
const STOPS = [
  {
    at: "#input",
    text: "Type an input here; the accepted form is described below. The model answers as you type.",
  },
  {
    at: ".answer",
    text: "The model's prediction and the probability of each output, with the truth if it is known.",
  },
  {
    at: ".pane.heads",
    text:
      "All heads of the model, a row for each layer; select one to see it. The bar below a head is its entropy, its " +
      "importance or another measure.",
  },
  {
    at: ".panels",
    text:
      "The attention of each head. Rows are queries, columns are keys. The stronger " +
      "the color, the larger the weight; each row sums to 1.",
  },
  { at: ".sentence", text: "The selected row in words." },
  {
    at: ".panels",
    text: "Point at a weight to read it, click to select it. Keyboard: Tab to a heatmap, then arrows; [ and ] change the head.",
  },
  {
    at: ".choice",
    text: "The same as lines between tokens, as a table of numbers, or all layers and heads at once.",
  },
  {
    at: "button[data-name='Explain this weight']",
    text: "The computation of a weight, number by number: query times key, softmax, values, answer.",
  },
  {
    at: ".touch",
    text:
      "Large weights need not matter. Switch a head off, make it uniform, or drag a weight, and see whether " +
      "the answer changes.",
  },
  {
    at: "#importance",
    text: "The loss increase without each head, over many samples.",
  },
  {
    at: "#roles",
    text: "The role of each head, if it is significant: it attends to the previous step, to the aligned word, ...",
  },
  {
    at: "#search",
    text: "Other inputs with the largest weights of the displayed head, optionally wrong answers first. This is the end of the tour.",
  },
];

/**
 * Starts the tour. It ends after the last stop, with Escape or with Skip; the focus returns to its former element.
 *
 * @param {HTMLElement} guide contains the text of the stops
 */
export function tour(guide) {
  const before = document.activeElement;
  const stops = STOPS.filter(({ at }) => document.querySelector(at)?.checkVisibility());
  /** @type {Element | null} */
  let shown = null;
  /** @param {KeyboardEvent} event */
  const pressed = (event) => {
    if (event.key === "Escape") end();
  };
  const end = () => {
    shown?.classList.remove("toured");
    guide.hidden = true;
    document.removeEventListener("keydown", pressed);
    if (before instanceof HTMLElement) before.focus();
  };
  /** @param {number} number */
  const go = (number) => {
    if (number === stops.length) return end();
    shown?.classList.remove("toured");
    shown = document.querySelector(stops[number].at);
    shown?.classList.add("toured");
    shown?.scrollIntoView({ block: "nearest" });
    const last = number === stops.length - 1;
    const next = button(last ? "Done" : "Next", () => go(number + 1));
    const row = node("div");
    row.append(node("span", { class: "count" }, `${number + 1} of ${stops.length}`));
    if (number) row.append(button("Back", () => go(number - 1)));
    if (!last) row.append(button("Skip", end));
    row.append(next);
    guide.replaceChildren(node("p", { "aria-live": "polite" }, stops[number].text), row);
    next.focus();
  };
  document.addEventListener("keydown", pressed);
  guide.hidden = false;
  go(0);
}

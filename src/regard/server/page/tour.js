// A one-minute tour of the explorer, which can be skipped at any time and controlled by keys.

import { button, node } from "./js/dom.js";

/** @typedef {{ at: string, text: string }} Stop what is pointed at, and what is said of it */

/** @type {Stop[]} */
export const STOPS = [
  { at: "#input", text: "Type an input here; what may be typed stands below. The model answers as you type." },
  {
    at: ".answer",
    text: "What the model answered, and how probable it took each output to be. Where the task knows the truth, that too.",
  },
  {
    at: ".panels",
    text:
      "The attention of each head. A row is an output that looks, a column an input that is looked at. The stronger " +
      "the colour, the more of the row's attention is there; each row sums to 1.",
  },
  { at: ".sentence", text: "One row in words: they say no more than the weights do." },
  {
    at: ".panels",
    text: "Point at a weight to read it, click to keep it. By keys: Tab to a heatmap, then arrows; [ and ] change the head.",
  },
  {
    at: ".choice",
    text: "The same as lines between tokens, as a table of numbers, or all layers and heads at once.",
  },
  {
    at: "button[data-name='Show the sum']",
    text: "How a weight comes about: query times key, softmax, values, answer, number by number.",
  },
  {
    at: ".touch",
    text:
      "Attention that is seen need not matter. Switch a head off, make it uniform, or drag a weight, and see whether " +
      "the answer changes.",
  },
  {
    at: "#importance",
    text: "How much worse the model becomes without each head, over many samples.",
  },
  {
    at: "#roles",
    text: "What each head does, where that is sure: looks at the previous step, at the aligned word, ...",
  },
  {
    at: "#search",
    text: "Other inputs in which the head in view looks most, wrong answers first if you like. That is all: have a look.",
  },
];

/**
 * Starts the tour. It ends after the last stop, with Escape or with Skip; the focus returns to its former element.
 *
 * @param {HTMLElement} guide contains the text of the stops
 */
export function tour(guide) {
  const before = document.activeElement;
  const stops = STOPS.filter(({ at }) => document.querySelector(at));
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

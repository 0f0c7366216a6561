// The prediction, its probability, and whether it is right.

import { node } from "./dom.js";
import { layerTitle } from "./layer-names.js";
import { revealHidden, percent, tokenLabel } from "./labels.js";

/** @import { MapData } from "./data.js" */

const LONGEST_INPUT = 1000; // characters of an input that are shown
const SCROLLED = 160; // characters from which an input scrolls
const MOST_STEPS = 40; // up to this number of output steps, probabilities are shown

/**
 * @param {MapData} map
 * @param {MapData} [original] the answer without interventions
 * @param {{ name: string, map: MapData } | null} [compared] the map shown for comparison
 */
export function answer(map, original, compared) {
  const line = node("div", { class: "answer" });
  if (map.prediction === null) {
    line.append(node("b", {}, map.task), " ", inputText(map), ...interventionLine(map));
    return line;
  }
  const predictionText = answerText(map.prediction);
  const prediction = node("b", { class: "prediction" }, predictionText);
  line.append(node("b", {}, map.task), " ", inputText(map), " prediction ", prediction);
  if (map.truth !== null) {
    const truth = answerText(map.truth);
    line.append(`, truth ${truth} `, node("span", {}, predictionText === truth ? "✓ right" : "✗ wrong"));
  }
  if (original) {
    const before = answerText(original.prediction);
    const text =
      before === predictionText ? " (as without interventions)" : ` (without interventions: ${before})`;
    line.append(node("span", { class: before === predictionText ? "quiet" : "changed" }, text));
  }
  if (compared && compared.map !== original && compared.map.prediction !== null) {
    const theirs = answerText(compared.map.prediction);
    const text = theirs === predictionText ? "the same" : theirs;
    line.append(
      node(
        "div",
        { class: theirs === predictionText ? "quiet" : "changed" },
        `Compared: ${compared.name}: ${text}`,
      ),
    );
  }
  if (!original) line.append(steps(map)); // with interventions, changes.js compares the probabilities
  line.append(...interventionLine(map));
  if (map.note) line.append(node("div", { class: "note" }, `Note: ${map.note}`));
  return line;
}

/**
 * The input, which scrolls if it is long.
 *
 * @param {MapData} map
 */
function inputText(map) {
  const text = shorten(revealHidden(map.input));
  const long = text.length > SCROLLED;
  return node("code", long ? { tabindex: 0, role: "region", "aria-label": "Input" } : {}, text);
}

/**
 * The interventions, with the names of layers as in the page.
 *
 * @param {MapData} map
 */
function interventionLine({ interventions, layers }) {
  if (!interventions.length) return [];
  const texts = interventions.map((text) => {
    const layer = layers.find(({ name }) => text.startsWith(`${name}: `));
    return layer?.title === layer?.name && layer
      ? layerTitle(layer, layers) + text.slice(layer.name.length)
      : text;
  });
  return [node("div", { class: "changed" }, `Interventions: ${texts.join("; ")}`)];
}

/**
 * The probability of each output step, if known.
 *
 * @param {MapData} map
 */
function steps({ outputs, prediction, probabilities }) {
  const box = node("div");
  if (!probabilities.length || outputs.length > MOST_STEPS) return box;
  box.append(node("span", { class: "quiet" }, "with probability: "));
  outputs.forEach((label, step) => {
    const now = probabilities[step];
    const number = Array.isArray(prediction) ? ` ${prediction[step]}` : "";
    const item = node("span", { class: "step" });
    item.style.setProperty("--share", `${100 * (Number.isFinite(now) ? now : 0)}%`);
    item.append(
      node("span", { class: "token" }, `${tokenLabel(label)}${number} `),
      node("span", { class: "quiet" }, `${percent(now)} `),
    );
    box.append(item);
  });
  return box;
}

/**
 * Shortens a long text to its beginning and end.
 *
 * @param {string} text
 */
function shorten(text) {
  return text.length <= LONGEST_INPUT
    ? text
    : `${text.slice(0, LONGEST_INPUT / 2)} … ${text.slice(-LONGEST_INPUT / 4)}`;
}

/** @param {number[] | string | null} answer */
export function answerText(answer) {
  return Array.isArray(answer) ? answer.join(" ") : revealHidden(answer ?? "unknown") || "(nothing)";
}

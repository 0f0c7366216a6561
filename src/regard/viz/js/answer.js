// The prediction, its probability, and whether it is right.

import { node } from "./dom.js";
import { legible, percent, visible } from "./labels.js";

/** @import { MapData } from "./data.js" */

const LONGEST_INPUT = 1000; // characters of an input that are shown
const MOST_STEPS = 40; // up to this number of output steps, probabilities are shown

/**
 * @param {MapData} map
 * @param {MapData} [original] the answer without interventions
 * @param {{ name: string, map: MapData } | null} [other] the map shown for comparison
 */
export function answer(map, original, other) {
  const line = node("div", { class: "answer" });
  if (map.prediction === null) {
    line.append(
      node("b", {}, map.task),
      " ",
      node("code", {}, shortened(legible(map.input))),
      ...changedLine(map),
    );
    return line;
  }
  const said = spelled(map.prediction);
  const prediction = node("b", { class: "prediction" }, said);
  line.append(
    node("b", {}, map.task),
    " ",
    node("code", {}, shortened(legible(map.input))),
    " prediction ",
    prediction,
  );
  if (map.truth !== null) {
    const truth = spelled(map.truth);
    line.append(`, truth ${truth} `, node("span", {}, said === truth ? "✓ right" : "✗ wrong"));
  }
  if (original) {
    const before = spelled(original.prediction);
    const text = before === said ? " (as before it was touched)" : ` (before: ${before})`;
    line.append(node("span", { class: before === said ? "quiet" : "changed" }, text));
  }
  if (other && other.map !== original && other.map.prediction !== null) {
    const theirs = spelled(other.map.prediction);
    const text = theirs === said ? "the same" : theirs;
    line.append(node("div", { class: theirs === said ? "quiet" : "changed" }, `Beside, ${other.name}: ${text}`));
  }
  line.append(steps(map, original));
  line.append(...changedLine(map));
  if (map.note) line.append(node("div", { class: "note" }, `Note: ${map.note}`));
  return line;
}

/** @param {MapData} map */
function changedLine({ interventions }) {
  return interventions.length ? [node("div", { class: "changed" }, `Changed: ${interventions.join("; ")}`)] : [];
}

/**
 * The probability of each output step, if known.
 *
 * @param {MapData} map
 * @param {MapData} [original]
 */
function steps({ outputs, prediction, probabilities }, original) {
  const found = node("div");
  if (!probabilities.length || outputs.length > MOST_STEPS) return found;
  found.append(node("span", { class: "quiet" }, "with probability: "));
  outputs.forEach((label, step) => {
    const before = original?.outputs[step] === label ? original.probabilities[step] : null;
    const now = probabilities[step];
    const was = before !== null && Math.abs(before - now) >= 0.005 ? ` (was ${percent(before)})` : "";
    const number = Array.isArray(prediction) ? ` ${prediction[step]}` : "";
    found.append(
      node("span", { class: was ? "token changed" : "token" }, `${visible(label)}${number} `),
      node("span", { class: "quiet" }, `${percent(now)}${was} `),
    );
  });
  return found;
}

/**
 * Shortens a long text to its beginning and end.
 *
 * @param {string} text
 */
function shortened(text) {
  return text.length <= LONGEST_INPUT
    ? text
    : `${text.slice(0, LONGEST_INPUT / 2)} … ${text.slice(-LONGEST_INPUT / 4)}`;
}

/** @param {number[] | string | null} answer */
export function spelled(answer) {
  return Array.isArray(answer) ? answer.join(" ") : legible(answer ?? "unknown") || "(nothing)";
}

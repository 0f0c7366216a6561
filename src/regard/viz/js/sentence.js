// A sentence that describes one row of weights, without claims beyond the numbers.

import { node } from "./dom.js";
import { axisTitles, headTitle, isolate, layerTitle, percent, revealHidden, tokenLabel } from "./labels.js";
import { isOff } from "./scene.js";

/** @import { MapData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Scene } from "./scene.js" */

const EVEN = 1.5; // multiple of the mean weight below which a row has no peaks
const MOST_PEAKS = 10; // large weights of a row, beyond which none of them is named if they are most of the row
const MOST_NAMED = 3; // inputs listed by name
const NUMBER_WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/**
 * What the selected row, or the selected weight, says.
 * @param {Pick<Scene, "map" | "layer" | "matrix" | "head" | "state" | "derived">} scene
 */
export function sentence(scene) {
  const { map, layer, matrix, head, state, derived } = scene;
  if (!matrix.rows || !matrix.columns) return "This layer has no weights here.";
  const name = derived
    ? `Rollout up to ${layerTitle(layer, map.layers)}`
    : headTitle(map.layers, layer, head).replace(/^./, (letter) => letter.toUpperCase());
  if (isOff(scene, head)) return `${name} is switched off; its weights before are shown pale.`;
  const query = mentionLabel(matrix.queries[state.query]);
  if (state.key !== null) {
    const weight = rounded(matrix.at(head, state.query, state.key));
    return `${name}: ${query} attends to ${mentionLabel(matrix.keys[state.key])} (${weight}).`;
  }
  const row = matrix.row(matrix.slices[head], state.query);
  return `${name}: ${query} attends to ${target(matrix, row, axisTitles(scene)[1].split(" ")[0])}.`;
}

/** Further facts about the selected row. @param {Scene} scene */
export function rowFacts({ layer, matrix, head, state, derived }) {
  if (derived) return [derived];
  if (layer.square > 1)
    return [`The input is long: each weight here is the largest of ${layer.square} × ${layer.square} steps.`];
  const relevant = relevantShare(matrix, matrix.row(matrix.slices[head], state.query), state.query);
  if (!relevant) return [];
  const even = `uniform attention would have ${rounded(relevant.even)}`;
  return [`${rounded(relevant.share)} of its weight is on the inputs that this output depends on (${even}).`];
}

/**
 * The keys with most weight of a row.
 * @param {Matrix} matrix @param {Float32Array} row
 * @param {string} noun the type of the keys
 */
function target({ keys }, row, noun) {
  const seen = row.reduce((count, weight) => count + (weight > 0 ? 1 : 0), 0);
  const largest = Math.max(...row);
  if (!seen || row.reduce((sum, weight) => sum + weight, 0) < 0.01) return "nothing";
  const which = seen === keys.length ? `all ${seen}` : number(seen);
  if (seen > MOST_NAMED && largest * seen < EVEN) return `${which} ${noun} about alike, ${rounded(largest)} at most`;
  const peaks = [...row.keys()]
    .filter((key) => row[key] >= largest / 2)
    .sort((first, second) => row[second] - row[first]);
  const [first] = peaks;
  if (peaks.length > 1 && peaks.every((key) => keys[key] === keys[first])) return describeKeys(keys, row, peaks);
  if (peaks.length <= MOST_NAMED)
    return peaks.map((key) => `${mentionLabel(keys[key])} (${rounded(row[key])})`).join(" and ");
  if (peaks.length > MOST_PEAKS && peaks.length > keys.length / 2)
    return `${number(peaks.length)} of ${keys.length} ${noun} about alike, ${rounded(largest)} at most`;
  const together = peaks.reduce((sum, key) => sum + row[key], 0);
  return `${number(peaks.length)} of ${keys.length} ${noun} with ${rounded(together)} in all, most on ${mentionLabel(keys[first])}`;
}

/** Several inputs of one kind. @param {string[]} keys @param {Float32Array} row @param {number[]} peaks */
function describeKeys(keys, row, peaks) {
  const label = keys[peaks[0]];
  const all = keys.filter((key) => key === label).length;
  const name = /^[A-Z]$/.test(label) ? `${label}s` : mentionLabel(label);
  const which =
    peaks.length === all ? `the ${number(all)} ${name}` : `${number(peaks.length)} of the ${number(all)} ${name}`;
  const [high, low] = [row[peaks[0]], row[peaks[peaks.length - 1]]].map((weight) => Math.round(100 * weight));
  return `${which}, ${high === low ? "" : `${low} to `}${high}% each`;
}

// The share of a row's weight on relevant inputs, and the share for uniform attention.
/** @param {Matrix} matrix @param {Float32Array} row @param {number} query */
function relevantShare({ relevant, columns }, row, query) {
  const keys = relevant?.filter(([pairQuery]) => pairQuery === query).map(([, key]) => key);
  if (!keys?.length) return null;
  return { share: keys.reduce((sum, key) => sum + row[key], 0), even: keys.length / columns };
}

/** @param {number} share */
function rounded(share) {
  const hundredth = 100 * share;
  if (hundredth > 0 && hundredth < 0.05) return "under 0.1%";
  return `${hundredth > 0 && hundredth < 0.5 ? hundredth.toPrecision(1) : Math.round(hundredth)}%`;
}

/** @param {number} count */
function number(count) {
  return NUMBER_WORDS[count] ?? String(count);
}

/** @param {string} label */
function mentionLabel(label) {
  return /^[A-Z]$/.test(label) ? label : `“${isolate(label)}”`;
}

// The prediction, its probability, and whether it is right.

const LONGEST_INPUT = 1000; // characters of an input that are shown
const SCROLLED = 160; // characters from which an input scrolls
const MOST_STEPS = 40; // up to this number of output steps, probabilities are shown

/**
 * The prediction of the model, whether it is right, and how sure it is.
 * @param {MapData} map
 * @param {MapData} [original] the answer without interventions
 * @param {{ name: string, map: MapData } | null} [compared] the map shown for comparison
 */
export function answer(map, original, compared) {
  const line = node("div", { class: "answer" });
  const note = map.note ? [node("div", { class: "note" }, `Note: ${map.note}`)] : [];
  if (map.prediction === null) {
    line.append(inputText(map), ...interventionLine(map), ...note);
    return line;
  }
  const text = answerText(map.prediction);
  line.append(inputText(map), node("b", { class: "prediction" }, text));
  if (map.truth !== null) {
    const truth = answerText(map.truth);
    line.append(
      node(
        "span",
        { class: text === truth ? "right" : "wrong" },
        text === truth ? " ✓ right" : ` ✗ wrong, truth ${truth}`,
      ),
    );
  }
  if (original) {
    const before = answerText(original.prediction);
    const said = before === text ? " (as without interventions)" : ` (without interventions: ${before})`;
    line.append(node("span", { class: before === text ? "quiet" : "changed" }, said));
  }
  if (compared && compared.map !== original && compared.map.prediction !== null) {
    const theirs = answerText(compared.map.prediction);
    const said = `Compared: ${compared.name}: ${theirs === text ? "the same" : theirs}`;
    line.append(node("div", { class: theirs === text ? "quiet" : "changed" }, said));
  }
  if (!original) line.append(steps(map)); // with interventions, changes.js compares the probabilities
  line.append(...interventionLine(map), ...note);
  return line;
}

/** The input, which scrolls if it is long; pages with an input field hide it. @param {MapData} map */
function inputText(map) {
  const whole = revealHidden(map.input);
  const [start, end] = [whole.slice(0, LONGEST_INPUT / 2), whole.slice(-LONGEST_INPUT / 4)];
  const text = whole.length <= LONGEST_INPUT ? whole : `${start} … ${end}`;
  const long = text.length > SCROLLED;
  return node("code", long ? { tabindex: 0, role: "region", "aria-label": "Input" } : {}, text);
}

/** The interventions, with the names of layers as in the page. @param {MapData} map */
function interventionLine({ interventions, layers }) {
  if (!interventions.length) return [];
  const texts = interventions.map((text) => {
    const layer = layers.find(({ name }) => text.startsWith(`${name}: `));
    return layer?.title === layer?.name && layer ? layerTitle(layer, layers) + text.slice(layer.name.length) : text;
  });
  return [node("div", { class: "changed" }, `Interventions: ${texts.join("; ")}`)];
}

/** The probability of each output step, if known. @param {MapData} map */
function steps({ outputs, prediction, probabilities }) {
  const box = node("div", { class: "steps" });
  if (!probabilities.length || outputs.length > MOST_STEPS) return box;
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

/** @param {number[] | string | null} answer */
export function answerText(answer) {
  return Array.isArray(answer) ? answer.join(" ") : revealHidden(answer ?? "unknown") || "(nothing)";
}

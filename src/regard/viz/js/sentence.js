// A sentence that describes one row of weights, without claims beyond the numbers.

import { node } from "./dom.js";
import {
  axisTitles,
  headImportance,
  headRole,
  importanceSentence,
  isolate,
  layerTitle,
  percent,
  revealHidden,
  roleSentence,
  tokenLabel,
  WORD,
} from "./labels.js";
import { numbersIn } from "./arithmetic.js";

/** @import { LayerData, MapData } from "./data.js" */
/** @import { Matrix } from "./matrix.js" */
/** @import { Scene } from "./scene.js" */
/** @import { State } from "./state.js" */

const EVEN = 1.5; // multiple of the mean weight below which a row has no peaks
const MOST_PEAKS = 10; // large weights of a row, beyond which none of them is named if they are most of the row
const MOST_NAMED = 3; // inputs listed by name
const SHARE = 0.5; // share of the layer's largest importance below which a head matters little
const NUMBER_WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/** The sentence about the selected query and head, and known facts about the head. @param {Scene} scene */
export function sentences(scene) {
  const { data, layer, matrix, state } = scene;
  if (!matrix.rows || !matrix.columns) return [];
  if (scene.state.mode === "flow") return [node("p", { class: "sentence" }, scene.derived ?? "")];
  if (layer.square > 1) return [node("p", { class: "sentence" }, squareNote(layer.square))];
  const head = currentHead(scene);
  const rows = selectedQueries(state, state.query, matrix.rows);
  if (rows.length > 1) return [node("p", { class: "sentence" }, sumSentence(matrix, head, rows))];
  const elements = [node("p", { class: "sentence" }, sentence(scene, head, state.query))];
  if (state.frame !== null) return elements; // the other facts hold for the trained model only
  const worth = headImportance(data, layer.name, head, matrix.names);
  if (worth) elements[0].append(` ${importanceSentence(worth)}`);
  const role = matrix.names ? null : headRole(data, layer.name, head);
  if (role) elements.push(node("p", { class: "quiet" }, roleSentence(role)));
  const examined = matrix.names ? undefined : data.examined?.[layer.name]?.[head];
  if (examined !== undefined) elements.push(node("p", { class: "quiet" }, `Examination: ${examined}`));
  return elements;
}

/** The meaning of a weight of a long input's map. @param {number} side */
function squareNote(side) {
  return `The input is long: each weight here is the largest of ${side} × ${side} steps.`;
}

/**
 * The selected head; otherwise, of the visible heads that matter (all, if importance is unknown), the one with most
 * weight on relevant keys or on a single key.
 * @param {Pick<Scene, "data" | "layer" | "matrix" | "state">} scene
 */
export function currentHead({ data, layer, matrix, state }) {
  const shown = matrix.shown(state);
  if (state.head !== null || state.mode === "flow") return state.head ?? state.focus;
  if (state.key !== null && shown.includes(state.focus)) return state.focus;
  const added = matrix.names ? undefined : data.importance?.[layer.name]?.map((importance) => importance.added);
  const largest = Math.max(...(added ?? [0]));
  const scores = matrix.slices.map((slice, head) => {
    if (!shown.includes(head)) return -2;
    if (added && largest > 0 && added[head] < SHARE * largest) return -1;
    const row = matrix.row(slice, state.query);
    return relevantShare(matrix, row, state.query)?.share ?? Math.max(...row);
  });
  return scores.indexOf(Math.max(...scores));
}

/** @param {Pick<Scene, "map" | "layer" | "matrix">} scene @param {number} head @param {number} query */
export function sentence({ map, layer, matrix }, head, query) {
  const row = matrix.row(matrix.slices[head], query);
  const subject = matrix.heads > 1 || matrix.names ? matrix.name(head) : "attention";
  if (isOff(map, layer, matrix, head)) return `${capitalised(subject)} is switched off.`;
  const text = `${purpose(map.prediction, layer, matrix.queries[query], query)}, ${subject} attends to ${target(matrix, row, axisTitles({ map, layer })[1].split(" ")[0])}`;
  const relevant = relevantShare(matrix, row, query);
  if (!relevant) return `${text}.`;
  const even = `uniform attention would have ${rounded(relevant.even)}`;
  return `${text}; ${rounded(relevant.share)} of its weight is on the inputs that this output depends on (${even}).`;
}

/**
 * Whether a head is switched off.
 * @param {Scene["map"]} map @param {Pick<LayerData, "name">} layer @param {Matrix} matrix @param {number} head
 */
export function isOff({ interventions }, { name }, matrix, head) {
  return interventions.includes(`${name}: ${matrix.name(head)} off`);
}

/**
 * The purpose of the query.
 * @param {number[] | string | null} prediction @param {Pick<LayerData, "kind" | "written">} layer
 * @param {string} label @param {number} step
 */
function purpose(prediction, { kind, written }, label, step) {
  const name = isolate(plainLabel(label));
  if (written) return `To write “${name}”`;
  if (kind === "cross" && Array.isArray(prediction)) return label.startsWith("count ") ? `To ${name}` : `For ${name}`;
  return `At “${name}” (step ${step})`;
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
    return peaks.map((key) => `${mentionLabel(keys[key])} (step ${key}, ${rounded(row[key])})`).join(" and ");
  if (peaks.length > MOST_PEAKS && peaks.length > keys.length / 2)
    return `${number(peaks.length)} of ${keys.length} ${noun} about alike, ${rounded(largest)} at most`;
  const together = peaks.reduce((sum, key) => sum + row[key], 0);
  return `${number(peaks.length)} of ${keys.length} ${noun}, mostly ${mentionLabel(keys[first])} (step ${first}), with ${rounded(together)} in all`;
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
  return `${hundredth > 0 && hundredth < 0.5 ? hundredth.toPrecision(1) : Math.round(hundredth)}%`;
}

/** @param {string} text */
export function capitalised(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** @param {number} count */
function number(count) {
  return NUMBER_WORDS[count] ?? String(count);
}

/** @param {string} label */
function mentionLabel(label) {
  return /^[A-Z]$/.test(label) ? label : `“${isolate(plainLabel(label))}”`;
}

/** @param {string} label without the sign that a word begins */
function plainLabel(label) {
  return label.length > 1 && label.startsWith(WORD) ? label.slice(1) : label;
}

// Several selected queries: their weights are added.

const MOST_KEYS_NAMED = 4; // keys listed by name

/**
 * The selected queries: one, and those added to it.
 * @param {Pick<State, "also">} state @param {number} query
 * @param {number} rows number of rows
 */
export function selectedQueries({ also }, query, rows) {
  const others = numbersIn(also).filter((number) => number !== query && number < rows);
  return [query, ...others];
}

/**
 * A sentence about the keys with the largest summed weights.
 * @param {Matrix} matrix @param {number} head @param {number[]} queries
 */
export function sumSentence(matrix, head, queries) {
  const sums = matrix.keys.map((_, key) => queries.reduce((sum, query) => sum + matrix.at(head, query, key), 0));
  const order = [...sums.keys()].sort((first, second) => sums[second] - sums[first]).slice(0, MOST_KEYS_NAMED);
  const keys = order.map((key) => `“${isolate(matrix.keys[key])}” (step ${key}, ${sums[key].toFixed(2)})`);
  const names = queries.map((query) => `“${isolate(matrix.queries[query])}”`);
  return `${names.join(", ")} together, ${matrix.name(head)}: of ${queries.length} rows, most on ${keys.join(", ")}.`;
}

// The prediction, its probability, and whether it is right.

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
    const text = before === predictionText ? " (as without interventions)" : ` (without interventions: ${before})`;
    line.append(node("span", { class: before === predictionText ? "quiet" : "changed" }, text));
  }
  if (compared && compared.map !== original && compared.map.prediction !== null) {
    const theirs = answerText(compared.map.prediction);
    const text = theirs === predictionText ? "the same" : theirs;
    line.append(
      node("div", { class: theirs === predictionText ? "quiet" : "changed" }, `Compared: ${compared.name}: ${text}`),
    );
  }
  if (!original) line.append(steps(map)); // with interventions, changes.js compares the probabilities
  line.append(...interventionLine(map));
  if (map.note) line.append(node("div", { class: "note" }, `Note: ${map.note}`));
  return line;
}

/** The input, which scrolls if it is long. @param {MapData} map */
function inputText(map) {
  const text = shorten(revealHidden(map.input));
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

/** Shortens a long text to its beginning and end. @param {string} text */
function shorten(text) {
  return text.length <= LONGEST_INPUT
    ? text
    : `${text.slice(0, LONGEST_INPUT / 2)} … ${text.slice(-LONGEST_INPUT / 4)}`;
}

/** @param {number[] | string | null} answer */
export function answerText(answer) {
  return Array.isArray(answer) ? answer.join(" ") : revealHidden(answer ?? "unknown") || "(nothing)";
}

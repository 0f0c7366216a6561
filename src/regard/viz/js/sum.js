// The computation of a weight and its effect: query and key, score, softmax, values, context, answer.

import { barCell, button, keepFocus, messageOf, node, Part, scrollBox, svg, table } from "./dom.js";
import { isolate, signedNumber, plainToken } from "./labels.js";
import { latest } from "./arithmetic.js";
import { cssColour } from "./colours.js";

/** @import { Palette } from "./colours.js" */
/** @import { Actions, Scene } from "./scene.js" */

/** @typedef {(which: Which) => Promise<Explained>} Explain */

/**
 * The computation of a weight, as in `regard.interpret.explanation.Explanation`.
 * @typedef {object} Explained
 * @property {string} query_label
 * @property {string[]} key_labels
 * @property {number} query
 * @property {number} key
 * @property {number} head
 * @property {Record<string, number[]>} steps
 * @property {number} scale
 * @property {number[]} scores
 * @property {boolean} [has_scores] false for a mechanism without scores
 * @property {string[]} [score_changes] parts that change the result of the score
 * @property {string} [normalizer] how the weights follow from the scores
 * @property {boolean[]} may_see
 * @property {number} temperature
 * @property {number[]} weights
 * @property {number[][]} values
 * @property {number[]} context
 * @property {string[]} [context_changes] parts that change the context
 * @property {number[] | null} [changed_context]
 * @property {number[]} added
 * @property {number[] | null} own_part
 * @property {number[] | null} before_norm
 * @property {number[] | null} after_norm
 * @property {{ answer: string, probability: number, state: number[], classes: string[], logits: number[], probabilities: number[] } | null} answered
 */

const MOST_KEYS = 24; // keys whose scores are listed
const MOST_ANSWERS = 8;

export class Sum {
  /** @param {Explain} explain @param {Actions} actions */
  constructor(explain, actions) {
    this.actions = actions;
    this.title = new Part();
    this.score = new Part();
    this.row = new Part();
    this.context = new Part();
    this.answer = new Part();
    /** @type {unknown[] | null} */
    this.askedFor = null; // the last request
    /** @type {{ scene: Scene, colours: Palette } | null} */
    this.shown = null;
    this.slider = node("input", { type: "range", min: -1, max: 1, step: 0.02, value: 0, "data-name": "temperature" });
    this.said = node("span", { class: "number" });
    this.element = node("section", { class: "sum", "aria-label": "Computation of this weight" });
    const columns = node("div", { class: "columns" });
    const [left, right] = [node("div"), node("div")];
    left.append(this.score.element, this.heating(), this.row.element); // dragged elements stay in place
    right.append(this.context.element, this.answer.element);
    columns.append(left, right);
    this.element.append(this.title.element, columns);
    this.slider.addEventListener("input", () => this.heat(10 ** Number(this.slider.value)));
    /** @type {Explained | null} */
    this.found = null;
    this.ask = latest(async (/** @type {Which} */ which) => {
      try {
        this.found = await explain(which);
        this.draw();
      } catch (error) {
        this.title.show([error], () => [node("p", { role: "alert" }, messageOf(error))]);
      }
    });
  }

  /** Explains the selected weight, or the largest of its row. @param {Scene} scene @param {Palette} colours */
  show(scene, colours) {
    this.shown = { scene, colours };
    const { temperature } = scene.state;
    if (Math.abs(Number(this.slider.value) - Math.log10(temperature)) > 0.011)
      this.slider.value = String(Math.log10(temperature));
    this.said.textContent = temperature.toFixed(2);
    const which = selectedWeight(scene);
    const asked = [scene.map, ...Object.values(which)];
    if (this.askedFor?.length === asked.length && this.askedFor.every((value, index) => value === asked[index])) {
      return this.draw();
    }
    this.askedFor = asked;
    this.ask(which);
  }

  /** @param {number} temperature */
  heat(temperature) {
    this.actions.choose({ temperature: Math.abs(temperature - 1) < 0.01 ? 1 : Number(temperature.toPrecision(3)) });
  }

  draw() {
    const { found, shown } = this;
    if (!found || !shown) return;
    const { colours } = shown;
    /** @param {number} key */
    const choose = (key) => this.actions.choose({ key, query: found.query });
    keepFocus(this.element, () => {
      const { head, query, key, weights } = found;
      const [from, to] = [found.query_label, found.key_labels[key]].map((label) => isolate(plainToken(label)));
      const title = `How head ${head} gives “${from}” (step ${query}) the weight ${weights[key].toFixed(4)} on “${to}” (step ${key})`;
      this.title.show([found], () => [node("h2", {}, title), ...temperatureNote(found)]);
      this.score.show([found, colours], () => scoreSection(found, colours));
      this.context.show([found, colours], () => contextSection(found, colours));
      this.row.show([found, colours], () => rowSection(found, colours, choose));
      this.answer.show([found, colours], () => answerSection(found, colours));
    });
  }

  /** What the temperature is dragged by. */
  heating() {
    const bar = node("div", { class: "bar" });
    const label = node("label", {}, "softmax temperature");
    label.append(this.slider, this.said);
    const reset = button("temperature 1", () => this.heat(1));
    bar.append(label, reset);
    return bar;
  }
}

/** A note if the temperature differs from the model's. @param {Explained} found */
function temperatureNote({ temperature, own_part, answered }) {
  if (temperature === 1) return [];
  const text = `These are values for a softmax temperature of ${temperature} in this head; the rest of the page shows the unchanged model.`;
  const remark = own_part || answered ? "" : " The effect on later values requires the model: use regard show.";
  return [node("p", { role: "status" }, text + remark)];
}

/** @param {Explained} explanation @param {Palette} colours */
function scoreSection(explanation, colours) {
  const { steps, scale, scores, key, has_scores, score_changes } = explanation;
  const vectors = Object.entries(steps);
  const title = heading("1. Score: similarity of query and key", `(D = ${vectors[0]?.[1].length ?? "?"})`);
  if (has_scores === false) return [title, node("p", {}, "This mechanism has no score.")];
  const unknown = `The steps of this score were not recorded; it is ${scores[key].toFixed(4)}.`;
  if (!vectors.length) return [title, node("p", {}, unknown)];
  const last = vectors[vectors.length - 1];
  const total = last[1].reduce((sum, value) => sum + value, 0);
  const scaled = scale === 1 ? "" : ` × ${scale.toFixed(4)} (scale) = ${(total * scale).toFixed(4)}`;
  const text = score_changes?.length
    ? `; changed by ${score_changes.join(", ")} to ${scores[key].toFixed(4)}, the score.`
    : ": the score.";
  return [
    title,
    strips(vectors, colours),
    node("p", { class: "number" }, `Σ ${last[0]} = ${total.toFixed(4)}${scaled}${text}`),
  ];
}

/** @param {Explained} explanation @param {Palette} colours @param {(key: number) => void} choose */
function rowSection(explanation, colours, choose) {
  const { scores, may_see, weights, key_labels, key, temperature, normalizer } = explanation;
  const order = [...weights.keys()];
  const named =
    order.length > MOST_KEYS
      ? order.sort((first, second) => weights[second] - weights[first]).slice(0, MOST_KEYS)
      : order;
  if (!named.includes(key)) named.push(key);
  const largest = Math.max(...weights, 1e-9);
  const rows = named.map((index) => {
    const chosen = button(`${plainToken(key_labels[index])} (${index})`, () => choose(index));
    chosen.dataset.name = `sum-key-${index}`;
    const score = may_see[index] ? scores[index].toFixed(4) : "masked";
    const divided = may_see[index] ? (scores[index] / temperature).toFixed(4) : "";
    const bar = barCell((weights[index] / largest) * BAR, cssColour(colours.at(0.65)));
    return [chosen, score, ...(temperature === 1 ? [] : [divided]), weights[index].toFixed(4), bar];
  });
  const names = ["key", "score", ...(temperature === 1 ? [] : [`÷ ${temperature}`]), "weight", ""];
  const left = order.length - named.length;
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const text = `The ${weights.length} weights sum to ${total.toFixed(4)}.${left > 0 ? ` ${left} smaller ones are not listed.` : ""}`;
  return [
    heading(`2. Weights: mask, then ${normalizer ?? "softmax over the row"}`, `(Tk = ${weights.length})`),
    scrollBox(table(names, rows, named.indexOf(key)), "scores and weights of the row"),
    node("p", {}, text),
  ];
}

/** @param {Explained} explanation @param {Palette} colours */
function contextSection(explanation, colours) {
  const { values, weights, key, context, own_part, added, before_norm, after_norm } = explanation;
  const { context_changes, changed_context } = explanation;
  const value = values[key];
  /** @type {[string, number[]][]} */
  const vectors = [
    ["v, value of the key", value],
    [`${weights[key].toFixed(4)} · v`, value.map((component) => weights[key] * component)],
    ["context: Σ of all keys", context],
  ];
  if (changed_context) vectors.push([`after ${context_changes?.join(", ")}`, changed_context]);
  if (own_part) vectors.push(["added by this head", own_part], ["added by all heads", added]);
  if (before_norm && after_norm) vectors.push(["with the residual", before_norm], ["normalized", after_norm]);
  return [
    heading("3. Context: weights times values", `(Dv = ${value.length}, D = ${added.length})`),
    strips(vectors, colours),
  ];
}

/** @param {Explained} found @param {Palette} colours */
function answerSection({ answered }, colours) {
  if (!answered) return [];
  const { state, classes, logits, probabilities, answer, probability } = answered;
  const rows = classes.slice(0, MOST_ANSWERS).map((label, index) => {
    const bar = barCell(probabilities[index] * BAR, cssColour(colours.at(0.65)));
    return [plainToken(label), logits[index].toFixed(4), probabilities[index].toFixed(4), bar];
  });
  const title = `4. Answer at this step: ${isolate(plainToken(answer))}, probability ${probability.toFixed(4)}`;
  return [
    heading(title, `(${classes.length} likeliest classes)`),
    strips([["state after later layers", state]], colours),
    node("p", {}, "logits = W · state + b; probabilities = softmax over all classes"),
    scrollBox(table(["answer", "logit", "probability", ""], rows, classes.indexOf(answer)), "logits and probabilities"),
  ];
}

// The weight to explain.

/** @typedef {{ layer: string, head: number, output: number, key: number, temperature: number }} Which */

/** The selected weight, or the largest of its row. @param {Scene} scene @returns {Which} */
export function selectedWeight({ layer, matrix, head, state }) {
  const key = state.key ?? matrix.strongest(head, state.query);
  return { layer: layer.name, head, output: state.query, key, temperature: state.temperature };
}

/** The shell command that prints the computation of a weight. @param {Scene} scene */
export function explainCommand(scene) {
  const { layer, head, output, key } = selectedWeight(scene);
  const { task, input } = scene.map;
  const quoted = `'${input.replaceAll("'", "'\\''")}'`;
  return `regard explain ${task || "RUN"} --input ${quoted} --layer ${layer} --head ${head} --output ${output} --key ${key}`;
}

/**
 * How to print what a page does not contain.
 * @param {string} command @param {string} [what]
 * @param {string} [where] another place that shows it
 */
export function commandHint(command, what = "the computation of weights", where = "") {
  const text = `This page does not contain ${what}. For a run of Regard, `;
  const element = node("p", { class: "quiet hinted" }, text);
  element.append(node("code", {}, command), ` prints it${where}.`);
  return element;
}

// Why a head looks there: what earlier parts of the model wrote into the query and the key of a weight.

/**
 * What one part of the model wrote, and its part of the score.
 * @typedef {{ kind: string, text: string, value: number }} Written
 */

/**
 * The score of a weight, as in `regard.interpret.why.Why`.
 * @typedef {object} Reasons
 * @property {number} head
 * @property {number} query
 * @property {number} key
 * @property {string} query_label
 * @property {string} key_label
 * @property {number} score
 * @property {Written[]} query_parts the largest first
 * @property {Written[]} key_parts
 * @property {Record<string, number>} additions
 * @property {string} fixed
 */

/** @typedef {(which: Which) => Promise<Reasons>} AskWhy */

const MOST_PARTS = 6; // listed parts of a query or key
const LONGEST_PART = 90; // pixels of the longest bar
export const WHAT = "what earlier parts of the model wrote into the query and the key";
const EQUAL = "A part that adds the same to the score of every key of a row does not change the weights.";

export class Why {
  /** @param {AskWhy} ask */
  constructor(ask) {
    this.body = new Part();
    this.element = node("section", { class: "sum", "aria-label": "Why it looks there" });
    this.element.append(this.body.element);
    /** @type {unknown[]} */
    this.askedFor = [];
    /** @type {Reasons | Error | null} */
    this.found = null;
    /** @type {Palette | null} */
    this.colours = null;
    this.ask = latest(async (/** @type {Which} */ which) => {
      try {
        this.found = await ask(which);
      } catch (error) {
        this.found = error instanceof Error ? error : new Error(String(error));
      }
      this.draw();
    });
  }

  /** @param {Scene} scene @param {Palette} colours */
  show(scene, colours) {
    this.colours = colours;
    const which = selectedWeight(scene);
    const asked = [scene.map, which.layer, which.head, which.output, which.key];
    if (asked.every((value, index) => value === this.askedFor[index])) return this.draw();
    this.askedFor = asked;
    this.ask(which);
  }

  draw() {
    const { found, colours } = this;
    if (!found || !colours) return;
    keepFocus(this.element, () => {
      this.body.show([found, colours], () =>
        found instanceof Error ? [node("p", { role: "alert" }, found.message)] : reasons(found, colours),
      );
    });
  }
}

/** @param {Reasons} found @param {Palette} colours */
function reasons({ head, query, key, query_label, key_label, score, fixed, additions, ...parts }, colours) {
  const [from, to] = [isolate(plainToken(query_label)), isolate(plainToken(key_label))];
  const title = `Why head ${head} gives “${from}” (step ${query}) and “${to}” (step ${key}) the score ${score.toFixed(4)}`;
  const columns = node("div", { class: "columns" });
  columns.append(
    ...side("Written into the query", parts.query_parts, colours),
    ...side("Written into the key", parts.key_parts, colours),
  );
  const added = Object.entries(additions).map(([name, value]) => `${name} ${signedNumber(value)}`);
  return [
    node("h2", {}, title),
    columns,
    ...(added.length ? [node("p", {}, `Added to the score: ${added.join(", ")}.`)] : []),
    node("p", { class: "quiet" }, `Fixed: ${fixed}. ${EQUAL}`),
  ];
}

/** @param {string} title @param {Written[]} parts @param {Palette} colours */
function side(title, parts, colours) {
  const section = node("div");
  const largest = Math.max(...parts.map(({ value }) => Math.abs(value)), 1e-9);
  const rows = parts.slice(0, MOST_PARTS).map(({ text, value }) => partRow(text, value, largest, colours));
  const others = parts.slice(MOST_PARTS);
  const sum = others.reduce((total, { value }) => total + value, 0);
  if (others.length) rows.push(partRow(`${others.length} other${others.length > 1 ? "s" : ""}`, sum, largest, colours));
  section.append(
    heading(title, `(${parts.length} part${parts.length > 1 ? "s" : ""})`),
    scrollBox(table([], rows), title),
  );
  return [section];
}

/**
 * @param {string} text @param {number} value
 * @param {number} largest the value of the longest bar
 * @param {Palette} colours
 */
function partRow(text, value, largest, colours) {
  const pixels = Math.min(Math.abs(value) / largest, 1) * LONGEST_PART;
  const name = node("th", { scope: "row", class: "part" }, text);
  return [name, signedNumber(value), barCell(pixels, cssColour(colours.change(value < 0 ? -1 : 1)))];
}

// Numbers as bars: vectors, and shares in tables.

const MOST_NUMBERS = 5; // numbers of a vector shown as text
const STRIP = { width: 300, height: 30 }; // size of a vector in pixels
const BAR = 120; // pixels of the longest bar

/** @param {string} text @param {string} shape */
function heading(text, shape) {
  const element = node("h3", {}, `${text} `);
  element.append(node("span", { class: "quiet" }, shape));
  return element;
}

/**
 * Vectors as bars and numbers, each with its own scale.
 * @param {[string, number[]][]} vectors @param {Palette} colours
 */
function strips(vectors, colours) {
  const list = node("dl", { class: "strips" });
  for (const [name, values] of vectors) {
    const largest = values.reduce((largest, value) => Math.max(largest, Math.abs(value)), 1e-9);
    const value = node("dd");
    const numbers = values
      .slice(0, MOST_NUMBERS)
      .map((value) => value.toFixed(3).replace(/^-(0\.0+)$/, "$1")) // no negative zeros
      .join("  ");
    const more =
      values.length > MOST_NUMBERS ? `  … ${values.length}\u00a0in\u00a0all, ±\u00a0${largest.toFixed(3)}` : "";
    value.append(strip(name, values, largest, colours), node("span", { class: "number quiet" }, numbers + more));
    list.append(node("dt", {}, name), value);
  }
  return list;
}

/**
 * Numbers as bars, positive ones upwards.
 * @param {string} name @param {number[]} values
 * @param {number} largest the value of a full bar
 * @param {Palette} colours
 */
function strip(name, values, largest, colours) {
  const { width, height } = STRIP;
  const low = Math.min(...values).toFixed(3);
  const high = Math.max(...values).toFixed(3);
  const label = `${name}: ${values.length} numbers from ${low} to ${high}`;
  const picture = svg("svg", { width, height, role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}` });
  const step = Math.min(18, width / values.length);
  values.forEach((value, index) => {
    const tall = (Math.abs(value) / largest) * (height / 2);
    const y = value < 0 ? height / 2 : height / 2 - tall;
    const fill = cssColour(colours.change(value < 0 ? -1 : 1));
    const wide = Math.max(step - (step > 3 ? 1 : 0), 0.5);
    const bar = svg("rect", { x: index * step, y, width: wide, height: tall, fill });
    bar.append(svg("title", {}, `${index}: ${value.toFixed(4)}`));
    picture.append(bar);
  });
  picture.append(
    svg("line", { x1: 0, x2: width, y1: height / 2, y2: height / 2, stroke: "currentColor", "stroke-opacity": 0.5 }),
  );
  return picture;
}

// The computation of a weight and its effect: query and key, score, softmax, values, context, answer.

import { barCell, heading, headRow, scrollBox, strips } from "./bars.js";
import { button, keepFocus, node, Part } from "./dom.js";
import { isolate, tokenLabel } from "./labels.js";
import { latest } from "./latest.js";
import { selectedWeight } from "./selected-weight.js";

/** @import { Explained } from "./explanation.js" */
/** @import { Palette } from "./colours.js" */
/** @import { Actions, Scene } from "./scene.js" */
/** @import { Which } from "./selected-weight.js" */

/** @typedef {(which: Which) => Promise<Explained>} Explain */

const MOST_KEYS = 24; // keys whose scores are listed
const MOST_ANSWERS = 8;

export class Sum {
  /**
   * @param {Explain} explain
   * @param {Actions} actions
   */
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
    this.slider = node("input", {
      type: "range",
      min: -1,
      max: 1,
      step: 0.02,
      value: 0,
      "data-name": "temperature",
    });
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
        const message = error instanceof Error ? error.message : String(error);
        this.title.show([error], () => [node("p", { role: "alert" }, message)]);
      }
    });
  }

  /**
   * Explains the selected weight, or the largest of its row.
   *
   * @param {Scene} scene
   * @param {Palette} colours
   */
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
    this.actions.choose({
      temperature: Math.abs(temperature - 1) < 0.01 ? 1 : Number(temperature.toPrecision(3)),
    });
  }

  draw() {
    const { found, shown } = this;
    if (!found || !shown) return;
    const { colours } = shown;
    /** @param {number} key */
    const choose = (key) => this.actions.choose({ key, query: found.query, focus: found.head });
    keepFocus(this.element, () => {
      this.title.show([found], () => [node("h2", {}, explanationTitle(found)), ...temperatureNote(found)]);
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
    bar.append(
      label,
      button("temperature 1", () => this.heat(1)),
    );
    return bar;
  }
}

/**
 * A note if the temperature differs from the model's.
 *
 * @param {Explained} found
 */
function temperatureNote({ temperature, own_part, answered }) {
  if (temperature === 1) return [];
  const text = `These are values for a softmax temperature of ${temperature} in this head; the rest of the page shows the unchanged model.`;
  const remark = own_part || answered ? "" : " The effect on later values requires the model: use regard show.";
  return [node("p", { role: "status" }, text + remark)];
}

/** @param {Explained} found */
function explanationTitle({ head, query_label, query, key_labels, key, weights }) {
  const [from, to] = [isolate(tokenLabel(query_label)), isolate(tokenLabel(key_labels[key]))];
  return `How head ${head} gives ${from} (step ${query}) the weight ${weights[key].toFixed(4)} on ${to} (step ${key})`;
}

/**
 * @param {Explained} explanation
 * @param {Palette} colours
 */
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

/**
 * @param {Explained} explanation
 * @param {Palette} colours
 * @param {(key: number) => void} choose
 */
function rowSection(explanation, colours, choose) {
  const { scores, may_see, weights, key_labels, key, temperature, normalizer } = explanation;
  const order = [...weights.keys()];
  const named =
    order.length > MOST_KEYS
      ? order.sort((first, second) => weights[second] - weights[first]).slice(0, MOST_KEYS)
      : order;
  if (!named.includes(key)) named.push(key);
  const largest = Math.max(...weights, 1e-9);
  const table = node("table");
  table.append(headRow("key", "score", ...(temperature === 1 ? [] : [`÷ ${temperature}`]), "weight", ""));
  const body = node("tbody");
  for (const index of named) {
    const row = node("tr", { class: index === key ? "on" : undefined });
    const name = node("th", { scope: "row" });
    const chosen = button(`${tokenLabel(key_labels[index])} (${index})`, () => choose(index));
    chosen.dataset.name = `sum-key-${index}`;
    name.append(chosen);
    const score = may_see[index] ? scores[index].toFixed(4) : "masked";
    const divided = may_see[index] ? (scores[index] / temperature).toFixed(4) : "";
    row.append(name, node("td", {}, score), ...(temperature === 1 ? [] : [node("td", {}, divided)]));
    row.append(node("td", {}, weights[index].toFixed(4)), barCell(weights[index] / largest, colours));
    body.append(row);
  }
  table.append(body);
  const left = order.length - named.length;
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const text = `The ${weights.length} weights sum to ${total.toFixed(4)}.${left > 0 ? ` ${left} smaller ones are not listed.` : ""}`;
  return [
    heading(`2. Weights: mask, then ${normalizer ?? "softmax over the row"}`, `(Tk = ${weights.length})`),
    scrollBox(table, "scores and weights of the row"),
    node("p", {}, text),
  ];
}

/**
 * @param {Explained} explanation
 * @param {Palette} colours
 */
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

/**
 * @param {Explained} found
 * @param {Palette} colours
 */
function answerSection({ answered }, colours) {
  if (!answered) return [];
  const { state, classes, logits, probabilities, answer, probability } = answered;
  const table = node("table");
  table.append(headRow("answer", "logit", "probability", ""));
  const body = node("tbody");
  classes.slice(0, MOST_ANSWERS).forEach((label, index) => {
    const row = node("tr", { class: label === answer ? "on" : undefined });
    row.append(node("th", { scope: "row" }, tokenLabel(label)), node("td", {}, logits[index].toFixed(4)));
    row.append(node("td", {}, probabilities[index].toFixed(4)), barCell(probabilities[index], colours));
    body.append(row);
  });
  table.append(body);
  const title = `4. Answer at this step: ${isolate(tokenLabel(answer))}, probability ${probability.toFixed(4)}`;
  return [
    heading(title, `(${classes.length} likeliest classes)`),
    strips([["state after later layers", state]], colours),
    node("p", {}, "logits = W · state + b; probabilities = softmax over all classes"),
    scrollBox(table, "logits and probabilities"),
  ];
}

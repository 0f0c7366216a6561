// A weight that can be dragged: the model answers continuously, and a plot shows the probability against the
// weight.

import { node, Part, svg } from "./dom.js";
import { isolate } from "./labels.js";

/** @import { InterventionData, MapData } from "./data.js" */
/** @import { Placed, Scene } from "./scene.js" */

/** @typedef {{ weight: number, probability: number, answer: string }} Point */

const CURVE_SIZE = { width: 280, height: 132 };
const EDGE = { left: 60, right: 12, top: 16, bottom: 34 }; // pixels around the plot

export class Dragged {
  /** @param {(to: number) => void} touch sets the weight */
  constructor(touch) {
    this.slider = node("input", { type: "range", min: 0, max: 1, step: 0.01, "data-name": "weight" });
    this.slider.addEventListener("input", () => {
      this.said.textContent = Number(this.slider.value).toFixed(2);
      touch(Number(this.slider.value));
    });
    this.name = node("span");
    this.said = node("span", { class: "number" });
    const label = node("label");
    label.append(this.name, this.slider, this.said);
    this.curve = new Part();
    this.element = node("div", { class: "bar" });
    this.element.append(label, this.curve.element);
    /** @type {number | null} what the weight is set to, be it answered or not */
    this.to = null;
    this.subject = ""; // identifies the weight of the points
    /** @type {Point[]} */
    this.points = [];
  }

  /**
   * @param {Scene | null} scene null: no weight can be dragged
   * @param {Placed | null} place
   * @param {readonly InterventionData[]} interventions
   */
  show(scene, place, interventions) {
    this.element.hidden = !scene || !place;
    if (!scene || !place) return;
    const { map, matrix } = scene;
    const weight = matrix.at(place.heads[0], place.query, place.key);
    const own = interventions.find((change) => isSamePlace(change, place));
    this.to = typeof own?.to === "number" ? own.to : null;
    const value = this.to ?? weight;
    if (Math.abs(Number(this.slider.value) - value) > 0.005) this.slider.value = String(value);
    this.said.textContent = value.toFixed(2);
    const [from, to] = [isolate(matrix.queries[place.query]), isolate(matrix.keys[place.key])];
    this.name.textContent = `weight of ${from} on ${to}`;
    const others = interventions.filter((change) => change !== own);
    const subject = JSON.stringify([map.input, place, others]);
    if (subject !== this.subject) this.points = [];
    this.subject = subject;
    this.points = insertPoint(this.points, { weight, ...answerAt(map, scene.layer.kind, place.query) });
    this.curve.show([map, this.points.length], () =>
      own && this.points.length > 1 ? [drawPlot(this.points, weight)] : [],
    );
  }
}

/**
 * @param {InterventionData} change
 * @param {Placed} place
 */
function isSamePlace({ layer, heads, to, query, key }, place) {
  const same = layer === place.layer && heads[0] === place.heads[0];
  return same && typeof to === "number" && query === place.query && key === place.key;
}

/**
 * The answer at an output step and its probability; the whole answer if the queries are inputs.
 *
 * @param {Pick<MapData, "prediction" | "outputs" | "probabilities">} map
 * @param {string} kind kind of the layer
 * @param {number} query
 */
export function answerAt({ prediction, outputs, probabilities }, kind, query) {
  if (kind === "encoder") {
    const answer = Array.isArray(prediction) ? prediction.join(" ") : (prediction ?? "");
    return { answer, probability: probabilities.reduce((product, probability) => product * probability, 1) };
  }
  const answer = Array.isArray(prediction) ? String(prediction[query]) : (outputs[query] ?? "");
  return { answer, probability: probabilities[query] ?? 0 };
}

/**
 * Points sorted by weight, with one more that replaces a point of the same weight.
 *
 * @param {Point[]} points
 * @param {Point} point
 */
export function insertPoint(points, point) {
  const others = points.filter((old) => Math.abs(old.weight - point.weight) > 1e-4);
  return [...others, point].sort((first, second) => first.weight - second.weight);
}

/**
 * The plot of probability against weight; where the answer changes, the line is interrupted and labelled.
 *
 * @param {Point[]} points
 * @param {number} weight the current weight
 */
function drawPlot(points, weight) {
  const { width, height } = CURVE_SIZE;
  const label = points.map(
    (point) => `${point.weight.toFixed(2)}: ${point.probability.toFixed(2)} for ${point.answer}`,
  );
  const name = `probability against weight; ${label.join(", ")}`;
  const picture = svg("svg", { width, height, role: "img", "aria-label": name, class: "curve" });
  /** @param {number} at */
  const x = (at) => EDGE.left + at * (width - EDGE.left - EDGE.right);
  /** @param {number} share */
  const y = (share) => height - EDGE.bottom - share * (height - EDGE.top - EDGE.bottom);
  const side = { class: "axis", "text-anchor": "middle" };
  const axis = { stroke: "currentColor", "stroke-opacity": 0.5 };
  picture.append(svg("line", { ...axis, x1: x(0), x2: x(1), y1: y(0), y2: y(0) }));
  picture.append(svg("line", { ...axis, x1: x(0), x2: x(0), y1: y(0), y2: y(1) }));
  for (const share of [0, 1])
    picture.append(svg("text", { x: EDGE.left - 5, y: y(share) + 4, "text-anchor": "end" }, `${100 * share}%`));
  picture.append(
    svg("text", { x: x(0), y: y(0) + 14, "text-anchor": "middle" }, "0"),
    svg("text", { x: x(1), y: y(0) + 14, "text-anchor": "middle" }, "1"),
    svg("text", { ...side, x: x(0.5), y: height - 4 }, "weight"),
    svg("text", { ...side, transform: `translate(14 ${y(0.5)}) rotate(-90)` }, "probability"),
  );
  groupByAnswer(points).forEach((run) => {
    const line = run.map((point) => `${x(point.weight).toFixed(1)},${y(point.probability).toFixed(1)}`).join(" ");
    picture.append(svg("polyline", { points: line, fill: "none", stroke: "currentColor", "stroke-width": 1.5 }));
    const middle = run[Math.floor(run.length / 2)];
    picture.append(
      svg(
        "text",
        { x: x(middle.weight), y: Math.max(12, y(middle.probability) - 5), "text-anchor": "middle" },
        middle.answer,
      ),
    );
  });
  const now = points.find((point) => Math.abs(point.weight - weight) <= 1e-4);
  if (now)
    picture.append(svg("circle", { cx: x(now.weight), cy: y(now.probability), r: 4, fill: "var(--focus)" }));
  return picture;
}

/**
 * Groups of consecutive points with the same answer.
 *
 * @param {Point[]} points
 */
function groupByAnswer(points) {
  /** @type {Point[][]} */
  const runs = [];
  for (const point of points) {
    const last = runs[runs.length - 1];
    if (last && last[0].answer === point.answer) last.push(point);
    else runs.push([point]);
  }
  return runs;
}

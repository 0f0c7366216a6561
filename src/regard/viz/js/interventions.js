// Interventions: heads switched off or made uniform, and single weights.

import { button, node, Part, secondaryText, svg, withIcon } from "./dom.js";
import { Matrix } from "./matrix.js";
import { headTag, isolate } from "./labels.js";
import { Scale } from "./scale.js";

/** @import { InterventionData, MapData } from "./data.js" */
/** @import { Actions, Placed, Scene } from "./scene.js" */

/**
 * The interventions with one more, which replaces an older one of the same head or weight; `undo`: without it.
 * @param {readonly InterventionData[]} interventions @param {InterventionData} change @param {boolean} undo
 */
export function updateInterventions(interventions, change, undo) {
  const others = interventions.filter((old) => !sameTarget(old, change));
  return undo ? others : [...others, change];
}

// Whether two interventions concern the same head or weight.
/** @param {InterventionData} first @param {InterventionData} second */
function sameTarget(first, second) {
  if (first.layer !== second.layer || first.heads[0] !== second.heads[0]) return false;
  if (typeof first.to === "string" || typeof second.to === "string") return typeof first.to === typeof second.to;
  return first.query === second.query && first.key === second.key;
}

/** What can be done to the selected head and weight; the slider of a weight stays while it is dragged. */
export class TouchBar {
  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    this.heads = new Part("bar");
    this.dragged = new Dragged((to) => {
      if (!this.place) return;
      actions.preview(this.place, to);
      actions.touch({ ...this.place, to }, false);
    });
    /** @type {Placed | null} */
    this.place = null;
    this.element = node("div", { class: "touch" });
    this.element.append(this.heads.element, this.dragged.element);
  }

  /** @param {Scene} scene @param {readonly InterventionData[]} interventions active interventions */
  show(scene, interventions) {
    const { actions } = this;
    const { layer, state, derived } = scene;
    const { query, key, head } = state;
    const earlier = isEarlySnapshot(scene);
    this.heads.show([layer.name, head, earlier, derived, interventions], () => {
      if (earlier)
        return [
          secondaryText("This is the model during training; interventions apply to the trained one."),
          button("to the trained model", () => actions.choose({ frame: null })),
        ];
      if (derived) return [secondaryText("A rollout cannot be changed: choose Matrix or Lines.")];
      return switches(scene, interventions, actions);
    });
    const can = !earlier && !derived && !state.words && key !== null && state.mode !== "picture";
    this.place = can ? { layer: layer.name, heads: [head], query, key } : null;
    this.dragged.show(this.place && scene, this.place, interventions);
  }

  /** Where more was touched since than is answered, show the weight as it is dragged. */
  ahead() {
    const { actions, dragged, place } = this;
    if (place && dragged.to !== null) actions.preview(place, dragged.to);
  }
}

/**
 * The number of active interventions, with buttons that undo them.
 * @param {Scene} scene @param {readonly InterventionData[]} interventions
 * @param {Actions | null} actions null: nothing can be undone
 */
export function changeMark(scene, interventions, actions) {
  if (!interventions.length || isEarlySnapshot(scene)) return [];
  const kinds = interventions.map(({ to }) => (typeof to === "string" ? `head ${to}` : "weight set"));
  const texts = [...new Set(kinds)].map((kind) => {
    const count = kinds.filter((candidate) => candidate === kind).length;
    return `${count} ${count > 1 ? kind.replace(/^(head|weight)/, "$1s") : kind}`;
  });
  const box = node("div", { class: "mark", role: "status" });
  box.append(node("b", {}, texts.join(", ")));
  if (actions) {
    box.append(withIcon(button("undo", actions.undo), "undo"));
    if (interventions.length > 1) box.append(button("undo all", actions.untouch));
  }
  return [box];
}

// Whether an early snapshot is displayed; the last one is the model itself.
/** @param {Pick<Scene, "data" | "state">} scene */
function isEarlySnapshot({ data, state }) {
  return !!data.playback && state.frame !== null && state.frame < data.playback.frames.length - 1;
}

const SWITCHES = { off: "Switch off", uniform: "Uniform" };

/** @param {Scene} scene @param {readonly InterventionData[]} interventions @param {Actions} actions */
function switches({ map, layer, state }, interventions, actions) {
  const name = node("span", {}, `Head ${headTag(map.layers, layer, state.head)}`);
  const buttons = /** @type {const} */ (["off", "uniform"]).map((to) => {
    const change = { layer: layer.name, heads: [state.head], to };
    const on = interventions.some((intervention) => intervention.to === to && sameTarget(intervention, change));
    const element = button(SWITCHES[to], () => actions.touch(change, on), on);
    element.dataset.name = to;
    return withIcon(element, to);
  });
  return [name, ...buttons];
}

// Preview of a dragged weight: its row is known before the model answers.

const MOST_COPIED = 250_000; // weights of a head; for more, the preview is skipped

/**
 * The scene with one weight set; other weights of its row keep their proportions, as in the model. Null if that is
 * not defined, or differences are displayed.
 * @param {Scene} scene @param {Placed} place @param {number} to @returns {Scene | null}
 */
export function previewScene(scene, { layer, heads, query, key }, to) {
  const { matrix, before, changes } = scene;
  const slice = matrix.slices[heads[0]];
  if (layer !== scene.layer.name || changes || !slice || slice.length > MOST_COPIED) return null;
  /** @param {Matrix} from */
  const set = (from) => setWeight(from.row(from.slices[heads[0]], query), key, to);
  const row = set(matrix) ?? (before && set(before));
  if (!row) return null;
  const slices = [...matrix.slices];
  slices[heads[0]] = slice.slice();
  slices[heads[0]].set(row, query * matrix.columns);
  const { queries, keys, relevant, names } = matrix;
  const changed = new Matrix(slices, queries, keys, relevant, false, names); // until the model answers
  const { name, aside } = scene.scale;
  const largest = Math.max(scene.scale.largest, to);
  const scale = new Scale(name, largest, aside, (shown) => (shown === changed ? [matrix, changed] : [shown]));
  return { ...scene, matrix: changed, scale, preview: true };
}

/**
 * A row with one weight set; null if the other weights are all 0 and cannot be scaled.
 * @param {Float32Array} row @param {number} key @param {number} to
 */
export function setWeight(row, key, to) {
  const others = row.reduce((sum, weight, index) => sum + (index === key ? 0 : weight), 0);
  if (others < 1e-4) return null;
  return row.map((weight, index) => (index === key ? to : (weight * (1 - to)) / others));
}

// A weight that can be dragged: the model answers continuously, and a plot shows the probability against the
// weight.

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
   * @param {Placed | null} place @param {readonly InterventionData[]} interventions
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

/** @param {InterventionData} change @param {Placed} place */
function isSamePlace({ layer, heads, to, query, key }, place) {
  const same = layer === place.layer && heads[0] === place.heads[0];
  return same && typeof to === "number" && query === place.query && key === place.key;
}

/**
 * The answer at an output step and its probability; the whole answer if the queries are inputs.
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
 * @param {Point[]} points @param {Point} point
 */
export function insertPoint(points, point) {
  const others = points.filter((old) => Math.abs(old.weight - point.weight) > 1e-4);
  return [...others, point].sort((first, second) => first.weight - second.weight);
}

/**
 * The plot of probability against weight; where the answer changes, the line is interrupted and labelled.
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
  if (now) picture.append(svg("circle", { cx: x(now.weight), cy: y(now.probability), r: 4, fill: "var(--focus)" }));
  return picture;
}

/** Groups of consecutive points with the same answer. @param {Point[]} points */
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

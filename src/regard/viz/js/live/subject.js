// A model that answers in the page, with the requests and answers of the explorer's server.

import {
  greedy,
  knownPair,
  longestAnswer,
  outputLabels,
  readLetters,
  readSource,
  relevantSteps,
  trueCounts,
  visible,
} from "./tasks.js";
import { queryForward, recurrentDecoder, transformerDecoder } from "./attention-layer.js";
import { largestIndex, probabilitiesOf } from "./rows.js";

/** @import { InterventionData, LayerData, MapData } from "../data.js" */
/** @import { Explained } from "../sum.js" */
/** @import { Which } from "../sum.js" */
/** @import { Change, Forward, QueryConfig, RecurrentConfig, TransformerConfig } from "./attention-layer.js" */
/** @import { Parameters } from "./rows.js" */
/** @import { Known, LetterTask, PairTask } from "./tasks.js" */

/** @typedef {{ name: string, title: string, kind: "encoder" | "decoder" | "cross" }} LayerTitle */

/**
 * What the page's file says of its model, besides the parameters; `model` has the task's kind.
 * @typedef {object} LiveData
 * @property {Record<string, unknown>} about as the explorer's
 * @property {"query" | "transformer" | "recurrent"} kind
 * @property {QueryConfig | TransformerConfig | RecurrentConfig} config
 * @property {LetterTask | PairTask} task
 * @property {LayerTitle[]} layers
 * @property {string | null} opens
 * @property {number | null} head
 * @property {number[]} seen fewest and most letters of the inputs in training
 * @property {Known[]} samples drawn inputs
 */

/** @typedef {{ input?: string | null, seed?: number, interventions?: InterventionData[] }} AttendQuestion */

/** @typedef {Forward & { map: MapData, names: (classes: number[]) => string[] }} Answered the map and what it was made from */

const MOST_CLASSES = 20; // of an answer in an explanation, the likeliest first

export class LiveSubject {
  /** @param {LiveData} data @param {Parameters} parameters */
  constructor(data, parameters) {
    this.data = data;
    this.parameters = parameters;
  }

  /** Answers a request of the explorer. @param {string} path @param {any} body */
  ask(path, body) {
    if (path === "api/run") return this.data.about;
    if (path === "api/attend") return this.attend(body);
    if (path === "api/explain") return this.explain(body);
    throw new Error("A live page cannot compute this: open the run with regard show.");
  }

  /** @param {AttendQuestion} question */
  attend({ input, seed = 0, interventions = [] }) {
    const { samples } = this.data;
    const text = input ?? samples[seed % samples.length].source;
    const { map } = this.run(text, interventions);
    if (!interventions.length) return { map };
    const original = this.run(text, []).map;
    return { map: { ...map, original_prediction: original.prediction }, original };
  }

  /** Runs the model on an input. @param {string} text @param {readonly Change[]} changes @returns {Answered} */
  run(text, changes) {
    return "vocabulary" in this.data.task
      ? this.answerLetters(this.data.task, text, changes)
      : this.answerText(this.data.task, text, changes);
  }

  /** @param {LetterTask} task @param {string} text @param {readonly Change[]} changes @returns {Answered} */
  answerLetters(task, text, changes) {
    const indices = readLetters(task, text);
    const forward = queryForward(this.parameters, /** @type {QueryConfig} */ (this.data.config), indices, changes);
    const input = indices.map((index) => task.vocabulary[index]);
    const letters = input.map(visible);
    const outputs = outputLabels(task, indices);
    const keys = this.parameters.find("rest") ? [...letters, "rest"] : letters;
    const relevant = relevantSteps(task, indices).flatMap((steps, output) =>
      steps.flatMap((on, step) => (on ? [[output, step]] : [])),
    );
    const [fewest, most] = this.data.seen;
    const count = letters.length - task.signals;
    const note =
      count < fewest
        ? `all training inputs have ${most} letters, this input has ${count}: expect errors; ` +
          "train with --vary_len for all lengths"
        : "";
    const labels = { encoder: [letters, letters], decoder: [outputs, outputs], cross: [outputs, keys] };
    const map = this.map(forward, changes, {
      input: input.join(""),
      prediction: forward.logits.map(largestIndex),
      truth: trueCounts(task, indices),
      outputs,
      written: forward.logits.map(largestIndex),
      note,
      labels,
      relevant,
      generated: false,
    });
    return { ...forward, map, names: (classes) => classes.map(String) };
  }

  /** @param {PairTask} task @param {string} text @param {readonly Change[]} changes @returns {Answered} */
  answerText(task, text, changes) {
    const { pieces, indices, unknown } = readSource(task, text);
    const { config, kind } = this.data;
    const decoder =
      kind === "transformer"
        ? transformerDecoder(this.parameters, /** @type {TransformerConfig} */ (config), indices, changes)
        : recurrentDecoder(this.parameters, /** @type {RecurrentConfig} */ (config), indices, changes);
    const forward = greedy(decoder, longestAnswer(pieces.length, task.most_target));
    const { tokens } = forward;
    const separator = task.unit === "words" ? " " : "";
    const prediction = tokens.map((token) => task.target[token]).join(separator);
    const inputs = [...pieces, "</s>"].map(visible);
    const outputs = [...tokens, 2].map((token) => visible(task.target[token]));
    const known = knownPair(task, text, this.data.samples);
    const labels = {
      encoder: [inputs, inputs],
      decoder: [outputs, ["<s>", ...outputs.slice(0, -1)]],
      cross: [outputs, inputs],
    };
    const [, longest] = this.data.seen;
    const notes = [];
    if (pieces.length > longest) {
      const lengths = `training used inputs of at most ${longest} ${task.unit}, but this input has ${pieces.length}`;
      notes.push(`${lengths}: expect errors`);
    }
    if (unknown.length) notes.push(`not in the model's vocabulary: ${unknown.map((piece) => `'${piece}'`).join(", ")}`);
    const map = this.map(forward, changes, {
      input: text,
      prediction,
      truth: known?.target ?? null,
      outputs,
      written: [...tokens, 2],
      note: notes.join("; "),
      labels,
      relevant:
        known?.target === prediction
          ? known.alignment.flatMap((steps, output) => steps.map((step) => [output, step]))
          : null,
      generated: true,
    });
    return { ...forward, map, names: (classes) => classes.map((index) => task.target[index]) };
  }

  /**
   * The map of an answer.
   * @param {Forward} forward @param {readonly Change[]} changes @param {object} answer
   * @param {string} answer.input
   * @param {number[] | string} answer.prediction
   * @param {number[] | string | null} answer.truth
   * @param {string[]} answer.outputs
   * @param {number[]} answer.written class of each output
   * @param {string} answer.note
   * @param {Record<string, string[][]>} answer.labels of queries and keys, by kind of layer
   * @param {number[][] | null} answer.relevant
   * @param {boolean} answer.generated whether the model writes its answer step by step
   * @returns {MapData}
   */
  map(forward, changes, { written, labels, relevant, generated, ...answer }) {
    const { data } = this;
    const layers = data.layers.map(({ name, title, kind }) => {
      const layer = forward.layers.find((trace) => trace.name === name);
      const [queries, keys] = labels[kind];
      const weights = (layer?.heads ?? []).map((head) => head.weights.map((row) => padded(row, keys.length)));
      /** @type {LayerData} */
      const filled = {
        ...{ name, title, kind, queries, keys, query_words: null, key_words: null, weights },
        ...{
          relevant: kind === "cross" ? relevant : null,
          square: 1,
          patches: null,
          written: generated && kind !== "encoder",
          names: null,
          measures: null,
        },
      };
      return filled;
    });
    return {
      ...answer,
      task: data.task.name,
      probabilities: forward.logits.map((row, step) => probabilitiesOf(row)[written[step]]),
      layers,
      opens: data.opens,
      head: data.head,
      picture: null,
      model: String(data.about.where),
      interventions: changes.flatMap((change) => (change.to === "temper" ? [] : [described(change)])),
      original_prediction: null,
    };
  }

  // The computation of a weight, as `regard.interpret.explanation.explain` returns it.
  /** @param {AttendQuestion & Which} question @returns {Explained} */
  explain({ input, interventions = [], layer: name, head, output, key, temperature }) {
    /** @type {Change[]} */
    const tempered = temperature === 1 ? [] : [{ layer: name, heads: [head], to: "temper", temperature }];
    const answered = this.run(String(input), [...interventions, ...tempered]);
    const shown = answered.map.layers.find((layer) => layer.name === name);
    const layer = answered.layers.find((trace) => trace.name === name);
    if (!shown || !layer) throw new Error(`layer '${name}' does not exist`);
    const trace = layer.heads[head];
    const seen = trace.weights[output].length; // keys that the query may attend to
    const query = trace.queries[output];
    const projected = layer.score.query(query);
    const steps = layer.score.steps(query, trace.keys[key], projected);
    const own = layer.ownPart(head, output);
    return {
      query_label: shown.queries[output],
      key_labels: shown.keys,
      query: output,
      key,
      head,
      steps: Object.fromEntries(Object.entries(steps).map(([step, numbers]) => [step, [...numbers]])),
      scale: layer.score.scale(query.length),
      scores: trace.keys.map((other) => layer.scoreOf(query, other, projected)),
      has_scores: true,
      score_changes: [],
      normalizer: "softmax over the row",
      may_see: trace.keys.map((_, index) => index < seen),
      temperature,
      weights: padded(trace.weights[output], trace.keys.length),
      values: trace.values.map((value) => [...value]),
      context: [...trace.contexts[output]],
      context_changes: [],
      changed_context: null,
      added: [...layer.added[output]],
      own_part: own && [...own],
      before_norm: layer.norm && [...layer.norm.before[output]],
      after_norm: layer.norm && [...layer.norm.after[output]],
      answered: shown.kind === "encoder" ? null : answerOf(answered, output),
    };
  }
}

/** @param {Answered} answered @param {number} output */
function answerOf({ map, states, logits, names }, output) {
  const probabilities = probabilitiesOf(logits[output]);
  const order = [...probabilities.keys()].sort((first, second) => probabilities[second] - probabilities[first]);
  const likely = order.slice(0, MOST_CLASSES);
  return {
    answer: Array.isArray(map.prediction) ? String(map.prediction[output]) : map.outputs[output],
    probability: map.probabilities[output],
    state: [...states[output]],
    classes: names(likely),
    logits: likely.map((index) => logits[output][index]),
    probabilities: likely.map((index) => probabilities[index]),
  };
}

/** @param {Float64Array} row @param {number} count */
function padded(row, count) {
  return Array.from({ length: count }, (_, index) => row[index] ?? 0);
}

/** @param {InterventionData} change */
function described({ layer, heads, to, query, key }) {
  const name = `${layer}: head${heads.length === 1 ? "" : "s"} ${heads.join(", ")}`;
  if (typeof to === "string") return `${name} ${to}`;
  return `${name}, weight of query ${query} on key ${key} set to ${Number(to.toPrecision(6))}`;
}

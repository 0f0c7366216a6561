// An attention layer that reads keys and queries step by step and keeps all its intermediate values.

import { added, joined, multiplied, probabilitiesOf, product, sumOf, wave } from "./rows.js";

/** @import { InterventionData } from "../data.js" */
/** @import { Parameters, Rows } from "./rows.js" */

/**
 * @typedef {object} HeadTrace
 * @property {Rows} queries as the score gets them
 * @property {Rows} keys prepared by the score
 * @property {Rows} values
 * @property {Rows} weights of each query
 * @property {Rows} contexts of each query
 */

/** @typedef {InterventionData | { layer: string, heads: number[], to: "temper", temperature: number }} Change of weights */

/**
 * A score, as in `regard.attention.scores`: it is `scale` times the sum of the last vector of `steps`.
 *
 * @typedef {object} Score
 * @property {(query: Float64Array) => Float64Array} query work that depends on the query alone
 * @property {(key: Float64Array) => Float64Array} key work that depends on the key alone
 * @property {(query: Float64Array, key: Float64Array, projected: Float64Array) => Record<string, Float64Array>} steps
 * @property {(width: number) => number} scale
 */

/** @param {Float64Array} row */
const same = (row) => row;
const one = () => 1;

/** @type {Record<string, (parameters: Parameters, path: string) => Score>} */
export const LIVE_SCORES = {
  dot: () => ({ query: same, key: same, steps: dotSteps, scale: one }),
  scaled_dot: () => ({ query: same, key: same, steps: dotSteps, scale: (width) => width ** -0.5 }),
  general: (parameters, path) => ({
    query: same,
    key: (key) => parameters.linear(`${path}.key`, [key])[0],
    steps: (q, key) => ({ q, "W k": key, "q * W k": multiplied(q, key) }),
    scale: one,
  }),
  additive: (parameters, path) => ({
    query: (query) => parameters.linear(`${path}.query`, [query])[0],
    key: (key) => parameters.linear(`${path}.key`, [key])[0],
    steps: (_, key, projected) => energySteps(parameters, path, projected, key, ["W q", "U k", "W q + U k"]),
    scale: one,
  }),
  concat: (parameters, path) => {
    const both = parameters.get(`${path}.both.weight`);
    const width = both.shape[1];
    return {
      query: (query) => product([joined(query, new Float64Array(width - query.length))], both)[0],
      key: (key) => product([joined(new Float64Array(width - key.length), key)], both)[0],
      steps: (_, key, projected) =>
        energySteps(parameters, path, projected, key, ["W [q; 0]", "W [0; k]", "W [q; k]"]),
      scale: one,
    };
  },
};

/** @param {Float64Array} q @param {Float64Array} k */
function dotSteps(q, k) {
  return { q, k, "q * k": multiplied(q, k) };
}

/**
 * @param {Parameters} parameters
 * @param {string} path
 * @param {Float64Array} query
 * @param {Float64Array} key
 * @param {string[]} names of the query's part, the key's part, and their sum
 */
function energySteps(parameters, path, query, key, [first, second, both]) {
  const energy = added(query, key).map(Math.tanh);
  const products = multiplied(energy, Float64Array.from(parameters.get(`${path}.energy.weight`).numbers));
  return { [first]: query, [second]: key, [`tanh(${both})`]: energy, [`v * tanh(${both})`]: products };
}

export class LiveAttention {
  /**
   * @param {Parameters} parameters
   * @param {string} path name of the layer in PyTorch
   * @param {object} options
   * @param {number | null} options.heads null: one head without projections
   * @param {string} options.score
   * @param {boolean} [options.rotary]
   * @param {readonly Change[]} changes of all layers
   */
  constructor(parameters, path, { heads, score, rotary = false }, changes) {
    this.parameters = parameters;
    this.path = path;
    this.name = path.replace(".layers.", ".");
    this.projects = heads !== null;
    this.rotary = rotary;
    this.score = LIVE_SCORES[score](parameters, `${path}.score`);
    this.changes = changes.filter((change) => change.layer === this.name);
    /** @type {HeadTrace[]} */
    this.heads = Array.from({ length: heads ?? 1 }, () => ({
      queries: [],
      keys: [],
      values: [],
      weights: [],
      contexts: [],
    }));
    /** @type {Rows} output of each query */
    this.added = [];
    /** @type {{ before: Rows, after: Rows } | null} around the normalization that follows */
    this.norm = null;
  }

  /**
   * Adds keys and values.
   *
   * @param {Rows} rows
   */
  read(rows) {
    const keys = this.projects ? this.parameters.linear(`${this.path}.key`, rows) : rows;
    const values = this.projects ? this.parameters.linear(`${this.path}.value`, rows) : rows;
    keys.forEach((key, row) =>
      this.heads.forEach((trace, head) => {
        trace.keys.push(this.score.key(this.turned(this.part(key, head), trace.keys.length)));
        trace.values.push(this.part(values[row], head));
      }),
    );
  }

  /**
   * The output for queries; each attends to all keys so far.
   *
   * @param {Rows} rows
   */
  attend(rows) {
    const queries = this.projects ? this.parameters.linear(`${this.path}.query`, rows) : rows;
    const before = this.heads[0].keys.length - rows.length;
    const contexts = queries.map((query, row) =>
      joined(
        ...this.heads.map((_, head) => this.context(head, this.turned(this.part(query, head), before + row))),
      ),
    );
    const outputs = this.projects ? this.parameters.linear(`${this.path}.output`, contexts) : contexts;
    this.added.push(...outputs);
    return outputs;
  }

  /** @param {number} head @param {Float64Array} query */
  context(head, query) {
    const trace = this.heads[head];
    const projected = this.score.query(query);
    const scores = Float64Array.from(trace.keys, (key) => this.scoreOf(query, key, projected));
    /** @type {Float64Array} */
    let weights = probabilitiesOf(scores);
    for (const change of this.changes) {
      if (change.heads.includes(head)) weights = changedWeights(weights, change, trace.queries.length);
    }
    const context = new Float64Array(trace.values[0].length);
    trace.values.forEach((value, key) => {
      for (let index = 0; index < context.length; index += 1) context[index] += weights[key] * value[index];
    });
    trace.queries.push(query);
    trace.weights.push(weights);
    trace.contexts.push(context);
    return context;
  }

  /** @param {Float64Array} query @param {Float64Array} key @param {Float64Array} projected query */
  scoreOf(query, key, projected) {
    const steps = Object.values(this.score.steps(query, key, projected));
    return this.score.scale(query.length) * sumOf(steps[steps.length - 1]);
  }

  /** @param {Float64Array} row @param {number} head */
  part(row, head) {
    const width = row.length / this.heads.length;
    return row.subarray(head * width, (head + 1) * width);
  }

  /**
   * Rotates pairs of dimensions by the position (Su et al. 2021), if the layer does.
   *
   * @param {Float64Array} row
   * @param {number} position
   */
  turned(row, position) {
    if (!this.rotary) return row;
    const waves = wave(position, row.length);
    return row.map((value, index) => {
      const even = index - (index % 2);
      const [sin, cos] = [waves[even], waves[even + 1]];
      return index % 2 ? row[even] * sin + value * cos : value * cos - row[even + 1] * sin;
    });
  }

  /**
   * A head's own part of the output of a query; null without projections.
   *
   * @param {number} head
   * @param {number} query
   */
  ownPart(head, query) {
    if (!this.projects) return null;
    const empty = new Float64Array(this.heads[0].contexts[query].length);
    const parts = this.heads.map((trace, index) => (index === head ? trace.contexts[query] : empty));
    return product([joined(...parts)], this.parameters.get(`${this.path}.output.weight`))[0];
  }
}

/**
 * Changed weights of a query, as in `regard.attention.interventions`.
 *
 * @param {Float64Array} weights of the keys that the query may attend to
 * @param {Change} change
 * @param {number} query
 */
export function changedWeights(weights, change, query) {
  const { to } = change;
  if (to === "off") return weights.map(() => 0);
  if (to === "uniform") return weights.map(() => 1 / weights.length);
  if (to === "temper") {
    const powers = weights.map((weight) => weight ** (1 / change.temperature));
    const sum = sumOf(powers);
    return powers.map((power) => (sum ? power / sum : 0));
  }
  const key = change.key ?? 0;
  if (change.query !== query || key >= weights.length) return weights;
  const sum = sumOf(weights);
  const others = sum - weights[key];
  const remainder = Math.max(sum > 0 ? sum : 1, to) - to;
  return weights.map((weight, index) => {
    if (index === key) return to;
    return remainder * (others > 0 ? weight / others : 1 / (weights.length - 1));
  });
}

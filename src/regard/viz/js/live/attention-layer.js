// An attention layer that reads keys and queries step by step and keeps all its intermediate values.

import { ACTIVATIONS, added, joined, multiplied, probabilitiesOf, product, sigmoid, sumOf, wave } from "./rows.js";

/** @import { InterventionData } from "../data.js" */
/** @import { Activation, Parameters, Rows } from "./rows.js" */
/** @import { Decoder } from "./tasks.js" */

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
const LIVE_SCORES = {
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
      steps: (_, key, projected) => energySteps(parameters, path, projected, key, ["W [q; 0]", "W [0; k]", "W [q; k]"]),
      scale: one,
    };
  },
};

/** @param {Float64Array} q @param {Float64Array} k */
function dotSteps(q, k) {
  return { q, k, "q * k": multiplied(q, k) };
}

/**
 * @param {Parameters} parameters @param {string} path @param {Float64Array} query @param {Float64Array} key
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

  /** Adds keys and values. @param {Rows} rows */
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

  /** The output for queries; each attends to all keys so far. @param {Rows} rows */
  attend(rows) {
    const queries = this.projects ? this.parameters.linear(`${this.path}.query`, rows) : rows;
    const before = this.heads[0].keys.length - rows.length;
    const contexts = queries.map((query, row) =>
      joined(...this.heads.map((_, head) => this.context(head, this.turned(this.part(query, head), before + row)))),
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

  // Rotates pairs of dimensions by the position (Su et al. 2021), if the layer does.
  /** @param {Float64Array} row @param {number} position */
  turned(row, position) {
    if (!this.rotary) return row;
    const waves = wave(position, row.length);
    return row.map((value, index) => {
      const even = index - (index % 2);
      const [sin, cos] = [waves[even], waves[even + 1]];
      return index % 2 ? row[even] * sin + value * cos : value * cos - row[even + 1] * sin;
    });
  }

  // A head's own part of the output of a query; null without projections.
  /** @param {number} head @param {number} query */
  ownPart(head, query) {
    if (!this.projects) return null;
    const empty = new Float64Array(this.heads[0].contexts[query].length);
    const parts = this.heads.map((trace, index) => (index === head ? trace.contexts[query] : empty));
    return product([joined(...parts)], this.parameters.get(`${this.path}.output.weight`))[0];
  }
}

/**
 * Changed weights of a query, as in `regard.attention.interventions`.
 * @param {Float64Array} weights of the keys that the query may attend to
 * @param {Change} change @param {number} query
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

// Blocks around attention: residual sums, normalization, feed-forward layers, as in `regard.attention.blocks`.

/**
 * @typedef {object} BlockOptions
 * @property {number | null} heads
 * @property {string} score
 * @property {boolean} rotary
 * @property {boolean} pre_norm
 * @property {number} norm_epsilon
 * @property {Activation} activation
 */

/**
 * The rows and the output of a layer, normalized before the layer or after the sum. An attention layer remembers the
 * first normalization after it: its own after the sum, or that of the next residual before its layer.
 * @param {Parameters} parameters
 * @param {string} path of the residual
 * @param {Rows} rows @param {(inputs: Rows) => Rows} apply @param {BlockOptions} options
 * @param {LiveAttention | null} own attention layer
 * @param {LiveAttention | null} earlier attention layer whose sum these rows are
 */
export function residual(parameters, path, rows, apply, { pre_norm: first, norm_epsilon: epsilon }, own, earlier) {
  const inputs = first ? parameters.norm(`${path}.norm`, rows, epsilon) : rows;
  if (first && earlier) rememberNorm(earlier, rows, inputs);
  const outputs = apply(inputs);
  const sums = rows.map((row, index) => added(row, outputs[index]));
  if (first) return sums;
  const normalized = parameters.norm(`${path}.norm`, sums, epsilon);
  if (own) rememberNorm(own, sums, normalized);
  return normalized;
}

/** @param {LiveAttention} layer @param {Rows} before @param {Rows} after */
function rememberNorm(layer, before, after) {
  const norm = layer.norm ?? { before: [], after: [] };
  layer.norm = { before: [...norm.before, ...before], after: [...norm.after, ...after] };
}

/** @param {Parameters} parameters @param {string} path @param {Rows} rows @param {Activation} activation */
function feedForward(parameters, path, rows, activation) {
  const inner = parameters.linear(`${path}.inner`, rows);
  return parameters.linear(
    `${path}.outer`,
    inner.map((row) => row.map(ACTIVATIONS[activation])),
  );
}

/**
 * An encoder layer: self-attention and a feed-forward layer. The attention layer is added to `layers`.
 * @param {Parameters} parameters @param {string} path @param {Rows} rows @param {BlockOptions} options
 * @param {readonly Change[]} changes @param {LiveAttention[]} layers
 */
function encoderLayer(parameters, path, rows, options, changes, layers) {
  const layer = new LiveAttention(parameters, `${path}.self_attention`, options, changes);
  layers.push(layer);
  /** @param {Rows} inputs */
  const attend = (inputs) => {
    layer.read(inputs);
    return layer.attend(inputs);
  };
  const states = residual(parameters, `${path}.attention_residual`, rows, attend, options, layer, null);
  /** @param {Rows} inputs */
  const forward = (inputs) => feedForward(parameters, `${path}.feed_forward`, inputs, options.activation);
  return residual(parameters, `${path}.feed_forward_residual`, states, forward, options, null, layer);
}

// The query model, as in `regard.models.query`.

/**
 * @typedef {object} QueryConfig
 * @property {number} hidden
 * @property {number} enc_layers
 * @property {boolean} multihead
 * @property {number} heads
 * @property {boolean} pos_enc
 * @property {string} positions
 * @property {string} score
 * @property {boolean} self_att
 */

/** @typedef {{ layers: LiveAttention[], states: Rows, logits: Rows }} Forward attention layers, and states and logits of each output step */

const NORM_EPSILON = 1e-5;

/**
 * @param {Parameters} parameters @param {QueryConfig} config
 * @param {readonly number[]} letters indices
 * @param {readonly Change[]} changes @returns {Forward}
 */
export function queryForward(parameters, config, letters, changes) {
  /** @type {BlockOptions} */
  const options = {
    heads: config.multihead ? config.heads : null,
    score: config.score,
    rotary: false,
    pre_norm: false,
    norm_epsilon: NORM_EPSILON,
    activation: "relu",
  };
  /** @type {LiveAttention[]} */
  const layers = [];
  /** @type {Rows} */
  let memory = embedded(parameters, config, letters);
  for (let layer = 0; layer < config.enc_layers; layer += 1) {
    memory = encoderLayer(parameters, `encoder.${layer}`, memory, options, changes, layers);
  }
  if (parameters.find("rest")) memory = [...memory, ...parameters.rows("rest")];
  /** @param {string} path @param {Rows} queries @param {Rows} keys */
  const attend = (path, queries, keys) => {
    const layer = new LiveAttention(parameters, path, options, changes);
    layers.push(layer);
    layer.read(keys);
    const outputs = layer.attend(queries);
    const sums = queries.map((query, index) => added(query, outputs[index]));
    const states = parameters.norm(`${path}_norm`, sums, NORM_EPSILON);
    rememberNorm(layer, sums, states);
    return states;
  };
  let states = attend("cross", parameters.rows("queries"), memory);
  if (config.self_att) states = attend("self_attention", states, states);
  return { layers, states, logits: parameters.linear("output", states) };
}

/** @param {Parameters} parameters @param {QueryConfig} config @param {readonly number[]} letters */
function embedded(parameters, { hidden, pos_enc: positioned, positions }, letters) {
  const { numbers, shape } = parameters.get("embedding.weight");
  const bias = parameters.get("embedding.bias").numbers;
  const learned = positioned && positions === "learned" ? parameters.rows("positions.weight") : null;
  return letters.map((letter, step) => {
    const row = Float64Array.from({ length: hidden }, (_, index) => numbers[index * shape[1] + letter] + bias[index]);
    if (!positioned) return row;
    return added(row, learned ? learned[step] : wave(step, hidden));
  });
}

// The Transformer with greedy decoding, as in `regard.models.transformer`.

/** @typedef {BlockOptions & { hidden: number, heads: number, enc_layers: number, dec_layers: number, positions: string, tied: boolean }} TransformerConfig */

/**
 * Reads a source; returns the decoder.
 * @param {Parameters} parameters @param {TransformerConfig} config
 * @param {readonly number[]} source indices with the end of sequence
 * @param {readonly Change[]} changes @returns {Decoder}
 */
export function transformerDecoder(parameters, config, source, changes) {
  const options = { ...config, rotary: config.positions === "rotary" };
  /** @type {LiveAttention[]} */
  const layers = [];
  const embedding = parameters.find("source_embedding.weight") ? "source_embedding" : "target_embedding";
  /** @type {Rows} */
  let memory = source.map((index, step) => embed(parameters, config, [embedding, "source"], index, step));
  for (let layer = 0; layer < config.enc_layers; layer += 1) {
    memory = encoderLayer(parameters, `encoder.layers.${layer}`, memory, options, changes, layers);
  }
  /** @param {string} path @param {Rows} rows */
  const last = (path, rows) => (config.pre_norm ? parameters.norm(path, rows, config.norm_epsilon) : rows);
  memory = last("encoder.norm", memory);
  const blocks = Array.from({ length: config.dec_layers }, (_, layer) => {
    const path = `decoder.layers.${layer}`;
    const own = new LiveAttention(parameters, `${path}.self_attention`, options, changes);
    const cross = new LiveAttention(parameters, `${path}.cross`, { ...options, rotary: false }, changes);
    cross.read(memory);
    layers.push(own, cross);
    return { path, own, cross };
  });
  let time = 0;
  /** @param {number} token */
  const step = (token) => {
    let rows = [embed(parameters, config, ["target_embedding", "target"], token, time)];
    time += 1;
    for (const { path, own, cross } of blocks) {
      /** @param {Rows} inputs */
      const attendOwn = (inputs) => {
        own.read(inputs);
        return own.attend(inputs);
      };
      /** @param {Rows} inputs */
      const forward = (inputs) => feedForward(parameters, `${path}.feed_forward`, inputs, config.activation);
      rows = residual(parameters, `${path}.self_residual`, rows, attendOwn, options, own, null);
      /** @param {Rows} inputs */
      const attendMemory = (inputs) => cross.attend(inputs);
      rows = residual(parameters, `${path}.cross_residual`, rows, attendMemory, options, cross, own);
      rows = residual(parameters, `${path}.feed_forward_residual`, rows, forward, options, null, cross);
    }
    return last("decoder.norm", rows)[0];
  };
  const vocabulary = parameters.find("output.weight") ?? parameters.get("target_embedding.weight");
  const bias = parameters.find("output_bias")?.numbers;
  return { layers, step, logits: (state) => product([state], vocabulary, bias)[0] };
}

/**
 * @param {Parameters} parameters @param {TransformerConfig} config
 * @param {string[]} names of the embedding and of the side
 * @param {number} index @param {number} step
 */
function embed(parameters, { hidden, positions }, [embedding, side], index, step) {
  const { numbers, shape } = parameters.get(`${embedding}.weight`);
  const width = shape[1];
  const row = Float64Array.from(numbers.subarray(index * width, (index + 1) * width), (x) => x * Math.sqrt(width));
  if (positions === "rotary") return row;
  if (positions === "concatenated") return joined(row, wave(step, hidden - width));
  if (positions === "sinusoidal") return added(row, wave(step, hidden));
  const learned = parameters.get(`${side}_positions.weight`).numbers;
  return row.map((value, place) => value + learned[step * width + place]);
}

// The recurrent encoder-decoder, as in `regard.models.recurrent`.

/**
 * @typedef {object} RecurrentConfig
 * @property {number} hidden
 * @property {number} enc_layers
 * @property {boolean} bidirectional
 * @property {"lstm" | "gru"} cell
 * @property {"last" | "zero"} start
 * @property {string} score
 * @property {"cell" | "output" | "both"} context
 * @property {"previous" | "current" | null} query
 * @property {boolean} input_feeding
 */

/** @typedef {{ state: Float64Array, cell: Float64Array }} CellState the cell of a GRU is not used */

/**
 * A step of an LSTM or a GRU, with the gates in PyTorch's order.
 * @param {Parameters} parameters @param {string} path @param {"lstm" | "gru"} kind @param {Float64Array} input
 * @param {CellState} before @returns {CellState}
 */
function cellStep(parameters, path, kind, input, { state, cell }) {
  /** @param {string} side @param {Float64Array} row */
  const gatesOf = (side, row) => parameters.affine(`${path}.weight_${side}_l0`, `${path}.bias_${side}_l0`, [row])[0];
  const [ofInput, ofState] = [gatesOf("ih", input), gatesOf("hh", state)];
  const width = state.length;
  /** @param {Float64Array} gates @param {number} number */
  const gate = (gates, number) => gates.subarray(number * width, (number + 1) * width);
  if (kind === "lstm") {
    const gates = added(ofInput, ofState);
    const [entry, forget, candidate, out] = [0, 1, 2, 3].map((number) => gate(gates, number));
    const next = cell.map(
      (value, index) => sigmoid(forget[index]) * value + sigmoid(entry[index]) * Math.tanh(candidate[index]),
    );
    return { state: next.map((value, index) => sigmoid(out[index]) * Math.tanh(value)), cell: next };
  }
  const reset = added(gate(ofInput, 0), gate(ofState, 0)).map(sigmoid);
  const keep = added(gate(ofInput, 1), gate(ofState, 1)).map(sigmoid);
  const next = gate(ofInput, 2).map((value, index) => Math.tanh(value + reset[index] * gate(ofState, 2)[index]));
  return { state: next.map((value, index) => value + keep[index] * (state[index] - value)), cell };
}

// The states of one direction.
/** @param {Parameters} parameters @param {string} path @param {"lstm" | "gru"} kind @param {Rows} rows */
function direction(parameters, path, kind, rows) {
  const width = parameters.get(`${path}.weight_hh_l0`).shape[1];
  /** @type {CellState} */
  let current = { state: new Float64Array(width), cell: new Float64Array(width) };
  return rows.map((row) => {
    current = cellStep(parameters, path, kind, row, current);
    return current.state;
  });
}

/**
 * Reads a source; returns the decoder.
 * @param {Parameters} parameters @param {RecurrentConfig} config
 * @param {readonly number[]} source indices with the end of sequence
 * @param {readonly Change[]} changes @returns {Decoder}
 */
export function recurrentDecoder(parameters, config, source, changes) {
  const embeddings = parameters.rows("source_embedding.weight");
  let memory = source.map((index) => embeddings[index]);
  let last = memory[0];
  for (let layer = 0; layer < config.enc_layers; layer += 1) {
    const forwards = direction(parameters, `encoder.forwards.${layer}`, config.cell, memory);
    last = forwards[forwards.length - 1];
    if (!config.bidirectional) {
      memory = forwards;
      continue;
    }
    const reversed = [...memory].reverse();
    const backwards = direction(parameters, `encoder.backwards.${layer}`, config.cell, reversed).reverse();
    memory = forwards.map((row, step) => joined(row, backwards[step]));
    last = joined(last, backwards[0]);
  }
  return decoderOf(parameters, config, memory, last, changes);
}

/**
 * @param {Parameters} parameters @param {RecurrentConfig} config @param {Rows} memory
 * @param {Float64Array} last state of the encoder
 * @param {readonly Change[]} changes @returns {Decoder}
 */
function decoderOf(parameters, config, memory, last, changes) {
  const { hidden } = config;
  const attends = config.score !== "none";
  const cross = attends
    ? new LiveAttention(parameters, "decoder.cross", { heads: null, score: config.score }, changes)
    : null;
  cross?.read(memory);
  const toCell = attends && config.context !== "output";
  const toOutput = attends && config.context !== "cell";
  const early = attends && (config.query ?? (config.context === "output" ? "current" : "previous")) === "previous";
  const embeddings = parameters.rows("target_embedding.weight");
  const zero = new Float64Array(2 * hidden);
  const first = config.start === "last" ? parameters.linear("decoder.bridge", [last])[0].map(Math.tanh) : zero;
  /** @type {CellState} */
  let current = { state: first.subarray(0, hidden), cell: first.subarray(hidden) };
  let fed = zero.subarray(0, hidden);
  /** @param {number} token */
  const step = (token) => {
    const context = early && cross ? cross.attend([current.state])[0] : null;
    const extra = config.input_feeding ? [fed] : toCell && context ? [context] : [];
    const input = joined(embeddings[token], ...extra);
    current = cellStep(parameters, "decoder.rnn", config.cell, input, current);
    if (!toOutput || !cross) return current.state;
    const read = context ?? cross.attend([current.state])[0];
    fed = parameters.linear("decoder.combine", [joined(read, current.state)])[0].map(Math.tanh);
    return fed;
  };
  return { layers: cross ? [cross] : [], step, logits: (state) => parameters.linear("output", [state])[0] };
}

// The recurrent encoder-decoder, as in `regard.models.recurrent`.

import { LiveAttention } from "./attention-layer.js";
import { added, joined, sigmoid } from "./rows.js";

/** @import { Change } from "./attention-layer.js" */
/** @import { Decoder } from "./greedy.js" */
/** @import { Parameters, Rows } from "./rows.js" */

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
 *
 * @param {Parameters} parameters
 * @param {string} path
 * @param {"lstm" | "gru"} kind
 * @param {Float64Array} input
 * @param {CellState} before
 * @returns {CellState}
 */
export function cellStep(parameters, path, kind, input, { state, cell }) {
  /** @param {string} side @param {Float64Array} row */
  const gatesOf = (side, row) =>
    parameters.affine(`${path}.weight_${side}_l0`, `${path}.bias_${side}_l0`, [row])[0];
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

/**
 * The states of one direction.
 *
 * @param {Parameters} parameters
 * @param {string} path
 * @param {"lstm" | "gru"} kind
 * @param {Rows} rows
 */
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
 *
 * @param {Parameters} parameters
 * @param {RecurrentConfig} config
 * @param {readonly number[]} source indices with the end of sequence
 * @param {readonly Change[]} changes
 * @returns {Decoder}
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
 * @param {Parameters} parameters
 * @param {RecurrentConfig} config
 * @param {Rows} memory
 * @param {Float64Array} last state of the encoder
 * @param {readonly Change[]} changes
 * @returns {Decoder}
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
  const early =
    attends && (config.query ?? (config.context === "output" ? "current" : "previous")) === "previous";
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

// The query model, as in `regard.models.query`.

import { LiveAttention } from "./attention-layer.js";
import { encoderLayer, rememberNorm } from "./blocks.js";
import { added, wave } from "./rows.js";

/** @import { Change } from "./attention-layer.js" */
/** @import { BlockOptions } from "./blocks.js" */
/** @import { Parameters, Rows } from "./rows.js" */

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
 * @param {Parameters} parameters
 * @param {QueryConfig} config
 * @param {readonly number[]} letters indices
 * @param {readonly Change[]} changes
 * @returns {Forward}
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

/**
 * @param {Parameters} parameters
 * @param {QueryConfig} config
 * @param {readonly number[]} letters
 */
function embedded(parameters, { hidden, pos_enc: positioned, positions }, letters) {
  const { numbers, shape } = parameters.get("embedding.weight");
  const bias = parameters.get("embedding.bias").numbers;
  const learned = positioned && positions === "learned" ? parameters.rows("positions.weight") : null;
  return letters.map((letter, step) => {
    const row = Float64Array.from(
      { length: hidden },
      (_, index) => numbers[index * shape[1] + letter] + bias[index],
    );
    if (!positioned) return row;
    return added(row, learned ? learned[step] : wave(step, hidden));
  });
}

// Blocks around attention: residual sums, normalization, feed-forward layers, as in `regard.attention.blocks`.

import { LiveAttention } from "./attention-layer.js";
import { ACTIVATIONS, added } from "./rows.js";

/** @import { Change } from "./attention-layer.js" */
/** @import { Activation, Parameters, Rows } from "./rows.js" */

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
 *
 * @param {Parameters} parameters
 * @param {string} path of the residual
 * @param {Rows} rows
 * @param {(inputs: Rows) => Rows} apply
 * @param {BlockOptions} options
 * @param {LiveAttention | null} own attention layer
 * @param {LiveAttention | null} earlier attention layer whose sum these rows are
 */
export function residual(
  parameters,
  path,
  rows,
  apply,
  { pre_norm: first, norm_epsilon: epsilon },
  own,
  earlier,
) {
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
export function rememberNorm(layer, before, after) {
  const norm = layer.norm ?? { before: [], after: [] };
  layer.norm = { before: [...norm.before, ...before], after: [...norm.after, ...after] };
}

/**
 * @param {Parameters} parameters
 * @param {string} path
 * @param {Rows} rows
 * @param {Activation} activation
 */
export function feedForward(parameters, path, rows, activation) {
  const inner = parameters.linear(`${path}.inner`, rows);
  return parameters.linear(
    `${path}.outer`,
    inner.map((row) => row.map(ACTIVATIONS[activation])),
  );
}

/**
 * An encoder layer: self-attention and a feed-forward layer. The attention layer is added to `layers`.
 *
 * @param {Parameters} parameters
 * @param {string} path
 * @param {Rows} rows
 * @param {BlockOptions} options
 * @param {readonly Change[]} changes
 * @param {LiveAttention[]} layers
 */
export function encoderLayer(parameters, path, rows, options, changes, layers) {
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

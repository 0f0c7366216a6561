// The Transformer with greedy decoding, as in `regard.models.transformer`.

import { LiveAttention } from "./attention-layer.js";
import { encoderLayer, feedForward, residual } from "./blocks.js";
import { added, joined, product, wave } from "./rows.js";

/** @import { Change } from "./attention-layer.js" */
/** @import { BlockOptions } from "./blocks.js" */
/** @import { Decoder } from "./greedy.js" */
/** @import { Parameters, Rows } from "./rows.js" */

/** @typedef {BlockOptions & { hidden: number, heads: number, enc_layers: number, dec_layers: number, positions: string, tied: boolean }} TransformerConfig */

/**
 * Reads a source; returns the decoder.
 *
 * @param {Parameters} parameters
 * @param {TransformerConfig} config
 * @param {readonly number[]} source indices with the end of sequence
 * @param {readonly Change[]} changes
 * @returns {Decoder}
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
 * @param {Parameters} parameters
 * @param {TransformerConfig} config
 * @param {string[]} names of the embedding and of the side
 * @param {number} index
 * @param {number} step
 */
function embed(parameters, { hidden, positions }, [embedding, side], index, step) {
  const { numbers, shape } = parameters.get(`${embedding}.weight`);
  const width = shape[1];
  const row = Float64Array.from(
    numbers.subarray(index * width, (index + 1) * width),
    (x) => x * Math.sqrt(width),
  );
  if (positions === "rotary") return row;
  if (positions === "concatenated") return joined(row, wave(step, hidden - width));
  if (positions === "sinusoidal") return added(row, wave(step, hidden));
  const learned = parameters.get(`${side}_positions.weight`).numbers;
  return row.map((value, place) => value + learned[step * width + place]);
}

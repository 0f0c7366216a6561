// The weight to explain.

import { node } from "./dom.js";
import { currentHead } from "./sentence.js";

/** @import { Scene } from "./scene.js" */

/** @typedef {{ layer: string, head: number, output: number, key: number, temperature: number }} Which */

/**
 * The selected weight, or the largest of its row.
 *
 * @param {Scene} scene
 * @returns {Which}
 */
export function selectedWeight(scene) {
  const { layer, matrix, state } = scene;
  const head = currentHead(scene);
  const key = state.key ?? matrix.strongest(head, state.query);
  return { layer: layer.name, head, output: state.query, key, temperature: state.temperature };
}

/**
 * The shell command that prints the computation of a weight.
 *
 * @param {Scene} scene
 */
export function explainCommand(scene) {
  const { layer, head, output, key } = selectedWeight(scene);
  const { task, input } = scene.map;
  const quoted = `'${input.replaceAll("'", "'\\''")}'`;
  return `regard explain ${task || "RUN"} --input ${quoted} --layer ${layer} --head ${head} --output ${output} --key ${key}`;
}

/**
 * How to print what a page does not contain.
 *
 * @param {string} command
 * @param {string} [what]
 * @param {string} [where] another place that shows it
 */
export function commandHint(command, what = "the computation of weights", where = "") {
  const text = `This page does not contain ${what}. For a run of Regard, `;
  const element = node("p", { class: "quiet hinted" }, text);
  element.append(node("code", {}, command), ` prints it${where}.`);
  return element;
}

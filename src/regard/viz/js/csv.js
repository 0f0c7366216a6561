// Weights as CSV. Lines that begin with # contain metadata; cells with # are quoted.

import { factsOf } from "./about.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

/**
 * The displayed weights or differences, one per line.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
export function csvOf(scene, colours) {
  const { matrix, changes, layer, state } = scene;
  const facts = factsOf(scene, colours).map(([name, said]) => `# ${name}: ${said}`);
  const lines = [...facts, `layer,head,query_step,query,key_step,key,${changes ? "change" : "weight"}`];
  for (const head of matrix.shown(state)) {
    const values = (changes ?? matrix.slices)[head];
    const name = matrix.names ? quoted(matrix.name(head)) : head;
    matrix.queries.forEach((query, row) => {
      matrix.keys.forEach((key, column) => {
        const value = Number(values[row * matrix.columns + column].toPrecision(9));
        lines.push([quoted(layer.name), name, row, quoted(query), column, quoted(key), value].join(","));
      });
    });
  }
  return `${lines.join("\r\n")}\r\n`;
}

/** @param {string} label as a cell of a table, which no program takes for a formula or a remark */
function quoted(label) {
  const safe = /^[=+@\t\r-]/.test(label) && label.length > 1 ? `'${label}` : label;
  return /[",#\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

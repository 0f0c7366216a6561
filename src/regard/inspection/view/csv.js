// Weights as a table that other programs read.

/** @import { Scene } from "./scene.js" */

/**
 * The weights of the heads that are shown, or what has changed in them, a line each.
 *
 * @param {Pick<Scene, "matrix" | "changes" | "state">} scene
 */
export function csvOf({ matrix, changes, state }) {
  const lines = [`head,query_step,query,key_step,key,${changes ? "change" : "weight"}`];
  for (const head of matrix.shown(state)) {
    const values = (changes ?? matrix.slices)[head];
    matrix.queries.forEach((query, row) => {
      matrix.keys.forEach((key, column) => {
        const value = values[row * matrix.columns + column];
        lines.push([head, row, quoted(query), column, quoted(key), Number(value.toPrecision(9))].join(","));
      });
    });
  }
  return `${lines.join("\r\n")}\r\n`;
}

/** @param {string} label as a cell of a table, which no program takes for a formula */
function quoted(label) {
  const safe = /^[=+@\t\r-]/.test(label) && label.length > 1 ? `'${label}` : label;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

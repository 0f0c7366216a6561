// Weights as CSV. Lines that begin with # contain metadata; cells with # are quoted.

import { availableMeasures, measure } from "./measures.js";
import { collectMetadata } from "./metadata.js";
import { posterRows } from "./poster.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

/**
 * The displayed weights or differences, one per line; of the overview, the measures of each head.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
export function formatCsv(scene, colours) {
  const { matrix, changes, layer, state } = scene;
  if (state.mode === "overview") return measuresCsv(scene, colours);
  const facts = collectMetadata(scene, colours).map(([name, text]) => `# ${name}: ${text}`);
  const lines = [...facts, `layer,head,query_step,query,key_step,key,${changes ? "change" : "weight"}`];
  for (const head of matrix.shown(state)) {
    const values = (changes ?? matrix.slices)[head];
    const name = matrix.names ? quoteCell(matrix.name(head)) : head;
    matrix.queries.forEach((query, row) => {
      matrix.keys.forEach((key, column) => {
        const value = Number(values[row * matrix.columns + column].toPrecision(9));
        lines.push([quoteCell(layer.name), name, row, quoteCell(query), column, quoteCell(key), value].join(","));
      });
    });
  }
  return `${lines.join("\r\n")}\r\n`;
}

/**
 * All known measures of all heads.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
function measuresCsv(scene, colours) {
  const facts = collectMetadata(scene, colours).map(([name, text]) => `# ${name}: ${text}`);
  const names = availableMeasures(scene);
  const columns = names.flatMap((name) => (name === "importance" ? [name, "low", "high"] : [name]));
  const lines = [...facts, ["layer", "head", ...columns].join(",")];
  for (const { layer, head } of posterRows(scene).flat()) {
    const cells = names.flatMap((name) => {
      const found = measure(scene, name, layer, head);
      if (name === "role") return [quoteCell(found?.text ?? "")];
      const numbers = name === "importance" ? [found?.value, found?.low, found?.high] : [found?.value];
      return numbers.map((value) =>
        value === null || value === undefined ? "" : String(Number(value.toPrecision(9))),
      );
    });
    lines.push([quoteCell(layer.name), head, ...cells].join(","));
  }
  return `${lines.join("\r\n")}\r\n`;
}

/** @param {string} label as a cell of a table, which no program takes for a formula or a remark */
function quoteCell(label) {
  const safe = /^[=+@\t\r-]/.test(label) && label.length > 1 ? `'${label}` : label;
  return /[",#\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

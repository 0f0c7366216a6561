// Weights as numbers in tables, for screen readers and exact values.

import { button, node } from "./dom.js";
import { nearbyIndices } from "./labels.js";
import { axisTitles } from "./axis-titles.js";

/** @import { Actions, Scene } from "./scene.js" */

const MOST = 40; // rows and columns shown at once

/**
 * A table for each selected head.
 *
 * @param {Scene} scene
 * @param {Actions} actions
 */
export function tables(scene, actions) {
  const { matrix, state } = scene;
  const box = node("div", { class: "tables" });
  const queries = nearbyIndices(matrix.rows, state.query, MOST);
  const keys = nearbyIndices(matrix.columns, state.key ?? 0, MOST);
  for (const head of matrix.shown(state)) box.append(headTable(scene, head, queries, keys, actions));
  const left = matrix.rows - queries.length + matrix.columns - keys.length;
  if (left > 0) {
    const shown = `${queries.length} of ${matrix.rows} rows and ${keys.length} of ${matrix.columns} columns`;
    box.append(node("p", { class: "quiet" }, `${shown}; the saved CSV file contains all.`));
  }
  return box;
}

/**
 * @param {Scene} scene
 * @param {number} head
 * @param {number[]} queries
 * @param {number[]} keys
 * @param {Actions} actions
 */
function headTable(scene, head, queries, keys, { choose }) {
  const { matrix, changes, layer } = scene;
  const [down, across] = axisTitles(scene);
  const table = node("table");
  const quantity = changes ? "change of the weights" : "weights";
  table.append(
    node("caption", {}, `${layer.title}, ${matrix.name(head)}: ${quantity}; rows ${down}, columns ${across}`),
  );
  const top = node("tr");
  top.append(node("td"), ...keys.map((key) => node("th", { scope: "col" }, matrix.keys[key])));
  const [body, first] = [node("tbody"), node("thead")];
  first.append(top);
  for (const query of queries) {
    const row = node("tr");
    const name = node("th", { scope: "row" });
    const chosen = button(matrix.queries[query], () => choose({ query, key: null, focus: head }));
    chosen.dataset.name = `row-${head}-${query}`;
    name.append(chosen);
    row.append(name);
    for (const key of keys) {
      const value = (changes ?? matrix.slices)[head][query * matrix.columns + key];
      row.append(node("td", {}, value.toFixed(3)));
    }
    body.append(row);
  }
  table.append(first, body);
  const box = node("div", {
    class: "scrolling",
    tabindex: 0,
    role: "region",
    "aria-label": `weights of ${matrix.name(head)}`,
  });
  box.dataset.name = `table-${head}`;
  box.append(table);
  return box;
}

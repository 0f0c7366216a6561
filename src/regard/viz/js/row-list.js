// The largest weights of the chosen row as bars; the first step towards its sum.

import { pairedBars } from "./changes.js";
import { button, node, oneTabStop, secondaryText } from "./dom.js";
import { isolate } from "./labels.js";
import { currentHead } from "./sentence.js";

/** @import { Actions, Scene } from "./scene.js" */

const LISTED = 6; // keys

/**
 * @param {Scene} scene
 * @param {Actions} actions
 */
export function rowList({ matrix, ...scene }, actions) {
  const { state } = scene;
  const head = currentHead({ matrix, ...scene });
  if (!matrix.rows || !matrix.columns) return [];
  const row = matrix.row(matrix.slices[head], state.query);
  const { before } = scene;
  const old = before && before.rows === matrix.rows ? before.row(before.slices[head], state.query) : null;
  /** @param {number} key */
  const larger = (key) => Math.max(row[key], old?.[key] ?? 0);
  const order = [...row.keys()].sort((first, second) => larger(second) - larger(first)).slice(0, LISTED);
  if (state.key !== null && !order.includes(state.key)) order.splice(-1, 1, state.key);
  const largest = Math.max(larger(order[0]), 1e-9);
  const rest = row.reduce((sum, weight) => sum + weight, 0) - order.reduce((sum, key) => sum + row[key], 0);
  const list = node("ol", { class: "row-list" });
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  order.forEach((key, place) => {
    const item = node("li");
    const chosen = button("", () => actions.choose({ key, focus: head }), key === state.key);
    chosen.dataset.name = `row-key-${place}`;
    const text = old ? `${old[key].toFixed(3)} → ${row[key].toFixed(3)}` : row[key].toFixed(3);
    buttons.push(chosen);
    chosen.append(
      node("span", { class: "key-name" }, matrix.keys[key]),
      pairedBars(old && old[key] / largest, row[key] / largest),
      node("span", {}, text),
    );
    item.append(chosen);
    list.append(item);
  });
  oneTabStop(buttons, order.indexOf(state.key ?? order[0]));
  const title = `Largest weights of ${isolate(matrix.queries[state.query])}, ${matrix.name(head)}${old ? ": before → now" : ""}`;
  const left = matrix.columns - order.length;
  return [
    secondaryText(title),
    list,
    ...(left > 0 ? [secondaryText(`The other ${left} keys have ${Math.max(0, rest).toFixed(3)} in all.`)] : []),
  ];
}

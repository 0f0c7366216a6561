// The largest weights of the chosen row as bars; the first step towards its sum.

import { cssColour } from "./colours.js";
import { button, node, oneTabStop, secondaryText } from "./dom.js";
import { isolate } from "./labels.js";
import { currentHead } from "./sentence.js";

/** @import { Palette } from "./colours.js" */
/** @import { Actions, Scene } from "./scene.js" */

const LISTED = 6; // keys

/**
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Palette} colours
 */
export function rowList({ matrix, ...scene }, actions, colours) {
  const { state } = scene;
  const head = currentHead({ matrix, ...scene });
  if (!matrix.rows || !matrix.columns) return [];
  const row = matrix.row(matrix.slices[head], state.query);
  const order = [...row.keys()].sort((first, second) => row[second] - row[first]).slice(0, LISTED);
  if (state.key !== null && !order.includes(state.key)) order.splice(-1, 1, state.key);
  const largest = Math.max(row[order[0]], 1e-9);
  const rest = row.reduce((sum, weight) => sum + weight, 0) - order.reduce((sum, key) => sum + row[key], 0);
  const list = node("ol", { class: "row-list" });
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  order.forEach((key, place) => {
    const item = node("li");
    const chosen = button("", () => actions.choose({ key, focus: head }), key === state.key);
    chosen.dataset.name = `row-key-${place}`;
    const bar = node("i", { "aria-hidden": "true" });
    bar.style.width = `${(100 * row[key]) / largest}%`;
    bar.style.background = cssColour(colours.at(0.65));
    const track = node("span", { class: "track" });
    track.append(bar);
    buttons.push(chosen);
    chosen.append(
      node("span", { class: "key-name" }, matrix.keys[key]),
      track,
      node("span", {}, row[key].toFixed(3)),
    );
    item.append(chosen);
    list.append(item);
  });
  oneTabStop(buttons, order.indexOf(state.key ?? order[0]));
  const title = `Largest weights of ${isolate(matrix.queries[state.query])}, ${matrix.name(head)}`;
  const left = matrix.columns - order.length;
  return [
    secondaryText(title),
    list,
    ...(left > 0 ? [secondaryText(`The other ${left} keys have ${Math.max(0, rest).toFixed(3)} in all.`)] : []),
  ];
}

// The card with the computation of the selected weight.

import { button } from "./dom.js";
import { withIcon } from "./icons.js";
import { commandHint, explainCommand } from "./selected-weight.js";

/** @import { Palette } from "./colours.js" */
/** @import { Part } from "./dom.js" */
/** @import { Actions, Scene } from "./scene.js" */
/** @import { Sum } from "./sum.js" */

/**
 * The computation of a weight: not for merged words, averages or snapshots.
 *
 * @param {{ sum?: Sum, keeps: boolean, root: HTMLElement, actions: Actions }} view
 * @param {Part} card
 * @param {Scene} scene
 * @param {Palette} colours
 */
export function drawSum({ sum, keeps, root, actions }, card, scene, colours) {
  const { state, derived, matrix } = scene;
  const can = sum !== undefined && !derived && !matrix.names && !state.words && state.frame === null;
  const available = !keeps || scene.map.sums !== undefined;
  const hinted = state.key !== null || state.sum;
  const command = can && !available ? (hinted ? explainCommand(scene) : "") : null;
  card.show([can, state.sum, command], () => {
    if (!can) return [];
    if (command !== null) return command ? [commandHint(command)] : [];
    const shown = withIcon(
      button("Explain this weight", () => actions.choose({ sum: !state.sum }), state.sum),
      "sum",
    );
    return [shown, ...(state.sum ? [sum.element] : [])];
  });
  const explaining = can && available && state.sum;
  const opened = explaining && !root.classList.contains("explaining");
  root.classList.toggle("explaining", explaining);
  if (opened) card.element.scrollIntoView({ block: "nearest" });
  if (can && available && state.sum) sum.show(scene, colours);
}

// The heads of the highest rank.

import { button } from "./dom.js";
import { headName } from "./labels.js";
import { namesWithKind } from "./layer-names.js";
import { chosenMeasure } from "./measures.js";

/** @import { Measured } from "./measures.js" */
/** @import { LayerData } from "./data.js" */
/** @import { Actions, Scene } from "./scene.js" */

const RANKED = 3; // heads of the highest rank that are marked
const LEAST_RANKED = 6; // heads of a model, of fewer none is marked
const RANKED_WORDS = ["", "", "two ", "three "];

/** @typedef {{ layer: LayerData, head: number }} Small */

/**
 * Numbers the heads with the largest values of the chosen measure, and names them in a sentence. Values that are
 * not significant do not count.
 *
 * @param {Scene} scene
 * @param {Small[]} smalls
 * @param {HTMLButtonElement[]} buttons
 * @param {(Measured | null)[]} values
 * @param {Actions} actions
 */
export function rankHeads(scene, smalls, buttons, values, actions) {
  if (smalls.length < LEAST_RANKED) return [];
  const measured = chosenMeasure(scene);
  const sign = measured.name === "entropy" ? -1 : 1;
  /** @param {number} index */
  const value = (index) => sign * (values[index]?.value ?? 0);
  const ranked = [...smalls.keys()]
    .filter((index) => values[index]?.sure && (sign < 0 || value(index) > 0))
    .sort((first, second) => value(second) - value(first))
    .slice(0, RANKED);
  if (!ranked.length) return [`No head has a significant ${measured.title}.`];
  const names = namesWithKind(scene.map.layers);
  const links = ranked.flatMap((index, place) => {
    const { layer, head } = smalls[index];
    buttons[index].classList.add("top");
    buttons[index].dataset.rank = String(place + 1);
    const said = `, number ${place + 1} of ${measured.most}`;
    buttons[index].title += said;
    if (buttons[index].ariaLabel) buttons[index].ariaLabel += said;
    const link = button(`${names.get(layer.name)}.${head}`, () => actions.open(layer.name, head));
    link.dataset.name = `rank-${place}`;
    link.tabIndex = -1; // the tab key reaches the same heads in the grid
    link.title = `${layer.title}, ${headName(layer, head)}`;
    const before = place === 0 ? "" : place === ranked.length - 1 ? " and " : ", ";
    return [before, link];
  });
  const several = ranked.length > 1;
  const noun = several ? `The ${RANKED_WORDS[ranked.length]}heads` : "The head";
  return [`${noun} with ${measured.most} (layer.head): `, ...links];
}

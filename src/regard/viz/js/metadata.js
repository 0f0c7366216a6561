// Captions and metadata of saved pictures and tables: the model, interventions, colour scale and prediction.

import { answerText } from "./answer.js";
import { revealHidden } from "./labels.js";
import { colourScale } from "./legend.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

/** @typedef {[name: string, said: string]} Fact */

/**
 * All facts about the displayed weights.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 * @returns {Fact[]}
 */
export function collectMetadata(scene, colours) {
  const { data, map, layer, matrix, state, changes, derived, beside } = scene;
  const { from, to, of } = colourScale(scene, colours);
  const overview = state.mode === "overview";
  const names = matrix.shown(state).map((head) => matrix.name(head));
  /** @type {(Fact | null)[]} */
  const facts = [
    ["model", map.model || data.maps[0].model || map.task],
    ["input", map.input],
    ["layer", overview ? "all" : layer.name],
    [state.mode === "flow" ? "rollout" : "heads", overview ? "all" : names.join(", ")],
    state.words ? ["between", "whole words"] : null,
    layer.square > 1
      ? ["squares", `each weight is the largest of ${layer.square} x ${layer.square} steps`]
      : null,
    state.frame === null ? null : ["training steps", String(data.playback?.steps[state.frame])],
    ["interventions", map.interventions.join("; ") || "none"],
    state.sum && state.temperature !== 1 ? ["temperature", `${state.temperature} in the sum only, here 1`] : null,
    map.prediction === null ? null : ["prediction", answerText(map.prediction)],
    map.interventions.length ? ["prediction without interventions", answerText(map.original_prediction)] : null,
    map.truth === null ? null : ["truth", answerText(map.truth)],
    beside ? ["beside", beside.name] : null,
    changes ? ["shows", "difference to the original weights"] : null,
    ["scale", `${from} to ${to}${of}`],
    map.note ? ["note", map.note] : null,
  ];
  if (derived && state.mode !== "flow") facts.push(["derived", derived]);
  return facts
    .filter((fact) => fact !== null)
    .map(([name, text]) => [name, revealHidden(text).replace(/\s+/g, " ")]);
}

/**
 * Caption lines with the prediction and the interventions.
 *
 * @param {Scene} scene
 */
export function captionLines({ map }) {
  const done = map.interventions;
  const lines = done.length ? [`Interventions: ${done.join("; ")}`] : [];
  if (map.prediction !== null) {
    const before = done.length ? `, without interventions: ${answerText(map.original_prediction)}` : "";
    lines.push(`Prediction: ${answerText(map.prediction)}${before}`);
  }
  return lines.flatMap((line) => wrapCaption(revealHidden(line)));
}

const CAPTION = 110; // characters of a line

/**
 * Wraps a text into caption lines.
 *
 * @param {string} text
 */
function wrapCaption(text) {
  const lines = [];
  for (let left = text; left;) {
    const blank = left.length > CAPTION ? left.lastIndexOf(" ", CAPTION) : -1;
    const end = left.length <= CAPTION ? left.length : blank > 0 ? blank : CAPTION;
    lines.push(left.slice(0, end).trim());
    left = left.slice(end).trim();
  }
  return lines;
}

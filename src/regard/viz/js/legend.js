// The legend of the colours, in the page and in saved pictures.

import { CONTRAST } from "./lines.js";
import { cssColour, fade, headColour } from "./colours.js";
import { canvasContext, node, svg } from "./dom.js";
import { overlayColour } from "./overlay.js";
import { rangeEnd, SCALES } from "./scale.js";

/** @import { Colour, Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

/**
 * @typedef {object} Ramp
 * @property {string} from meaning of its beginning
 * @property {string} to meaning of its end
 * @property {string} of the scope of the scale
 * @property {(share: number) => Colour} at the colour of a position from 0 to 1
 */

const SCALE_WIDTH = 120;
const SCALE_HEIGHT = 10;
const DEPENDS = "○ the output depends on this input";
const BROKEN = "■ (magenta) not finite: NaN or infinite";
/** @type {Record<string, string>} */
const SCOPES = {
  overview: "the same for all layers and heads",
  flow: "the same for all layers",
  picture: "largest on a patch of this row, the same for all heads",
};

/**
 * The legend in one line, so that it can stay visible on small screens without hiding rows.
 * @param {Scene} scene @param {Palette} colours
 */
export function legend(scene, colours) {
  const { beside, state } = scene;
  const bar = node("p", { class: "legend" });
  bar.append(...drawnScale(colourScale(scene, colours)));
  if (beside?.changes && state.mode === "heatmap") {
    bar.append(...drawnScale(changeScale(beside.most, colours, "; difference", "")));
  }
  return bar;
}

/** Explanations of other symbols. @param {Scene} scene */
export function symbolLegend(scene) {
  return describeSymbols(scene).map((sign) => node("span", {}, sign));
}

/** @param {Scene} scene */
function describeSymbols({ layer, matrix, state }) {
  return [
    ...(layer.relevant && state.mode === "heatmap" ? [DEPENDS] : []),
    ...(matrix.slices.some((slice) => slice.some(Number.isNaN)) ? [BROKEN] : []),
  ];
}

/** @param {Scene} scene @param {Palette} colours @returns {Ramp} */
export function colourScale(scene, colours) {
  const { changes, largest, matrix, state, scale } = scene;
  const shared = scene.effect ? "" : `, ${SCOPES[/** @type {string} */ (state.mode)] ?? SCALES.shared}`;
  if (changes) return changeScale(largest, colours, "change of the weight", shared);
  if (state.mode === "picture") return { from: "weight 0", to: largest.toFixed(3), of: shared, at: overlayColour };
  const heads = matrix.shown(state);
  const end = scale.name === "shared" || heads.length === 1 ? rangeEnd(scale, matrix, heads) : "each head's largest";
  const of = `, ${scale.name === "shared" ? shared.slice(2) : SCALES[scale.name]}${scale.aside ? "; first token set aside" : ""}`;
  const ends = scale.name === "rank" ? { from: "least weight", to: "largest", of } : { from: "weight 0", to: end, of };
  /** @param {number} share */
  const bent = (share) => (scale.name === "root" ? Math.sqrt(share) : share);
  if (state.mode !== "lines" && state.mode !== "arcs") return { ...ends, at: (share) => colours.at(bent(share)) };
  // Lines of a single head have its colour, those of several heads one colour each.
  const ink = matrix.heads === 1 ? colours.line : heads.length === 1 ? headColour(heads[0], colours.dark) : colours.ink;
  const power = state.mode === "arcs" ? CONTRAST : 1;
  return { ...ends, at: (share) => fade(ink, colours.paper, bent(share) ** power) };
}

/** @param {number} largest @param {Palette} colours @param {string} name @param {string} of @returns {Ramp} */
function changeScale(largest, colours, name, of) {
  const [from, to] = [`${name} −${largest.toFixed(3)}`, `+${largest.toFixed(3)}`];
  return { from, to, of, at: (share) => colours.change(2 * share - 1) };
}

/** @param {Ramp} ramp */
function drawnScale({ from, to, of, at }) {
  const canvas = node("canvas", { width: SCALE_WIDTH, height: SCALE_HEIGHT, "aria-hidden": "true" });
  const context = canvasContext(canvas);
  for (let x = 0; x < SCALE_WIDTH; x += 1) {
    context.fillStyle = cssColour(at(x / (SCALE_WIDTH - 1)));
    context.fillRect(x, 0, 1, SCALE_HEIGHT);
  }
  const end = node("span", { class: "of" }, to + of);
  return [from, canvas, end];
}

/**
 * The colour scale of a saved picture as a line of text.
 * @param {Scene} scene @param {Palette} colours @param {(text: string) => number} widthOfText
 */
export function legendLine(scene, colours, widthOfText) {
  const { from, to, of, at } = colourScale(scene, colours);
  const group = svg("g", { class: "scale" });
  const ramp = svg("linearGradient", { id: "regard-scale" });
  for (let step = 0; step <= 16; step += 1) {
    ramp.append(svg("stop", { offset: step / 16, "stop-color": cssColour(at(step / 16)) }));
  }
  const begin = widthOfText(from) + 6;
  const edge = { fill: "url(#regard-scale)", stroke: colours.ink, "stroke-width": 0.5 };
  const more = describeSymbols(scene)
    .map((sign) => `;  ${sign}`)
    .join("");
  group.append(
    ramp,
    svg("text", {}, from),
    svg("rect", { ...edge, x: begin, y: -SCALE_HEIGHT, width: SCALE_WIDTH, height: SCALE_HEIGHT }),
    svg("text", { x: begin + SCALE_WIDTH + 6 }, `${to}${of}${more}`),
  );
  const width = begin + SCALE_WIDTH + 6 + widthOfText(`${to}${of}${more}`);
  return { group, width };
}

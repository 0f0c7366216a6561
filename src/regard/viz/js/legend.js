// The bar below the picture: the meaning of the colours, their scale, and further choices of the drawing.

import { cached } from "./arithmetic.js";
import { cssColour } from "./colours.js";
import { buttonGroup, canvasContext, checkbox, dropdown, node, Part, select, withIcon } from "./dom.js";
import { hasWordPieces } from "./matrix.js";
import { overlayColour } from "./overlay.js";
import { SCALE_NAMES, SCALES, shareOf } from "./scale.js";
import { availableModes, comparableMaps } from "./scene.js";

/** @import { Colour, Palette } from "./colours.js" */
/** @import { Actions, Scene } from "./scene.js" */
/** @import { Pen } from "./pen.js" */

/**
 * @typedef {object} Ramp
 * @property {string} from meaning of its beginning
 * @property {string} to meaning of its end
 * @property {(share: number) => Colour} at the colour of a position from 0 to 1
 */

const WIDTH = 120; // pixels of the ramp
const HEIGHT = 12;
const LARGEST_OF_ROW = [1, 2, 3, 5, 10, 0];
const DEPENDS = "○ the output depends on this input";
const BROKEN = "■ (magenta) not finite: NaN or infinite";
const MODES = { picture: "Picture", heatmap: "Matrix", lines: "Lines", flow: "Flow" };

/** The ways to draw, as one group of buttons. @param {Scene} scene @param {Actions} actions */
export function modeSwitch({ map, layer, state }, { choose }) {
  const modes = availableModes(map, layer);
  const names = modes.map((mode) => MODES[mode]);
  const group = buttonGroup("Display", names, modes.indexOf(state.mode), (index) => choose({ mode: modes[index] }));
  [...group.children].forEach((child, index) => child instanceof HTMLElement && withIcon(child, modes[index]));
  return group;
}

/** @param {Scene} scene @param {Palette} colours @returns {Ramp} */
export function colourRamp(scene, colours) {
  const { changes, largest, matrix, state, scale, heads } = scene;
  if (changes) {
    const end = largest.toFixed(3);
    return { from: `change −${end}`, to: `+${end}`, at: (share) => colours.change(2 * share - 1) };
  }
  if (state.mode === "picture") return { from: "0", to: largest.toFixed(3), at: overlayColour };
  const to = scale.name === "own" && heads.length > 1 ? "largest of each head" : scale.end(matrix, heads);
  return { from: "0", to, at: (share) => colours.at(shareOf(share, 1)) };
}

/** What the symbols in a picture mean. @param {Scene} scene */
export function symbols({ layer, matrix, heads, state }) {
  return [
    ...(layer.relevant?.length && state.mode === "heatmap" ? [DEPENDS] : []),
    ...(heads.some((head) => cached(matrix.slices[head], "broken", () => matrix.slices[head].some(Number.isNaN)))
      ? [BROKEN]
      : []),
  ];
}

/**
 * The ramp with its ends; returns its width.
 * @param {Pen} pen @param {Ramp} ramp @param {Palette} colours @param {(text: string) => number} widthOf
 * @param {number} x @param {number} y its middle @param {number} [size] of the text
 */
export function paintRamp(pen, { from, to, at }, colours, widthOf, x, y, size) {
  const begin = x + widthOf(from) + 6;
  pen.text(x, y, from, { fill: colours.ink, size });
  for (let step = 0; step < WIDTH; step += 2)
    pen.rect({ x: begin + step, y: y - HEIGHT / 2, width: 2.5, height: HEIGHT }, { fill: cssColour(at(step / WIDTH)) });
  pen.rect({ x: begin, y: y - HEIGHT / 2, width: WIDTH, height: HEIGHT }, { stroke: colours.ink, width: 0.5 });
  pen.text(begin + WIDTH + 6, y, to, { fill: colours.ink, size });
  return widthOf(from) + WIDTH + 12 + widthOf(to);
}

export class Legend {
  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    this.ramp = new Part("ramp");
    this.scales = new Part();
    this.symbols = new Part("symbols");
    /** @type {Scene | null} */
    this.scene = null;
    this.choices = dropdown("View", () => (this.scene ? choices(this.scene, actions) : []));
    this.choices.element.classList.add("up");
    this.element = node("div", { class: "legend" });
    const parts = [this.ramp.element, this.scales.element, this.choices.element, this.symbols.element];
    this.element.append(...parts);
  }

  /** @param {Scene} scene @param {Palette} colours */
  show(scene, colours) {
    const { changes, state, scale } = scene;
    const before = this.scene;
    this.scene = scene;
    const ramp = colourRamp(scene, colours);
    this.ramp.show([ramp.from, ramp.to, !!changes, state.mode === "picture", colours], () => drawnRamp(ramp));
    const scaled = !changes && state.mode !== "picture";
    this.scales.show([scaled, scale.name], () => {
      if (!scaled) return [];
      const list = select("Colors", Object.values(SCALES), SCALE_NAMES.indexOf(scale.name), (index) =>
        this.actions.choose({ scale: SCALE_NAMES[index] }),
      );
      list.title = "The scale of the colors; small pictures of heads always share one";
      return [list];
    });
    const signs = symbols(scene);
    this.symbols.show(signs, () => signs.map((sign) => node("span", {}, sign)));
    if (before?.map !== scene.map || before?.state !== state) this.choices.refresh();
  }
}

/** @param {Ramp} ramp */
function drawnRamp({ from, to, at }) {
  const canvas = node("canvas", { width: WIDTH, height: HEIGHT, "aria-hidden": "true" });
  const context = canvasContext(canvas);
  for (let x = 0; x < WIDTH; x += 1) {
    context.fillStyle = cssColour(at(x / (WIDTH - 1)));
    context.fillRect(x, 0, 1, HEIGHT);
  }
  return [from, canvas, to];
}

/** Further choices of the drawing. @param {Scene} scene @param {Actions} actions */
function choices({ data, map, state, before, changes, matrix }, { choose }) {
  const controls = [
    checkbox("leave the first token out of the scale", state.aside, (aside) => choose({ aside })),
    checkbox("show the spaces before words", state.spaces, (spaces) => choose({ spaces })),
  ];
  if (map.layers.some(hasWordPieces))
    controls.push(checkbox("whole words", state.words, (words) => choose({ words, query: 0, key: null })));
  if (matrix.heads > 1 && state.mode !== "flow" && !state.beside)
    controls.push(checkbox("all heads of the layer", state.all ?? matrix.heads <= 4, (all) => choose({ all })));
  if (state.mode === "lines") {
    const names = LARGEST_OF_ROW.map((limit) => (limit ? `the ${limit} largest` : "all"));
    const at = LARGEST_OF_ROW.indexOf(state.top);
    controls.push(select("Lines of each row", names, at, (index) => choose({ top: LARGEST_OF_ROW[index] })));
  }
  const others = comparableMaps(data, map);
  if (others.length && state.mode === "heatmap") {
    const at = others.findIndex((entry) => entry.key === state.beside) + 1;
    const names = ["nothing", ...others.map((entry) => entry.name)];
    controls.push(select("Compare with", names, at, (index) => choose({ beside: others[index - 1]?.key ?? "" })));
  }
  if ((before || changes) && !state.beside && state.mode === "heatmap")
    controls.push(checkbox("difference to the original", state.change, (change) => choose({ change })));
  return controls;
}

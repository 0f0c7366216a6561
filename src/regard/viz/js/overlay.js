// The weights of one query on the patches of an image: a panel for each head. Steps that are not patches, such as
// the class token, are buttons above it.

import { imagePatches } from "./scene.js";
import { cssColour } from "./colours.js";
import { button, node, svg } from "./dom.js";
import { headImportance, percent, shortImportance } from "./labels.js";
import { arrangePanels, panelsPerRow } from "./panels.js";

/** @import { Actions, Scene, Surface, Patches } from "./scene.js" */

const LARGEST_COLOUR = [255, 106, 0]; // the largest weight: differs from the greys of light and dark images
const IMAGE_COLOUR = [150, 150, 150]; // the image in the colour scale
const OPACITY = 0.85; // maximal opacity, so that the image stays visible
const PICTURE = 260; // pixels of an image
const SINGLE_PICTURE = 460; // pixels of a single image
const SMALLEST_PICTURE = 120;
const ABOVE = 46; // pixels of the title of an image
const BELOW = 30; // pixels of the hint
const GUTTER = 16;
const HOW = "Select a patch to see its attention; with shift, to select its weight.";
/** @type {Record<string, [number, number]>} */
const NEXT_PATCH = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** The colour of a share of the largest weight, as in the scale. @param {number} share */
export function overlayColour(share) {
  return IMAGE_COLOUR.map((channel, index) => channel + OPACITY * share * (LARGEST_COLOUR[index] - channel));
}

/** @param {Scene} scene @param {Actions} actions @param {Surface} surface */
export function overlays(scene, actions, { width, height }) {
  const heads = scene.matrix.shown(scene.state);
  const largest = heads.length === 1 ? SINGLE_PICTURE : PICTURE;
  /** @param {number} beside */
  const sideOf = (beside) => {
    const wide = Math.floor((width + GUTTER) / beside) - GUTTER;
    const high = height === null ? wide : Math.floor((height - BELOW) / Math.ceil(heads.length / beside)) - ABOVE;
    return Math.min(largest, wide, Math.max(high, SMALLEST_PICTURE));
  };
  const usual = panelsPerRow(heads.length, Math.floor((width + GUTTER) / (largest + GUTTER)));
  const sides = heads.map((_, index) => sideOf(index + 1));
  const beside = height === null ? usual : sides.indexOf(Math.max(...sides)) + 1;
  const side = sideOf(beside);
  const figures = heads.map((head) => panel(scene, actions, head, side));
  const box = arrangePanels(figures, beside);
  box.append(node("p", { class: "quiet hint" }, HOW));
  return box;
}

/** @param {Scene} scene @param {Actions} actions @param {number} head @param {number} side */
function panel(scene, actions, head, side) {
  const { data, map, layer, matrix, state } = scene;
  const patches = imagePatches(map, layer);
  if (!patches) throw new Error(`${layer.name} has no patches`);
  const figure = node("figure", { class: "seen" });
  const caption = node("figcaption");
  caption.append(node("b", {}, matrix.name(head)));
  const worth = headImportance(data, layer.name, head, matrix.names);
  if (worth) caption.append(node("span", { class: "quiet" }, `off: loss ${shortImportance(worth)}`));
  caption.append(...otherSteps(scene, actions, head, patches));
  const picture = paintOverlay(scene, head, side);
  const label = `${matrix.name(head)}: attention of ${matrix.queries[state.query]} to the image`;
  const field = node("div", {
    role: "application",
    tabindex: 0,
    "data-name": `picture-${head}`,
    "aria-label": `${label}; arrow keys select a patch`,
  });
  field.append(picture);
  chooseBy(field, scene, actions, head, patches);
  figure.append(caption, field);
  return figure;
}

/**
 * The image in grey, with the weights of the selected query as coloured patches.
 * @param {Scene} scene @param {number} head
 * @param {number} width in pixels
 */
export function paintOverlay({ map, layer, matrix, state, largest }, head, width) {
  const patches = /** @type {Patches} */ (imagePatches(map, layer));
  const { first, rows, columns } = patches;
  const cell = width / columns;
  const height = cell * rows;
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const image = { width, height, preserveAspectRatio: "none", filter: "grayscale(1)" };
  picture.append(svg("image", { ...image, href: map.picture ?? "" }));
  /** @param {number} patch */
  const place = (patch) => ({ x: (patch % columns) * cell, y: Math.floor(patch / columns) * cell });
  const square = { width: cell, height: cell };
  matrix
    .row(matrix.slices[head], state.query)
    .subarray(first, first + rows * columns)
    .forEach((weight, patch) => {
      const opacity = (OPACITY * Math.min(weight / largest, 1)).toFixed(3);
      picture.append(
        svg("rect", { ...place(patch), ...square, fill: cssColour(LARGEST_COLOUR), "fill-opacity": opacity }),
      );
    });
  /** @param {number} step @param {string} colour @param {number} thick */
  const mark = (step, colour, thick) => {
    if (step < first || step >= first + rows * columns) return;
    const line = { fill: "none", stroke: colour, "stroke-width": thick };
    picture.append(svg("rect", { ...place(step - first), ...square, ...line }));
  };
  if (matrix.rows === matrix.columns) for (const [colour, thick] of RINGS) mark(state.query, colour, thick);
  if (state.key !== null) for (const [colour, thick] of RINGS) mark(state.key, colour, thick / 2);
  return picture;
}

/** @type {[string, number][]} */
const RINGS = [
  ["black", 5],
  ["white", 2.5],
];

// Buttons for the steps that are not patches, with their weights, to select them as queries.
/** @param {Scene} scene @param {Actions} actions @param {number} head @param {Patches} patches */
function otherSteps({ matrix, state }, actions, head, { first, rows, columns }) {
  const steps = matrix.keys.flatMap((_, step) => (step < first || step >= first + rows * columns ? [step] : []));
  return steps.slice(0, 5).map((step) => {
    const label = `${matrix.keys[step]} ${percent(matrix.at(head, state.query, step))}`;
    const element = button(label, () => actions.choose({ query: step, key: null, focus: head }), state.query === step);
    element.title = `Show the attention of ${matrix.keys[step]}; the number is the weight on it`;
    element.dataset.name = `step-${head}-${step}`;
    return element;
  });
}

/**
 * @param {HTMLElement} field @param {Scene} scene @param {Actions} actions @param {number} head
 * @param {Patches} patches
 */
function chooseBy(field, { matrix, state }, actions, head, { first, rows, columns }) {
  /** @param {MouseEvent} event */
  const at = (event) => {
    const { left, top, width, height } = field.getBoundingClientRect();
    const column = Math.min(columns - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * columns)));
    const row = Math.min(rows - 1, Math.max(0, Math.floor(((event.clientY - top) / height) * rows)));
    return first + row * columns + column;
  };
  /** @param {number} step @param {boolean} weight */
  const choose = (step, weight) => {
    if (weight || step >= matrix.rows) actions.choose({ key: step, focus: head });
    else actions.choose({ query: step, key: null, focus: head });
  };
  field.addEventListener("mousemove", (event) => actions.point(state.query, at(event), head));
  field.addEventListener("mouseleave", () => actions.rest());
  field.addEventListener("click", (event) => choose(at(event), event.shiftKey));
  field.addEventListener("keydown", (event) => {
    const by = NEXT_PATCH[event.key];
    if (!by) return;
    event.preventDefault();
    const from = (event.shiftKey ? state.key : null) ?? state.query;
    const patch = Math.max(0, from - first);
    const row = Math.min(rows - 1, Math.max(0, Math.floor(patch / columns) + by[0]));
    const column = Math.min(columns - 1, Math.max(0, (patch % columns) + by[1]));
    choose(first + row * columns + column, event.shiftKey);
  });
}

// The displayed weights as an SVG picture with a legend, the selected row and the selected weight.

import { cssColour, headDashes, headColour } from "./colours.js";
import { svg } from "./dom.js";
import { galleryPicture } from "./gallery.js";
import { legendLine } from "./legend.js";
import { widestText, textWidth } from "./text-width.js";
import { paintOverlay } from "./overlay.js";
import { AROUND, PANEL, pictureTitle, placeKey, sheet, TITLE, withFacts } from "./sheet.js";
import { axisTitles } from "./axis-titles.js";
import { ownRange } from "./scale.js";
import { cellSize } from "./viewport.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

const IMAGE_SIDE = 240; // pixels of an image with weights

/**
 * The displayed weights as a picture; a table becomes heatmaps.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 * @param {HTMLElement} stage contains the lines, if they are displayed
 */
export function makePicture(scene, colours, stage) {
  return withFacts(drawnHeads(scene, colours, stage), scene, colours);
}

/**
 * @param {Scene} scene
 * @param {Palette} colours
 * @param {HTMLElement} stage
 */
function drawnHeads(scene, colours, stage) {
  if (scene.state.mode === "picture") return overlayPicture(scene, colours);
  if (scene.state.mode === "overview") return galleryPicture(scene, colours);
  if (stage.querySelector(".lines > svg")) return linesPicture(scene, stage, colours);
  return heatmapPicture(scene, colours);
}

/**
 * The visible heads as rectangles and text.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
function heatmapPicture(scene, colours) {
  const { layer, matrix, state } = scene;
  const left = widestText(matrix.queries) + 12 + TITLE;
  const key = legendLine(scene, colours, textWidth);
  const top = widestText(matrix.keys) + 12 + 2 * TITLE;
  const cell = Math.max(10, cellSize(matrix, { left, top }, PANEL));
  const wide = left + matrix.columns * cell + AROUND;
  const high = top + matrix.rows * cell + AROUND;
  const heads = matrix.shown(state);
  const beside = Math.max(1, Math.min(heads.length, Math.floor((2 * PANEL) / wide)));
  const width = Math.max(beside * wide, textWidth(layer.title), key.width + AROUND, PANEL / 2) + AROUND;
  const down = AROUND + 1.5 * TITLE + Math.ceil(heads.length / beside) * high;
  const picture = sheet(width, down + 1.5 * TITLE, colours);
  picture.append(pictureTitle(scene, width), svg("text", { x: AROUND, y: AROUND + TITLE }, layer.title));
  placeKey(picture, key.group, down + TITLE / 2);
  heads.forEach((head, place) => {
    const x = AROUND + (place % beside) * wide;
    const y = AROUND + 1.5 * TITLE + Math.floor(place / beside) * high;
    const group = svg("g", { transform: `translate(${x} ${y})` });
    fillPanel(group, scene, colours, { head, left, top, cell });
    picture.append(group);
  });
  return picture;
}

/**
 * @param {SVGGElement} group
 * @param {Scene} scene
 * @param {Palette} colours
 * @param {{ head: number, left: number, top: number, cell: number }} place
 */
function fillPanel(group, scene, colours, { head, left, top, cell }) {
  const { matrix, changes, largest, scale, state } = scene;
  const { share } = scale.of(matrix, head);
  const { queries, keys, columns } = matrix;
  const [down, across] = axisTitles(scene);
  const ink = { fill: colours.ink };
  group.append(
    svg(
      "text",
      { ...ink, x: 0, y: TITLE - 8, "font-weight": "bold" },
      [matrix.name(head), ownRange(scene, head)].join("  "),
    ),
  );
  group.append(svg("text", { ...ink, x: left, y: TITLE - 8 }, `${across} →`));
  group.append(svg("text", { ...ink, transform: `translate(10 ${top}) rotate(90)` }, `${down} →`));
  queries.forEach((query, row) => {
    const y = top + (row + 0.5) * cell + 4;
    const place = {
      x: left - 6,
      y,
      "text-anchor": "end",
      "font-weight": row === state.query ? "bold" : "normal",
    };
    group.append(svg("text", { ...ink, ...place }, query));
  });
  keys.forEach((key, column) => {
    const turned = `translate(${left + (column + 0.5) * cell + 4} ${top - 6}) rotate(-90)`;
    const weight = column === state.key ? "bold" : "normal";
    group.append(svg("text", { ...ink, transform: turned, "font-weight": weight }, key));
  });
  const values = (changes ?? matrix.slices)[head];
  values.forEach((value, index) => {
    const x = left + (index % columns) * cell;
    const y = top + Math.floor(index / columns) * cell;
    const fill = cssColour(changes ? colours.change(value / largest) : colours.at(share(value)));
    group.append(svg("rect", { x, y, width: cell - 1, height: cell - 1, fill }));
  });
  if (scale.aside && !changes) {
    const column = { x: left, y: top, width: cell - 1, height: matrix.rows * cell - 1 };
    group.append(
      svg("rect", { ...column, fill: cssColour(colours.paper), stroke: colours.ink, "stroke-dasharray": "2 2" }),
    );
  }
  for (const [query, key] of matrix.relevant ?? []) {
    const dot = { cx: left + (key + 0.5) * cell, cy: top + (query + 0.5) * cell, r: 3 };
    group.append(svg("circle", { ...dot, fill: "white", stroke: "black" }));
  }
  const mark = { class: "chosen", fill: "none", stroke: colours.mark, "stroke-width": 1.5, height: cell };
  const y = top + state.query * cell;
  group.append(svg("rect", { ...mark, x: left, y, width: columns * cell }));
  if (state.key !== null) group.append(svg("rect", { ...mark, x: left + state.key * cell, y, width: cell }));
}

/**
 * The displayed lines with the legend of their heads.
 *
 * @param {Scene} scene
 * @param {HTMLElement} stage
 * @param {Palette} colours
 */
function linesPicture(scene, stage, colours) {
  const drawn = stage.querySelector(".lines > svg");
  const [width, height] = ["width", "height"].map((name) => Number(drawn?.getAttribute(name)));
  const { layer, matrix, state } = scene;
  const heads = matrix.shown(state);
  const top = AROUND + TITLE * (2 + (heads.length > 1 ? heads.length : 0));
  const key = legendLine(scene, colours, textWidth);
  const wide = Math.max(width, textWidth(layer.title), key.width) + 2 * AROUND;
  const picture = sheet(wide, height + top + AROUND + TITLE, colours);
  placeKey(picture, key.group, height + top + AROUND);
  picture.append(pictureTitle(scene, wide), svg("text", { x: AROUND, y: AROUND + TITLE }, layer.title));
  if (heads.length > 1)
    picture.append(...heads.flatMap((head, place) => keyLine(matrix.name(head), head, place, colours)));
  const group = svg("g", { transform: `translate(${AROUND} ${top})` });
  for (const child of drawn?.children ?? []) group.append(child.cloneNode(true));
  picture.append(group);
  return picture;
}

/**
 * The image with weights, once for each visible head.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
function overlayPicture(scene, colours) {
  const { layer, matrix, state } = scene;
  const heads = matrix.shown(state);
  const beside = Math.min(heads.length, 4);
  const panels = heads.map((head) => paintOverlay(scene, head, IMAGE_SIDE));
  const high = Number(panels[0].getAttribute("height")) + TITLE + AROUND;
  const words = `${layer.title}: attention of ${matrix.queries[state.query]}`;
  const key = legendLine(scene, colours, textWidth);
  const width = Math.max(beside * (IMAGE_SIDE + AROUND), textWidth(words), key.width + AROUND) + AROUND;
  const bottom = AROUND + 2 * TITLE + Math.ceil(heads.length / beside) * high;
  const picture = sheet(width, bottom + TITLE, colours);
  placeKey(picture, key.group, bottom);
  picture.append(pictureTitle(scene, width), svg("text", { x: AROUND, y: AROUND + TITLE }, words));
  panels.forEach((panel, place) => {
    const x = AROUND + (place % beside) * (IMAGE_SIDE + AROUND);
    const y = AROUND + 2.5 * TITLE + Math.floor(place / beside) * high;
    picture.append(svg("text", { x, y: y - 6 }, matrix.name(heads[place])));
    panel.setAttribute("x", String(x));
    panel.setAttribute("y", String(y));
    picture.append(panel);
  });
  return picture;
}

/**
 * The legend of a head, in one line.
 *
 * @param {string} name
 * @param {number} head
 * @param {number} place
 * @param {Palette} colours
 */
function keyLine(name, head, place, colours) {
  const y = AROUND + TITLE * (2 + place);
  const sample = { x1: AROUND, x2: AROUND + 28, y1: y - 4, y2: y - 4, "stroke-width": 3 };
  const line = svg("line", {
    ...sample,
    stroke: headColour(head, colours.dark),
    "stroke-dasharray": headDashes(head),
  });
  return [line, svg("text", { x: AROUND + 36, y }, name)];
}

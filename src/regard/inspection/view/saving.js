// What is shown, as a file: a picture (SVG, PNG) or numbers (CSV).

import { cellOf } from "./viewport.js";
import { css, dashes, hue } from "./colours.js";
import { csvOf } from "./csv.js";
import { button, node, svg } from "./dom.js";
import { FAMILY, widest } from "./measuring.js";
import { lit } from "./overlay.js";
import { axesOf } from "./sides.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

const PANEL = 900; // of a panel at most, pixels
const AROUND = 24; // around and between panels
const TITLE = 22; // height of a line of text
const MOST_CELLS = 60_000; // of more, a picture would be slower to open than the page
const LIT_SIDE = 240; // of a picture with weights upon it, pixels
const SHARP = 2; // pixels of a PNG for each of the page

/**
 * @param {Scene} scene
 * @param {Palette} colours
 * @param {HTMLElement} stage where the lines are, if it is lines that are shown
 */
export function saveButtons(scene, colours, stage) {
  const bar = node("div", { class: "bar", role: "group", "aria-label": "Save" });
  const name = `${scene.map.task}-${scene.layer.name}`.replace(/[^\w.-]+/g, "_");
  const drawn = ["heatmap", "lines", "arcs", "flow", "table"].includes(scene.state.mode);
  const picture = () => {
    if (scene.state.mode === "picture") return litPicture(scene, colours);
    return stage.querySelector(".lines > svg")
      ? linesPicture(scene, stage, colours)
      : heatmapPicture(scene, colours);
  };
  bar.append(node("span", { class: "quiet" }, "Save what is shown:"));
  const small = scene.state.mode === "picture";
  if (
    small ||
    (drawn && scene.matrix.rows * scene.matrix.columns * scene.matrix.shown(scene.state).length <= MOST_CELLS)
  ) {
    bar.append(
      button("PNG", () => rasterised(picture()).then((blob) => save(`${name}.png`, blob))),
      button("SVG", () => save(`${name}.svg`, new Blob([textOf(picture())], { type: "image/svg+xml" }))),
    );
  }
  bar.append(button("CSV", () => save(`${name}.csv`, new Blob([csvOf(scene)], { type: "text/csv" }))));
  return bar;
}

/**
 * The heads that are shown, as rectangles and text.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
export function heatmapPicture(scene, colours) {
  const { map, layer, matrix, state } = scene;
  const left = widest(matrix.queries) + 12 + TITLE;
  const top = widest(matrix.keys) + 12 + 2 * TITLE;
  const cell = Math.max(10, cellOf(matrix, { left, top }, PANEL));
  const wide = left + matrix.columns * cell + AROUND;
  const high = top + matrix.rows * cell + AROUND;
  const heads = matrix.shown(state);
  const beside = Math.max(1, Math.min(heads.length, Math.floor((2 * PANEL) / wide)));
  const words = `${map.task}: ${map.input}`;
  const width = Math.max(beside * wide, widest([words, layer.title])) + AROUND;
  const picture = sheet(width, AROUND + 2 * TITLE + Math.ceil(heads.length / beside) * high, colours);
  picture.append(svg("text", { x: AROUND, y: AROUND, "font-weight": "bold" }, words));
  picture.append(
    svg(
      "text",
      { x: AROUND, y: AROUND + TITLE },
      `${layer.title}; strongest colour: ${scene.largest.toFixed(3)}`,
    ),
  );
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
  const { matrix, changes, largest } = scene;
  const { queries, keys, columns } = matrix;
  const [down, across] = axesOf(scene);
  const ink = { fill: colours.ink };
  group.append(svg("text", { ...ink, x: 0, y: TITLE - 8, "font-weight": "bold" }, matrix.name(head)));
  group.append(svg("text", { ...ink, x: left, y: TITLE - 8 }, `${across} →`));
  group.append(svg("text", { ...ink, transform: `translate(10 ${top}) rotate(90)` }, `${down} →`));
  queries.forEach((query, row) => {
    const y = top + (row + 0.5) * cell + 4;
    group.append(svg("text", { ...ink, x: left - 6, y, "text-anchor": "end" }, query));
  });
  keys.forEach((key, column) => {
    const turned = `translate(${left + (column + 0.5) * cell + 4} ${top - 6}) rotate(-90)`;
    group.append(svg("text", { ...ink, transform: turned }, key));
  });
  const values = (changes ?? matrix.slices)[head];
  values.forEach((value, index) => {
    const x = left + (index % columns) * cell;
    const y = top + Math.floor(index / columns) * cell;
    const fill = css(changes ? colours.change(value / largest) : colours.at(value / largest));
    group.append(svg("rect", { x, y, width: cell - 1, height: cell - 1, fill }));
  });
  for (const [query, key] of matrix.relevant ?? []) {
    const dot = { cx: left + (key + 0.5) * cell, cy: top + (query + 0.5) * cell, r: 3 };
    group.append(svg("circle", { ...dot, fill: "white", stroke: "black" }));
  }
}

/**
 * The lines as they are drawn, with their heads.
 *
 * @param {Scene} scene
 * @param {HTMLElement} stage
 * @param {Palette} colours
 */
function linesPicture(scene, stage, colours) {
  const drawn = stage.querySelector(".lines > svg");
  const [width, height] = ["width", "height"].map((name) => Number(drawn?.getAttribute(name)));
  const { map, layer, matrix, state } = scene;
  const words = `${map.task}: ${map.input}`;
  const heads = matrix.shown(state);
  const top = AROUND + TITLE * (2 + (heads.length > 1 ? heads.length : 0));
  const wide = Math.max(width, widest([words, layer.title])) + 2 * AROUND;
  const picture = sheet(wide, height + top + AROUND, colours);
  picture.append(svg("text", { x: AROUND, y: AROUND, "font-weight": "bold" }, words));
  picture.append(svg("text", { x: AROUND, y: AROUND + TITLE }, layer.title));
  if (heads.length > 1) picture.append(...heads.flatMap((head, place) => keyLine(head, place, colours)));
  const group = svg("g", { transform: `translate(${AROUND} ${top})` });
  for (const each of drawn?.children ?? []) group.append(each.cloneNode(true));
  picture.append(group);
  return picture;
}

/**
 * The picture once for each head that is shown, with the weights upon it.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
function litPicture(scene, colours) {
  const { map, layer, matrix, state } = scene;
  const heads = matrix.shown(state);
  const beside = Math.min(heads.length, 4);
  const panels = heads.map((head) => lit(scene, head, LIT_SIDE));
  const high = Number(panels[0].getAttribute("height")) + TITLE + AROUND;
  const words = [`${map.task}: ${map.input}`, `${layer.title}: what ${matrix.queries[state.query]} looks at`];
  const width = Math.max(beside * (LIT_SIDE + AROUND), widest(words)) + AROUND;
  const picture = sheet(width, AROUND + 2 * TITLE + Math.ceil(heads.length / beside) * high, colours);
  words.forEach((line, place) => picture.append(svg("text", { x: AROUND, y: AROUND + place * TITLE }, line)));
  panels.forEach((panel, place) => {
    const x = AROUND + (place % beside) * (LIT_SIDE + AROUND);
    const y = AROUND + 2.5 * TITLE + Math.floor(place / beside) * high;
    picture.append(svg("text", { x, y: y - 6 }, matrix.name(heads[place])));
    panel.setAttribute("x", String(x));
    panel.setAttribute("y", String(y));
    picture.append(panel);
  });
  return picture;
}

/**
 * What belongs to a head, in a line.
 *
 * @param {number} head
 * @param {number} place
 * @param {Palette} colours
 */
function keyLine(head, place, colours) {
  const y = AROUND + TITLE * (2 + place);
  const sample = { x1: AROUND, x2: AROUND + 28, y1: y - 4, y2: y - 4, "stroke-width": 3 };
  const line = svg("line", { ...sample, stroke: hue(head, colours.dark), "stroke-dasharray": dashes(head) });
  return [line, svg("text", { x: AROUND + 36, y }, `head ${head}`)];
}

/**
 * An empty picture.
 *
 * @param {number} width
 * @param {number} height
 * @param {Palette} colours
 */
function sheet(width, height, colours) {
  const [wide, high] = [Math.ceil(width), Math.ceil(height)];
  const text = { "font-family": FAMILY, "font-size": 12, fill: colours.ink };
  const picture = svg("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, ...text });
  picture.append(svg("rect", { width: wide, height: high, fill: css(colours.paper) }));
  return picture;
}

/** @param {SVGSVGElement} picture */
function textOf(picture) {
  return new XMLSerializer().serializeToString(picture);
}

/**
 * @param {SVGSVGElement} picture
 * @returns {Promise<Blob>}
 */
async function rasterised(picture) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(textOf(picture))}`;
  await image.decode();
  const canvas = node("canvas", { width: SHARP * image.width, height: SHARP * image.height });
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large to be saved"))));
  });
}

/**
 * @param {string} name
 * @param {Blob} blob
 */
function save(name, blob) {
  const link = node("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

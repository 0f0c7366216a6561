// What is shown, as a picture of its own (SVG): with what the colours stand for, and the row and weight that are chosen.

import { css, dashes, hue } from "./colours.js";
import { node, svg } from "./dom.js";
import { signed } from "./labels.js";
import { legendLine } from "./legend.js";
import { FAMILY, widest, widthOf } from "./measuring.js";
import { lit } from "./overlay.js";
import { galleryOf, thumbPixels } from "./overview.js";
import { described, roleOf } from "./roles.js";
import { axesOf } from "./sides.js";
import { cellOf } from "./viewport.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */

const PANEL = 900; // of a panel at most, pixels
const AROUND = 24; // around and between panels
const TITLE = 22; // height of a line of text
const LIT_SIDE = 240; // of a picture with weights upon it, pixels
const THUMB = 136; // from head to head of a gallery, pixels

/**
 * Whatever is shown, but for a table, which is a picture of heatmaps.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 * @param {HTMLElement} stage where the lines are, if it is lines that are shown
 */
export function pictureOf(scene, colours, stage) {
  if (scene.state.mode === "picture") return litPicture(scene, colours);
  if (scene.state.mode === "overview") return galleryPicture(scene, colours);
  if (stage.querySelector(".lines > svg")) return linesPicture(scene, stage, colours);
  return heatmapPicture(scene, colours);
}

/**
 * The heads that are shown, as rectangles and text.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
function heatmapPicture(scene, colours) {
  const { map, layer, matrix, state } = scene;
  const left = widest(matrix.queries) + 12 + TITLE;
  const key = legendLine(scene, colours, widthOf);
  const top = widest(matrix.keys) + 12 + 2 * TITLE;
  const cell = Math.max(10, cellOf(matrix, { left, top }, PANEL));
  const wide = left + matrix.columns * cell + AROUND;
  const high = top + matrix.rows * cell + AROUND;
  const heads = matrix.shown(state);
  const beside = Math.max(1, Math.min(heads.length, Math.floor((2 * PANEL) / wide)));
  const words = `${map.task}: ${map.input}`;
  const width = Math.max(beside * wide, widest([words, layer.title]), key.width + AROUND) + AROUND;
  const down = AROUND + 1.5 * TITLE + Math.ceil(heads.length / beside) * high;
  const picture = sheet(width, down + 1.5 * TITLE, colours);
  picture.append(svg("text", { x: AROUND, y: AROUND, "font-weight": "bold" }, words));
  picture.append(svg("text", { x: AROUND, y: AROUND + TITLE }, layer.title));
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
  const { matrix, changes, largest, state } = scene;
  const { queries, keys, columns } = matrix;
  const [down, across] = axesOf(scene);
  const ink = { fill: colours.ink };
  group.append(svg("text", { ...ink, x: 0, y: TITLE - 8, "font-weight": "bold" }, matrix.name(head)));
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
    const fill = css(changes ? colours.change(value / largest) : colours.at(value / largest));
    group.append(svg("rect", { x, y, width: cell - 1, height: cell - 1, fill }));
  });
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
  const key = legendLine(scene, colours, widthOf);
  const wide = Math.max(width, widest([words, layer.title]), key.width) + 2 * AROUND;
  const picture = sheet(wide, height + top + AROUND + TITLE, colours);
  placeKey(picture, key.group, height + top + AROUND);
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
  const key = legendLine(scene, colours, widthOf);
  const width = Math.max(beside * (LIT_SIDE + AROUND), widest(words), key.width + AROUND) + AROUND;
  const bottom = AROUND + 2 * TITLE + Math.ceil(heads.length / beside) * high;
  const picture = sheet(width, bottom + TITLE, colours);
  placeKey(picture, key.group, bottom);
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
 * All heads of all layers, small, in the order in which they are shown.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
function galleryPicture(scene, colours) {
  const { map, data } = scene;
  const words = `${map.task}: ${map.input}`;
  const rows = galleryOf(scene);
  const sorted = rows.length === 1 && map.layers.length > 1;
  const most = Math.max(...rows.map((heads) => heads.length));
  const beside = Math.max(1, Math.min(most, Math.floor((2 * PANEL) / THUMB)));
  const key = legendLine(scene, colours, widthOf);
  const titles = rows.map((heads) => heads[0]?.layer.title ?? "");
  const wide = Math.max(beside * THUMB, widest([words, ...titles]), key.width) + 2 * AROUND;
  const group = svg("g");
  let y = AROUND + TITLE;
  for (const [place, heads] of rows.entries()) {
    const tallest = Math.max(...heads.map((each) => thumbPixels(scene, each, colours).height));
    const high = tallest + 18 + 15 * (1 + Number(sorted) + Number(Boolean(data.roles?.[heads[0].layer.name])));
    group.append(svg("text", { x: AROUND, y, "font-weight": "bold" }, sorted ? "" : titles[place]));
    heads.forEach((each, number) => {
      const x = AROUND + (number % beside) * THUMB;
      const top = y + 10 + Math.floor(number / beside) * high;
      const { canvas, width, height } = thumbPixels(scene, each, colours);
      const worth = each.added === undefined ? "" : ` ${signed(each.added)}`;
      const role = roleOf(data, each.layer.name, each.head);
      const lines = [
        `head ${each.head}${worth}`,
        ...(sorted ? [each.layer.name] : []),
        ...(role ? [described(role)] : []),
      ];
      group.append(svg("image", { x, y: top, width, height, href: enlarged(canvas, width, height) }));
      group.append(
        svg("rect", { x, y: top, width, height, fill: "none", stroke: colours.ink, "stroke-opacity": 0.3 }),
      );
      lines.forEach((line, at) => {
        const shortened = { textLength: THUMB - 8, lengthAdjust: "spacingAndGlyphs" };
        const fit = widthOf(line) > THUMB - 8 ? shortened : {};
        group.append(svg("text", { ...fit, x, y: top + height + 14 + 15 * at, "font-size": 11 }, line));
      });
    });
    y += Math.ceil(heads.length / beside) * high + TITLE;
  }
  const picture = sheet(wide, y + 1.5 * TITLE, colours);
  picture.append(svg("text", { x: AROUND, y: AROUND, "font-weight": "bold" }, words), group);
  placeKey(picture, key.group, y + TITLE / 2);
  return picture;
}

/**
 * A canvas as an address, so large that its cells stay sharp.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
function enlarged(canvas, width, height) {
  const times = Math.max(1, Math.ceil((3 * Math.max(width, height)) / Math.max(canvas.width, canvas.height)));
  const large = node("canvas", { width: canvas.width * times, height: canvas.height * times });
  const context = large.getContext("2d");
  if (context) {
    context.imageSmoothingEnabled = false;
    context.drawImage(canvas, 0, 0, large.width, large.height);
  }
  return large.toDataURL();
}

/**
 * @param {SVGSVGElement} picture
 * @param {SVGGElement} key what the colours stand for
 * @param {number} y
 */
function placeKey(picture, key, y) {
  key.setAttribute("transform", `translate(${AROUND} ${y})`);
  picture.append(key);
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

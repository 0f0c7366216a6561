// The poster of all heads as an SVG picture, for a paper or a talk.

import { node, svg } from "./dom.js";
import { headName } from "./labels.js";
import { shortNames } from "./layer-names.js";
import { legendLine } from "./legend.js";
import { widestText, textWidth } from "./text-width.js";
import { measureBars, measureMatrix } from "./measure-charts.js";
import { chosenMeasure } from "./measures.js";
import { posterRows } from "./poster.js";
import { posterScale } from "./scene-scale.js";
import { headRole, shortRole } from "./roles.js";
import { thumbPixels } from "./thumbs.js";
import { AROUND, PANEL, pictureTitle, placeKey, sheet, TITLE } from "./sheet.js";
import { headImportance, shortImportance } from "./importance.js";

/** @import { Palette } from "./colours.js" */
/** @import { Small } from "./ranking.js" */
/** @import { Scene } from "./scene.js" */

const LARGEST = 120; // pixels of a head
const SMALLEST = 26;
const WRITTEN = 60; // pixels of a head below which nothing is written under it
const MEASURE_BAR = 5; // pixels of the bar below a head

/**
 * All heads of all layers in the displayed order, or the displayed chart.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
export function galleryPicture(scene, colours) {
  return scene.state.chart === "heads" ? posterPicture(scene, colours) : chartPicture(scene, colours);
}

/**
 * @param {Scene} scene
 * @param {Palette} colours
 */
function chartPicture(scene, colours) {
  const { state } = scene;
  const { title, unit } = chosenMeasure(scene);
  const drawn = (state.chart === "bars" ? measureBars : measureMatrix)(scene, colours, PANEL);
  const [width, height] = ["width", "height"].map((name) => Number(drawn.getAttribute(name)));
  const line = `${title}: ${unit}`;
  const wide = Math.max(width, textWidth(line), PANEL / 2) + 2 * AROUND;
  const picture = sheet(wide, height + 2 * AROUND + 2 * TITLE, colours);
  picture.append(pictureTitle(scene, wide), svg("text", { x: AROUND, y: AROUND + TITLE }, line));
  const group = svg("g", { transform: `translate(${AROUND} ${AROUND + 1.5 * TITLE})` });
  group.append(...drawn.children);
  picture.append(group);
  return picture;
}

/**
 * @param {Scene} scene
 * @param {Palette} colours
 */
function posterPicture(scene, colours) {
  const { map } = scene;
  const rows = posterRows(scene);
  const sorted = rows.length === 1 && map.layers.length > 1;
  const widest = Math.max(...rows.map((heads) => heads.length));
  const side = Math.max(SMALLEST, Math.min(LARGEST, (2 * PANEL) / widest - 8));
  const step = side + 8;
  const beside = sorted ? Math.min(widest, Math.floor((2 * PANEL) / step)) : widest;
  const names = shortNames(map.layers);
  const titles = rows.map((heads) => (sorted ? "" : rowTitle(heads[0], map.layers, names)));
  const left = AROUND + widestText(titles) + 8;
  const key = legendLine(scene, colours, textWidth);
  const bar = `bar below a head: ${chosenMeasure(scene).title} (${chosenMeasure(scene).unit})`;
  const wide = Math.max(left + beside * step, textWidth(bar) + AROUND, key.width + AROUND) + AROUND;
  const group = svg("g");
  let y = AROUND + TITLE;
  rows.forEach((heads, place) => {
    const lines = heads.map((head) => captionOf(scene, head, sorted, names));
    const written = side >= WRITTEN ? Math.max(...lines.map((texts) => texts.length)) : 0;
    const tallest = Math.max(...heads.map((head) => thumbOf(scene, head, colours, side).height));
    const high = tallest + MEASURE_BAR + 6 + 14 * written;
    group.append(svg("text", { x: left - 8, y: y + tallest / 2 + 4, "text-anchor": "end" }, titles[place]));
    heads.forEach((head, number) => {
      const at = { x: left + (number % beside) * step, y: y + Math.floor(number / beside) * high };
      group.append(...drawnHead(scene, head, colours, side, at));
      lines[number].slice(0, written).forEach((line, row) => {
        const fit = textWidth(line) > step - 4 ? { textLength: step - 4, lengthAdjust: "spacingAndGlyphs" } : {};
        const below = at.y + thumbOf(scene, head, colours, side).height + MEASURE_BAR + 14 + 14 * row;
        group.append(svg("text", { ...fit, x: at.x, y: below, "font-size": 11 }, line));
      });
    });
    y += Math.ceil(heads.length / beside) * high + 4;
  });
  const picture = sheet(wide, y + 3 * TITLE, colours);
  picture.append(pictureTitle(scene, wide), group);
  placeKey(picture, key.group, y + TITLE);
  picture.append(svg("text", { x: AROUND, y: y + 2 * TITLE }, bar));
  return picture;
}

/**
 * @param {Small} first
 * @param {Scene["map"]["layers"]} layers
 * @param {Map<string, string>} names
 */
function rowTitle({ layer }, layers, names) {
  const kinds = new Set(layers.map((candidate) => candidate.kind)).size;
  return `${kinds > 1 ? layer.kind : "layer"} ${names.get(layer.name)}`;
}

/**
 * @param {Scene} scene
 * @param {Small} small
 * @param {Palette} colours
 * @param {number} side
 */
function thumbOf(scene, { layer, head }, colours, side) {
  return thumbPixels({ matrix: scene.shown(layer), head, scale: posterScale(scene, layer.kind) }, colours, side);
}

/**
 * @param {Scene} scene
 * @param {Small} small
 * @param {Palette} colours
 * @param {number} side
 * @param {{ x: number, y: number }} at
 */
function drawnHead(scene, small, colours, side, at) {
  const { canvas, width, height } = thumbOf(scene, small, colours, side);
  const found = chosenMeasure(scene).of(small.layer, small.head);
  const share = found ? Math.max(0, Math.min(found.value / fullBar(scene), 1)) : 0;
  const frame = { fill: "none", stroke: colours.ink, "stroke-opacity": 0.3 };
  const bar = { x: at.x, y: at.y + height + 2, height: MEASURE_BAR - 2, fill: colours.mark };
  return [
    svg("image", {
      ...at,
      width,
      height,
      preserveAspectRatio: "none",
      href: enlargeCanvas(canvas, width, height),
    }),
    svg("rect", { ...at, width, height, ...frame }),
    svg("rect", { ...bar, width: side, "fill-opacity": 0.15 }),
    svg("rect", { ...bar, width: side * share, "fill-opacity": found?.sure ? 1 : 0.5 }),
  ];
}

/**
 * The value of a full bar.
 *
 * @param {Scene} scene
 */
function fullBar(scene) {
  const measured = chosenMeasure(scene);
  if (!["importance", "distance"].includes(measured.name)) return 1;
  const values = posterRows(scene)
    .flat()
    .map(({ layer, head }) => measured.of(layer, head)?.value ?? 0);
  return Math.max(...values, 1e-9);
}

/**
 * @param {Scene} scene
 * @param {Small} small
 * @param {boolean} sorted
 * @param {Map<string, string>} names
 */
function captionOf({ data, map }, { layer, head }, sorted, names) {
  const worth = headImportance(data, layer.name, head);
  const role = headRole(data, layer.name, head);
  return [
    `${headName(layer, head)}${worth ? ` ${shortImportance(worth)}` : ""}`,
    ...(sorted ? [rowTitle({ layer, head }, map.layers, names)] : []),
    ...(role ? [shortRole(role)] : []),
  ];
}

/**
 * A canvas as a data URL, enlarged so that its cells stay sharp.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
function enlargeCanvas(canvas, width, height) {
  const times = Math.max(1, Math.ceil((3 * Math.max(width, height)) / Math.max(canvas.width, canvas.height)));
  const large = node("canvas", { width: canvas.width * times, height: canvas.height * times });
  const context = large.getContext("2d");
  if (context) {
    context.imageSmoothingEnabled = false;
    context.drawImage(canvas, 0, 0, large.width, large.height);
  }
  return large.toDataURL();
}

// The poster of all heads as an SVG picture, for a paper or a talk.

import { node, svg } from "./dom.js";
import { headName } from "./labels.js";
import { shortNames } from "./layer-names.js";
import { legendLine } from "./legend.js";
import { textWidth } from "./text-width.js";
import { chosenMeasure } from "./measures.js";
import { posterRows } from "./poster.js";
import { posterScale } from "./scene-scale.js";
import { headRole, shortRole } from "./roles.js";
import { thumbPixels } from "./thumbs.js";
import { AROUND, pictureTitle, placeKey, sheet } from "./sheet.js";
import { headImportance, shortImportance } from "./importance.js";

/** @import { Palette } from "./colours.js" */
/** @import { Small } from "./ranking.js" */
/** @import { Scene } from "./scene.js" */

const POSTER_WIDTH = 1100; // pixels of a row of heads
const LARGEST_HEAD = 120; // pixels of a head
const SMALLEST_HEAD = 26;
const POSTER_GAP = 8; // pixels between heads
const PLAIN_TEXT = 12; // pixels of the text of a saved picture
const POSTER_LABEL = 24; // pixels of the title and of the numbers: 2 % of the width, 18 points on a slide
const POSTER_KEY = 18; // pixels of the legend
const POSTER_CAPTION = 14; // pixels of what is written below a head
const WRITTEN = 60; // pixels of a head below which nothing is written under it
const MEASURE_BAR = 5; // pixels of the bar below a head

/**
 * The width of a text of `size` pixels.
 *
 * @param {string} text
 * @param {number} size
 */
function widthAt(text, size) {
  return (textWidth(text) * size) / PLAIN_TEXT;
}

/**
 * All heads, with labels that can be read on a slide from the back of a room.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 */
export function posterPicture(scene, colours) {
  const { map } = scene;
  const rows = posterRows(scene);
  const sorted = rows.length === 1 && map.layers.length > 1;
  const widest = Math.max(...rows.map((heads) => heads.length));
  const side = Math.max(SMALLEST_HEAD, Math.min(LARGEST_HEAD, POSTER_WIDTH / widest - POSTER_GAP));
  const step = side + POSTER_GAP;
  const beside = sorted ? Math.min(widest, Math.floor(POSTER_WIDTH / step)) : widest;
  const names = shortNames(map.layers);
  const titles = rows.map((heads) => (sorted ? "" : rowTitle(heads[0], map.layers, names)));
  const left = AROUND + Math.max(...titles.map((title) => widthAt(title, POSTER_LABEL))) + 12;
  const key = legendLine(scene, colours, textWidth);
  const bar = `bar below a head: ${chosenMeasure(scene).title} (${chosenMeasure(scene).unit})`;
  const lowest = Math.max(widthAt(bar, POSTER_KEY), (key.width * POSTER_KEY) / PLAIN_TEXT);
  const width = Math.max(left + beside * step, lowest + AROUND) + AROUND;
  const group = svg("g");
  let y = AROUND + 2 * POSTER_LABEL;
  if (!sorted) {
    for (let head = 0; head < widest; head += 1) {
      const at = {
        x: left + head * step + side / 2,
        y: y + POSTER_LABEL / 2,
        "text-anchor": "middle",
        "font-size": POSTER_LABEL,
      };
      group.append(svg("text", at, String(head)));
    }
    group.append(
      svg(
        "text",
        { x: left - 12, y: y + POSTER_LABEL / 2, "text-anchor": "end", "font-size": POSTER_LABEL },
        "head",
      ),
    );
    y += POSTER_LABEL;
  }
  rows.forEach((heads, place) => {
    const lines = heads.map((head) => captionOf(scene, head, sorted, names));
    const written = side >= WRITTEN ? Math.max(...lines.map((texts) => texts.length)) : 0;
    const tallest = Math.max(...heads.map((head) => thumbOf(scene, head, colours, side).height));
    const high = tallest + MEASURE_BAR + POSTER_GAP + POSTER_CAPTION * 1.2 * written;
    const middle = {
      x: left - 12,
      y: y + tallest / 2 + POSTER_LABEL / 3,
      "text-anchor": "end",
      "font-size": POSTER_LABEL,
    };
    group.append(svg("text", middle, titles[place]));
    heads.forEach((head, number) => {
      const at = { x: left + (number % beside) * step, y: y + Math.floor(number / beside) * high };
      group.append(...drawnHead(scene, head, colours, side, at));
      lines[number].slice(0, written).forEach((line, row) => {
        const fit =
          widthAt(line, POSTER_CAPTION) > side ? { textLength: side, lengthAdjust: "spacingAndGlyphs" } : {};
        const below = at.y + tallest + MEASURE_BAR + POSTER_CAPTION * (1 + 1.2 * row);
        group.append(svg("text", { ...fit, x: at.x, y: below, "font-size": POSTER_CAPTION }, line));
      });
    });
    y += Math.ceil(heads.length / beside) * high;
  });
  const picture = sheet(width, y + 4 * POSTER_KEY, colours);
  picture.append(pictureTitle(scene, width, POSTER_LABEL), group);
  placeKey(picture, key.group, y + 1.5 * POSTER_KEY, POSTER_KEY / PLAIN_TEXT);
  picture.append(svg("text", { x: AROUND, y: y + 3 * POSTER_KEY, "font-size": POSTER_KEY }, bar));
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
  const measured = chosenMeasure(scene).of(small.layer, small.head);
  const share = measured ? Math.max(0, Math.min(measured.value / fullBar(scene), 1)) : 0;
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
    svg("rect", { ...bar, width: side * share, "fill-opacity": measured?.sure ? 1 : 0.5 }),
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
    ...(sorted || worth
      ? [`${sorted ? headName(layer, head) : ""}${worth ? ` ${shortImportance(worth)}` : ""}`]
      : []),
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

// The displayed weights as an SVG picture with a legend, the selected row and the selected weight.

import { cssColour, headColour, headDashes } from "./colours.js";
import { button, FAMILY, node, oneTabStop, svg, textWidth, widestText, withIcon } from "./dom.js";
import { colourScale, legendLine } from "./legend.js";
import { paintOverlay } from "./overlay.js";
import {
  axisTitles,
  fitLabel,
  headImportance,
  headName,
  headRole,
  revealHidden,
  shortImportance,
  shortNames,
  shortRole,
} from "./labels.js";
import { ownRange, posterScale } from "./scale.js";
import { cellSize } from "./viewport.js";
import { measureBars, measureMatrix, posterRows } from "./poster.js";
import { availableMeasures, chosenMeasure, measure } from "./measures.js";
import { thumbPixels } from "./painting.js";
import { answerText } from "./sentence.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */
/** @import { Small } from "./poster.js" */

const IMAGE_SIDE = 240; // pixels of an image with weights

/**
 * The displayed weights as a picture; a table becomes heatmaps.
 * @param {Scene} scene @param {Palette} colours
 * @param {HTMLElement} stage contains the lines, if they are displayed
 */
export function makePicture(scene, colours, stage) {
  return withFacts(drawnHeads(scene, colours, stage), scene, colours);
}

/** @param {Scene} scene @param {Palette} colours @param {HTMLElement} stage */
function drawnHeads(scene, colours, stage) {
  if (scene.state.mode === "picture") return overlayPicture(scene, colours);
  if (scene.state.mode === "overview") return galleryPicture(scene, colours);
  if (stage.querySelector(".lines > svg")) return linesPicture(scene, stage, colours);
  return heatmapPicture(scene, colours);
}

/** The visible heads as rectangles and text. @param {Scene} scene @param {Palette} colours */
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
 * @param {SVGGElement} group @param {Scene} scene @param {Palette} colours
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
    const place = { x: left - 6, y, "text-anchor": "end", "font-weight": row === state.query ? "bold" : "normal" };
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

// The displayed lines with the legend of their heads.
/** @param {Scene} scene @param {HTMLElement} stage @param {Palette} colours */
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

/** The image with weights, once for each visible head. @param {Scene} scene @param {Palette} colours */
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

// The legend of a head, in one line.
/** @param {string} name @param {number} head @param {number} place @param {Palette} colours */
function keyLine(name, head, place, colours) {
  const y = AROUND + TITLE * (2 + place);
  const sample = { x1: AROUND, x2: AROUND + 28, y1: y - 4, y2: y - 4, "stroke-width": 3 };
  const line = svg("line", { ...sample, stroke: headColour(head, colours.dark), "stroke-dasharray": headDashes(head) });
  return [line, svg("text", { x: AROUND + 36, y }, name)];
}

// The overview as an SVG picture: the poster of all heads, or the displayed chart.

// All heads of all layers in the displayed order, or the displayed chart.
/** @param {Scene} scene @param {Palette} colours */
function galleryPicture(scene, colours) {
  return scene.state.chart === "heads" ? posterPicture(scene, colours) : chartPicture(scene, colours);
}

/** @param {Scene} scene @param {Palette} colours */
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

// The poster of all heads as an SVG picture, for a paper or a talk.

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

/** The width of a text of `size` pixels. @param {string} text @param {number} size */
function widthAt(text, size) {
  return (textWidth(text) * size) / PLAIN_TEXT;
}

// All heads, with labels that can be read on a slide from the back of a room.
/** @param {Scene} scene @param {Palette} colours */
function posterPicture(scene, colours) {
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
      svg("text", { x: left - 12, y: y + POSTER_LABEL / 2, "text-anchor": "end", "font-size": POSTER_LABEL }, "head"),
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
        const fit = widthAt(line, POSTER_CAPTION) > side ? { textLength: side, lengthAdjust: "spacingAndGlyphs" } : {};
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

/** @param {Small} first @param {Scene["map"]["layers"]} layers @param {Map<string, string>} names */
function rowTitle({ layer }, layers, names) {
  const kinds = new Set(layers.map((candidate) => candidate.kind)).size;
  return `${kinds > 1 ? layer.kind : "layer"} ${names.get(layer.name)}`;
}

/** @param {Scene} scene @param {Small} small @param {Palette} colours @param {number} side */
function thumbOf(scene, { layer, head }, colours, side) {
  return thumbPixels({ matrix: scene.shown(layer), head, scale: posterScale(scene, layer.kind) }, colours, side);
}

/**
 * @param {Scene} scene @param {Small} small @param {Palette} colours @param {number} side
 * @param {{ x: number, y: number }} at
 */
function drawnHead(scene, small, colours, side, at) {
  const { canvas, width, height } = thumbOf(scene, small, colours, side);
  const measured = chosenMeasure(scene).of(small.layer, small.head);
  const share = measured ? Math.max(0, Math.min(measured.value / fullBar(scene), 1)) : 0;
  const frame = { fill: "none", stroke: colours.ink, "stroke-opacity": 0.3 };
  const bar = { x: at.x, y: at.y + height + 2, height: MEASURE_BAR - 2, fill: colours.mark };
  return [
    svg("image", { ...at, width, height, preserveAspectRatio: "none", href: enlargeCanvas(canvas, width, height) }),
    svg("rect", { ...at, width, height, ...frame }),
    svg("rect", { ...bar, width: side, "fill-opacity": 0.15 }),
    svg("rect", { ...bar, width: side * share, "fill-opacity": measured?.sure ? 1 : 0.5 }),
  ];
}

/** The value of a full bar. @param {Scene} scene */
function fullBar(scene) {
  const measured = chosenMeasure(scene);
  if (!["importance", "distance"].includes(measured.name)) return 1;
  const values = posterRows(scene)
    .flat()
    .map(({ layer, head }) => measured.of(layer, head)?.value ?? 0);
  return Math.max(...values, 1e-9);
}

/** @param {Scene} scene @param {Small} small @param {boolean} sorted @param {Map<string, string>} names */
function captionOf({ data, map }, { layer, head }, sorted, names) {
  const worth = headImportance(data, layer.name, head);
  const role = headRole(data, layer.name, head);
  return [
    ...(sorted || worth ? [`${sorted ? headName(layer, head) : ""}${worth ? ` ${shortImportance(worth)}` : ""}`] : []),
    ...(sorted ? [rowTitle({ layer, head }, map.layers, names)] : []),
    ...(role ? [shortRole(role)] : []),
  ];
}

// A canvas as a data URL, enlarged so that its cells stay sharp.
/** @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
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

// The frame of all saved pictures: paper, margins, and a line with the legend.

const PANEL = 900; // maximal width of a panel in pixels
const AROUND = 24; // pixels around and between panels
const LEAST_TITLE = 320; // pixels
const TITLE = 22; // height of a line of text in pixels

/** An empty picture. @param {number} width @param {number} height @param {Palette} colours */
function sheet(width, height, colours) {
  const [wide, high] = [Math.ceil(width), Math.ceil(height)];
  const text = { "font-family": FAMILY, "font-size": 12, fill: colours.ink };
  const picture = svg("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, ...text });
  picture.append(svg("rect", { width: wide, height: high, fill: cssColour(colours.paper) }));
  return picture;
}

/**
 * The title of a picture, cut at its width; the whole input is in the description.
 * @param {Scene} scene
 * @param {number} width of the picture in pixels
 * @param {number} [size] of the text in pixels
 */
function pictureTitle({ map }, width, size = 12) {
  const words = `${map.task}: ${map.input}`.replace(/\s+/g, " ");
  const room = Math.max(width - 2 * AROUND, LEAST_TITLE);
  const text = { x: AROUND, y: AROUND + size / 3, "font-weight": "bold", "font-size": size };
  return svg("text", text, fitLabel(words, (12 * room) / size, textWidth));
}

/**
 * @param {SVGSVGElement} picture
 * @param {SVGGElement} key room for the legend
 * @param {number} y
 * @param {number} [factor] of its size
 */
function placeKey(picture, key, y, factor = 1) {
  key.setAttribute("transform", `translate(${AROUND} ${y}) scale(${factor})`);
  picture.append(key);
}

// A picture with a caption below it and its metadata as the description.
/** @param {SVGSVGElement} picture @param {Scene} scene @param {Palette} colours */
function withFacts(picture, scene, colours) {
  const facts = collectMetadata(scene, colours);
  const lines = captionLines(scene);
  const [wide, high] = ["width", "height"].map((name) => Number(picture.getAttribute(name)));
  const width = Math.max(wide, Math.ceil(widestText(lines)) + 2 * AROUND);
  const height = high + lines.length * TITLE;
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
    picture.setAttribute(name, String(value));
  }
  for (const [name, value] of Object.entries({ width, height }))
    picture.querySelector("rect")?.setAttribute(name, String(value));
  lines.forEach((line, place) => {
    picture.append(svg("text", { x: AROUND, y: high + (place + 0.4) * TITLE, class: "caption" }, line));
  });
  picture.prepend(
    svg("title", {}, `${scene.map.task}: ${scene.map.input}`),
    svg("desc", {}, facts.map(([name, text]) => `${name}: ${text}`).join("\n")),
  );
  return picture;
}

// Captions and metadata of saved pictures and tables: the model, interventions, colour scale and prediction.

/** @typedef {[name: string, said: string]} Fact */

/** All facts about the displayed weights. @param {Scene} scene @param {Palette} colours @returns {Fact[]} */
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
    layer.square > 1 ? ["squares", `each weight is the largest of ${layer.square} x ${layer.square} steps`] : null,
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
  return facts.filter((fact) => fact !== null).map(([name, text]) => [name, revealHidden(text).replace(/\s+/g, " ")]);
}

/** Caption lines with the prediction and the interventions. @param {Scene} scene */
function captionLines({ map }) {
  const done = map.interventions;
  const lines = done.length ? [`Interventions: ${done.join("; ")}`] : [];
  if (map.prediction !== null) {
    const before = done.length ? `, without interventions: ${answerText(map.original_prediction)}` : "";
    lines.push(`Prediction: ${answerText(map.prediction)}${before}`);
  }
  return lines.flatMap((line) => wrapCaption(revealHidden(line)));
}

const CAPTION = 110; // characters of a line

/** Wraps a text into caption lines. @param {string} text */
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

// Saving the displayed weights to a file: a picture (SVG, PNG) or numbers (CSV).

const MOST_CELLS = 60_000; // a picture of more cells would open more slowly than the page
const SHARP = 2; // PNG pixels per CSS pixel

/**
 * @param {Scene} scene @param {Palette} colours
 * @param {HTMLElement} stage contains the lines, if they are displayed
 */
export function saveButtons(scene, colours, stage) {
  const name = `${scene.map.task}-${scene.layer.name}`.replace(/[^\w.-]+/g, "_");
  const picture = () => makePicture(scene, colours, stage);
  const label = withIcon(node("span", { class: "quiet" }, "Save"), "save");
  /** @type {HTMLElement[]} */
  const pictures = [];
  const { matrix, state } = scene;
  const small = ["picture", "overview"].includes(state.mode);
  if (small || matrix.rows * matrix.columns * matrix.shown(state).length <= MOST_CELLS) {
    pictures.push(
      button("PNG", async () =>
        save(`${name}.png`, await addPngText(await rasterize(picture()), collectMetadata(scene, colours))),
      ),
      button("SVG", () => save(`${name}.svg`, new Blob([serialize(picture())], { type: "image/svg+xml" }))),
    );
  }
  const csv = button("CSV", () => save(`${name}.csv`, new Blob([formatCsv(scene, colours)], { type: "text/csv" })));
  const allHeads = { ...state, mode: "overview", chart: "heads", sorted: false, head: null, off: "", mean: false };
  const poster = button("Poster of all heads", async () => {
    const all = /** @type {Scene} */ ({ ...scene, changes: null, effect: false, beside: null, state: allHeads });
    const drawn = await rasterize(makePicture(all, colours, stage));
    save(`${scene.map.task}-all-heads.png`, await addPngText(drawn, collectMetadata(all, colours)));
  });
  poster.title = "All heads of all layers as one PNG picture, for a slide or a paper";
  const buttons = [...pictures, csv, withIcon(poster, "overview")];
  oneTabStop(buttons, 0);
  return [label, ...buttons];
}

/** @param {SVGSVGElement} picture */
function serialize(picture) {
  return new XMLSerializer().serializeToString(picture);
}

/** @param {SVGSVGElement} picture @returns {Promise<Blob>} */
async function rasterize(picture) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(serialize(picture))}`;
  await image.decode();
  const canvas = node("canvas", { width: SHARP * image.width, height: SHARP * image.height });
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large to be saved"))));
  });
}

/** @param {string} name @param {Blob} blob */
function save(name, blob) {
  const link = node("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Texts in a PNG file: `iTXt` chunks after its header (PNG specification, section 11.3.3).

const HEADER = 33; // bytes of the signature and of the first chunk
const CRC = Uint32Array.from({ length: 256 }, (_, number) => {
  let remainder = number;
  for (let bit = 0; bit < 8; bit += 1) remainder = remainder & 1 ? 0xedb88320 ^ (remainder >>> 1) : remainder >>> 1;
  return remainder;
});

/** @param {Blob} png @param {Fact[]} facts */
export async function addPngText(png, facts) {
  const bytes = await png.arrayBuffer();
  const chunks = facts.map(([name, text]) => textChunk(name, text));
  return new Blob([bytes.slice(0, HEADER), ...chunks, bytes.slice(HEADER)], { type: "image/png" });
}

/** @param {string} name @param {string} text */
export function textChunk(name, text) {
  const body = new TextEncoder().encode(`iTXt${name}\0\0\0\0\0${text}`); // not compressed, no language
  const chunk = new Uint8Array(body.length + 8);
  const view = new DataView(chunk.buffer);
  view.setUint32(0, body.length - 4);
  chunk.set(body, 4);
  const crc = body.reduce((remainder, byte) => CRC[(remainder ^ byte) & 255] ^ (remainder >>> 8), 0xffffffff);
  view.setUint32(body.length + 4, crc ^ 0xffffffff);
  return chunk;
}

// Weights as CSV. Lines that begin with # contain metadata; cells with # are quoted.

/**
 * The displayed weights or differences, one per line; of the overview, the measures of each head.
 * @param {Scene} scene @param {Palette} colours
 */
export function formatCsv(scene, colours) {
  const { matrix, changes, layer, state } = scene;
  if (state.mode === "overview") return measuresCsv(scene, colours);
  const facts = collectMetadata(scene, colours).map(([name, text]) => `# ${name}: ${text}`);
  const lines = [...facts, `layer,head,query_step,query,key_step,key,${changes ? "change" : "weight"}`];
  for (const head of matrix.shown(state)) {
    const values = (changes ?? matrix.slices)[head];
    const name = matrix.names ? quoteCell(matrix.name(head)) : head;
    matrix.queries.forEach((query, row) => {
      matrix.keys.forEach((key, column) => {
        const value = Number(values[row * matrix.columns + column].toPrecision(9));
        lines.push([quoteCell(layer.name), name, row, quoteCell(query), column, quoteCell(key), value].join(","));
      });
    });
  }
  return `${lines.join("\r\n")}\r\n`;
}

/** All known measures of all heads. @param {Scene} scene @param {Palette} colours */
function measuresCsv(scene, colours) {
  const facts = collectMetadata(scene, colours).map(([name, text]) => `# ${name}: ${text}`);
  const names = availableMeasures(scene);
  const columns = names.flatMap((name) => (name === "importance" ? [name, "low", "high"] : [name]));
  const lines = [...facts, ["layer", "head", ...columns].join(",")];
  for (const { layer, head } of posterRows(scene).flat()) {
    const cells = names.flatMap((name) => {
      const found = measure(scene, name, layer, head);
      if (name === "role") return [quoteCell(found?.text ?? "")];
      const numbers = name === "importance" ? [found?.value, found?.low, found?.high] : [found?.value];
      return numbers.map((value) =>
        value === null || value === undefined ? "" : String(Number(value.toPrecision(9))),
      );
    });
    lines.push([quoteCell(layer.name), head, ...cells].join(","));
  }
  return `${lines.join("\r\n")}\r\n`;
}

/** @param {string} label as a cell of a table, which no program takes for a formula or a remark */
function quoteCell(label) {
  const safe = /^[=+@\t\r-]/.test(label) && label.length > 1 ? `'${label}` : label;
  return /[",#\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

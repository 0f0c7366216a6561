// What is saved: the picture (PNG, SVG), all heads as a poster, and numbers (CSV).

import { cssColour } from "./colours.js";
import { FAMILY, node, setTextScale, svg, textScale, textWidth, widestText } from "./dom.js";
import { gridGeometry, paintRanks, paintTile } from "./grid.js";
import { answerText } from "./sentence.js";
import { headTag, fitLabel, revealHidden } from "./labels.js";
import { colourRamp, paintRamp, symbols } from "./legend.js";
import { headCount } from "./matrix.js";
import { availableMeasures, chosenMeasure, measure } from "./measures.js";
import { Panel, panelCaption, panelScenes, panelsPerRow } from "./panel.js";
import { SvgPen } from "./pen.js";
import { SCALES } from "./scale.js";

/** @import { Palette } from "./colours.js" */
/** @import { Item } from "./dom.js" */
/** @import { Scene } from "./scene.js" */

const AROUND = 24; // pixels around and between panels
const TITLE = 22; // height of a line of text in pixels
const WIDTH = 900; // pixels of a picture
const LEAST_CELL = 14; // pixels of a cell, if there is room
const LARGEST_CELL = 44;
const POSTER = { width: 1100, height: 1600, largest: 120, factor: 1.5, size: 18 }; // text of 18 pixels, for a slide

/** A sheet of paper with a title. @param {Scene} scene @param {string} subtitle @param {Palette} colours */
function sheet({ map }, subtitle, colours) {
  const picture = svg("svg", { "font-family": FAMILY, "font-size": 13, fill: colours.ink });
  const paper = svg("rect", { fill: cssColour(colours.paper) });
  const words = `${map.task}: ${map.input}`.replace(/\s+/g, " ");
  const title = svg("text", { x: AROUND, y: AROUND + 4, "font-weight": "bold" }, fitLabel(words, WIDTH, textWidth));
  picture.append(paper, title, svg("text", { x: AROUND, y: AROUND + TITLE + 4 }, subtitle));
  return picture;
}

/** Adds the legend, a caption and the metadata below `down` pixels. @param {SVGSVGElement} picture @param {Scene} scene @param {Palette} colours @param {number} wide @param {number} down */
function finish(picture, scene, colours, wide, down, more = "", poster = false) {
  const pen = new SvgPen(picture);
  const long = paintRamp(pen, colourRamp(scene, colours), colours, textWidth, AROUND, down + TITLE / 2);
  const signs = [...symbols(scene), more].filter(Boolean).join(";  ");
  if (signs) pen.text(AROUND + long + 18, down + TITLE / 2, signs, { fill: colours.ink });
  const lines = captionLines(scene);
  const width = Math.ceil(Math.max(wide, AROUND + long + 18 + textWidth(signs), widestText(lines) + AROUND) + AROUND);
  const height = Math.ceil(down + (1.5 + lines.length) * TITLE);
  lines.forEach((line, place) => {
    picture.append(svg("text", { x: AROUND, y: down + (1.7 + place) * TITLE, class: "caption" }, line));
  });
  for (const [name, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` }))
    picture.setAttribute(name, String(value));
  for (const [name, value] of Object.entries({ width, height }))
    picture.firstElementChild?.setAttribute(name, String(value));
  const facts = collectMetadata(scene, colours, poster).map(([name, text]) => `${name}: ${text}`);
  picture.prepend(svg("title", {}, `${scene.map.task}: ${scene.map.input}`), svg("desc", {}, facts.join("\n")));
  return picture;
}

/** Runs `draw` with texts of the size of a saved picture. @template Made @param {() => Made} draw */
function atSavedSize(draw) {
  const factor = textScale();
  setTextScale(1);
  try {
    return draw();
  } finally {
    setTextScale(factor);
  }
}

/** The drawn panels as a picture. @param {Scene} scene @param {Palette} colours */
export function makePicture(scene, colours) {
  return atSavedSize(() => {
    const wanted = panelScenes(scene);
    const beside = panelsPerRow(wanted.length, WIDTH, WIDTH);
    const { rows, columns } = scene.matrix;
    const picture = sheet(scene, scene.layer.title, colours);
    const most = (WIDTH - AROUND * (beside - 1)) / beside;
    const square = ["heatmap", "flow"].includes(scene.state.mode);
    const cell = Math.max(LEAST_CELL, Math.min(LARGEST_CELL, (most - 100) / Math.max(columns, 1)));
    const width = square ? Math.min(most, columns * cell + 140) : most;
    const height = square
      ? Math.min(2 * WIDTH, rows * cell + 120)
      : Math.min(WIDTH / 1.5, Math.max(rows, columns) * 24 + 60);
    wanted.forEach(({ scene: side, head }, place) => {
      const x = AROUND + (place % beside) * (width + AROUND);
      const y = AROUND + 2 * TITLE + Math.floor(place / beside) * (height + TITLE);
      const caption = panelCaption(side, head, 2) || headTag(scene.map.layers, scene.layer, head);
      picture.append(svg("text", { x, y: y + 4, "font-weight": "bold" }, caption));
      const group = new Panel(side, head, { width, height, colours }).vector();
      group.setAttribute("transform", `translate(${x} ${y + 12})`);
      picture.append(group);
    });
    const down = AROUND + 2 * TITLE + Math.ceil(wanted.length / beside) * (height + TITLE);
    return finish(picture, scene, colours, AROUND + beside * (width + AROUND), down);
  });
}

/** All heads of the model as a picture, with labels that can be read on a slide. @param {Scene} scene @param {Palette} colours */
function makePoster(scene, colours) {
  return atSavedSize(() => {
    const plain = { ...scene, changes: null, heads: [scene.head] };
    const geometry = gridGeometry(scene.map.layers, POSTER);
    const picture = sheet(scene, "all heads", colours);
    const group = svg("g", { transform: `translate(${AROUND} ${AROUND + 2 * TITLE})` });
    const pen = new SvgPen(group);
    geometry.tiles.forEach((_, index) => paintTile(pen, plain, geometry, colours, index));
    paintRanks(pen, plain, geometry, colours, POSTER.size);
    picture.append(group);
    const { title, unit } = chosenMeasure(scene);
    const bar = `bar below a head: ${title} (${unit})`;
    const down = AROUND + 2 * TITLE + geometry.height + 8;
    return finish(picture, plain, colours, geometry.width + AROUND, down, bar, true);
  });
}

// Captions and metadata of saved pictures and tables: the model, interventions, colour scale and prediction.

/** @typedef {[name: string, said: string]} Fact */

/** All facts about the displayed weights. @param {Scene} scene @param {Palette} colours @returns {Fact[]} */
export function collectMetadata(scene, colours, poster = false) {
  const { data, map, layer, matrix, state, changes, derived, beside, heads, scale } = scene;
  const { from, to } = colourRamp(scene, colours);
  const names = heads.map((head) => matrix.name(head));
  /** @type {(Fact | null)[]} */
  const facts = [
    ["model", map.model || data.maps[0].model || map.task],
    ["input", map.input],
    ["layer", poster ? "all" : layer.name],
    [derived ? "rollout" : "heads", poster ? "all" : names.join(", ")],
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
    ["scale", `${from} to ${to}, ${changes ? "" : SCALES[scale.name]}`.replace(/, $/, "")],
    map.note ? ["note", map.note] : null,
  ];
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

// The menu.

const MOST_CELLS = 60_000; // a picture of more cells would open more slowly than the page
const SHARP = 2; // PNG pixels per CSS pixel

/** @param {Scene} scene @param {Palette} colours @returns {Item[]} */
export function saveItems(scene, colours) {
  const { matrix, heads, map, layer, state } = scene;
  const name = `${map.task}-${layer.name}`.replace(/[^\w.-]+/g, "_");
  const all = `${map.task}-all-heads`.replace(/[^\w.-]+/g, "_");
  const large = state.mode === "heatmap" && matrix.rows * matrix.columns * heads.length > MOST_CELLS;
  const reason = large ? "too many cells for a picture" : "";
  /** @param {string} file @param {() => SVGSVGElement} make */
  const png = async (file, make, poster = false) =>
    save(file, await addPngText(await rasterize(make()), collectMetadata(scene, colours, poster)));
  /** @param {string} file @param {string} text @param {string} type */
  const write = (file, text, type) => save(file, new Blob([text], { type }));
  const picture = () => makePicture(scene, colours);
  const vector = () => write(`${name}.svg`, serialize(picture()), "image/svg+xml");
  const poster = () => png(`${all}.png`, () => makePoster(scene, colours), true);
  const measures = () => write(`${all}.csv`, measuresCsv(scene, colours), "text/csv");
  return [
    { label: "PNG", hint: "the picture", reason, does: () => png(`${name}.png`, picture) },
    { label: "SVG", hint: "the picture, for a paper", reason, does: vector },
    { label: "CSV", hint: "its numbers", does: () => write(`${name}.csv`, formatCsv(scene, colours), "text/csv") },
    { label: "Poster of all heads", hint: "PNG", does: poster },
    { label: "Measures of all heads", hint: "CSV", does: measures },
  ];
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

/** The displayed weights or differences, one per line. @param {Scene} scene @param {Palette} colours */
export function formatCsv(scene, colours) {
  const { matrix, changes, layer, heads } = scene;
  const facts = collectMetadata(scene, colours).map(([name, text]) => `# ${name}: ${text}`);
  const lines = [...facts, `layer,head,query_step,query,key_step,key,${changes ? "change" : "weight"}`];
  for (const head of heads) {
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
  const facts = collectMetadata(scene, colours, true).map(([name, text]) => `# ${name}: ${text}`);
  const names = availableMeasures(scene);
  const columns = names.flatMap((name) => (name === "importance" ? [name, "low", "high"] : [name]));
  const lines = [...facts, ["layer", "head", ...columns].join(",")];
  for (const layer of scene.map.layers) {
    for (let head = 0; head < headCount(layer); head += 1) {
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
  }
  return `${lines.join("\r\n")}\r\n`;
}

/** @param {string} label as a cell of a table, which no program takes for a formula or a remark */
function quoteCell(label) {
  const safe = /^[=+@\t\r-]/.test(label) && label.length > 1 ? `'${label}` : label;
  return /[",#\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

// A measure of all heads, such as importance, as bars and as a matrix of layers and heads.

import { cssColour, inkOn } from "./colours.js";
import { node, svg } from "./dom.js";
import { headName } from "./labels.js";
import { shortNames } from "./layer-names.js";
import { chosenMeasure } from "./measures.js";
import { headCount } from "./packing.js";
import { posterRows } from "./poster.js";
import { fitLabel } from "./labels.js";
import { textWidth, widestText } from "./text-width.js";

/** @import { Palette } from "./colours.js" */
/** @import { Measured } from "./measures.js" */
/** @import { Small } from "./ranking.js" */
/** @import { Scene } from "./scene.js" */

const ROW = 20; // pixels
const CELL = 34; // pixels of the widest cell
const MOST_LABEL = 170; // pixels

/** @typedef {Small & { found: Measured, name: string }} Bar */

/**
 * The heads with a value, the largest first.
 *
 * @param {Scene} scene
 * @returns {Bar[]}
 */
function rankedHeads(scene) {
  const { map } = scene;
  const measured = chosenMeasure(scene);
  const names = shortNames(map.layers);
  const kinds = new Set(map.layers.map((layer) => layer.kind)).size > 1;
  return posterRows({ ...scene, state: { ...scene.state, sorted: false } })
    .flat()
    .flatMap(({ layer, head }) => {
      const found = measured.of(layer, head);
      const name = `${kinds ? `${layer.kind} ` : ""}${names.get(layer.name)}, ${headName(layer, head)}`;
      return found ? [{ layer, head, found, name }] : [];
    })
    .sort((first, second) => second.found.value - first.found.value);
}

/**
 * Bars with 95 % intervals where they are known.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 * @param {number} width in pixels
 */
export function measureBars(scene, colours, width) {
  const bars = rankedHeads(scene);
  const left = Math.min(MOST_LABEL, widestText(bars.map(({ name }) => name)) + 8);
  const right = widestText(bars.map(({ found }) => found.text)) + 12;
  const ends = bars.map(({ found }) => [
    Math.min(0, found.value, found.low ?? 0),
    Math.max(found.value, found.high ?? 0),
  ]);
  const low = Math.min(0, ...ends.map(([end]) => end));
  const high = Math.max(...ends.map(([, end]) => end), 1e-9);
  const room = Math.max(80, Math.min(width, 760) - left - right);
  /** @param {number} value */
  const x = (value) => left + (room * (value - low)) / (high - low);
  const size = { width: left + room + right, height: ROW * bars.length + 4 };
  const label = `${chosenMeasure(scene).title} of each head as bars; the table below lists the numbers`;
  const picture = svg("svg", {
    ...size,
    viewBox: `0 0 ${size.width} ${size.height}`,
    role: "img",
    "aria-label": label,
  });
  picture.append(
    svg("line", { x1: x(0), x2: x(0), y1: 0, y2: size.height, stroke: colours.ink, "stroke-opacity": 0.4 }),
  );
  bars.forEach(({ name, found }, index) => {
    const y = ROW * index;
    const { value, low: from, high: to } = found;
    const bar = { x: x(Math.min(0, value)), y: y + 4, width: Math.abs(x(value) - x(0)), height: ROW - 8 };
    picture.append(
      svg("text", { x: left - 8, y: y + 14, "text-anchor": "end" }, fitLabel(name, left - 8, textWidth)),
      svg("rect", { ...bar, fill: cssColour(colours.at(0.65)), "fill-opacity": found.sure ? 1 : 0.35 }),
      svg("text", { x: x(Math.max(value, to ?? value)) + 6, y: y + 14 }, found.text),
    );
    if (from === null || to === null) return;
    const whisker = { stroke: colours.mark, "stroke-width": 1.5 };
    picture.append(
      svg("line", { ...whisker, x1: x(from), x2: x(to), y1: y + ROW / 2, y2: y + ROW / 2 }),
      ...[from, to].map((end) => svg("line", { ...whisker, x1: x(end), x2: x(end), y1: y + 6, y2: y + ROW - 6 })),
    );
  });
  return picture;
}

/**
 * A matrix of layers and heads with the value as colour and number.
 *
 * @param {Scene} scene
 * @param {Palette} colours
 * @param {number} width in pixels
 */
export function measureMatrix(scene, colours, width) {
  const { map } = scene;
  const measured = chosenMeasure(scene);
  const names = shortNames(map.layers);
  const kinds = new Set(map.layers.map((layer) => layer.kind)).size > 1;
  const labels = map.layers.map((layer) => `${kinds ? `${layer.kind} ` : "layer "}${names.get(layer.name)}`);
  const heads = Math.max(...map.layers.map(headCount));
  const left = widestText(labels) + 8;
  const cell = Math.max(9, Math.min(CELL, (width - left - 8) / heads));
  const values = map.layers.map((layer) =>
    Array.from({ length: headCount(layer) }, (_, head) => measured.of(layer, head)),
  );
  const largest = values.flat().reduce((maximum, found) => Math.max(maximum, found?.value ?? 0), 1e-9);
  const size = { width: left + heads * cell + 4, height: 22 + map.layers.length * cell };
  const label = `${measured.title} of each head as a matrix; rows are layers, columns are heads`;
  const picture = svg("svg", {
    ...size,
    viewBox: `0 0 ${size.width} ${size.height}`,
    role: "img",
    "aria-label": label,
  });
  for (let head = 0; head < heads; head += cell < 15 ? 4 : 1) {
    const x = left + (head + 0.5) * cell;
    picture.append(svg("text", { x, y: 14, "text-anchor": "middle", "font-size": 11 }, String(head)));
  }
  values.forEach((row, index) => {
    const y = 20 + index * cell;
    picture.append(svg("text", { x: left - 8, y: y + cell / 2 + 4, "text-anchor": "end" }, labels[index]));
    row.forEach((found, head) => {
      const colour = colours.at(Math.max(0, found?.value ?? 0) / largest);
      const fill = found ? cssColour(colour) : "none";
      const square = svg("rect", {
        x: left + head * cell,
        y,
        width: cell - 1,
        height: cell - 1,
        fill,
        stroke: colours.ink,
        "stroke-opacity": 0.15,
      });
      square.append(svg("title", {}, `${labels[index]}, head ${head}: ${found?.text ?? "unknown"}`));
      picture.append(square);
      if (!found || textWidth(numberText(found)) > cell) return;
      const ink = inkOn(colour);
      const place = {
        x: left + (head + 0.5) * cell,
        y: y + cell / 2 + 4,
        "text-anchor": "middle",
        "font-size": 10,
        fill: ink,
      };
      const number = svg("text", place, numberText(found));
      number.style.fill = ink; // a page's style has the last word over an attribute, but not over this
      picture.append(number);
    });
  });
  return picture;
}

/** @param {Measured} found */
function numberText({ value }) {
  return value.toFixed(2).replace(/^(-?)0\./, "$1.");
}

/**
 * The numbers of the charts, for screen readers and for reading.
 *
 * @param {Scene} scene
 */
export function measureTable(scene) {
  const measured = chosenMeasure(scene);
  const table = node("table");
  table.append(node("caption", { class: "unseen" }, `${measured.title}: ${measured.unit}`));
  const [head, body, top] = [node("thead"), node("tbody"), node("tr")];
  top.append(node("th", { scope: "col" }, "head"), node("th", { scope: "col" }, measured.title));
  head.append(top);
  for (const { name, found } of rankedHeads(scene)) {
    const row = node("tr");
    row.append(node("th", { scope: "row" }, name), node("td", {}, found.text));
    body.append(row);
  }
  table.append(head, body);
  return table;
}

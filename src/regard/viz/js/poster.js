// The poster of a model: small pictures of all heads in a grid of layers and heads.

import {
  fitLabel,
  headImportance,
  headName,
  headRole,
  layerTitle,
  namesWithKind,
  roleSentence,
  shortImportance,
  shortNames,
  shortRole,
} from "./labels.js";
import { button, node, oneTabStop, svg, textWidth, widestText } from "./dom.js";
import { chosenMeasure } from "./measures.js";
import { headCount } from "./matrix.js";
import { posterScale } from "./scale.js";
import { thumbPixels } from "./painting.js";
import { cssColour, inkOn } from "./colours.js";

/** @import { InterventionData, LayerData } from "./data.js" */
/** @import { Measured } from "./measures.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */
/** @import { Palette } from "./colours.js" */

const TEXT_FROM = 54; // pixels of a picture below which nothing is written under it
const NUMBERS_FROM = 15; // pixels of a picture below which only each fourth head is numbered
const AT_ONCE = 250_000; // weights; of more, the heads are drawn after the picture, so that a page opens quickly
const SLICE = 12; // milliseconds of drawing without a pause

/**
 * All heads, a row for each layer; in a single row by descending importance if that is chosen.
 * @param {Scene} scene @returns {Small[][]}
 */
export function posterRows({ map, data, state }) {
  const kinds = [...new Set(map.layers.map((layer) => layer.kind))];
  const grouped = kinds.flatMap((kind) => map.layers.filter((layer) => layer.kind === kind));
  const rows = grouped.map((layer) => Array.from({ length: headCount(layer) }, (_, head) => ({ layer, head })));
  const { importance } = data;
  if (!state.sorted || !importance) return rows;
  /** @param {Small} small */
  const added = ({ layer, head }) => headImportance(data, layer.name, head)?.added ?? 0;
  return [rows.flat().sort((first, second) => added(second) - added(first))];
}

/**
 * @typedef {object} Look
 * @property {number} side pixels of the longer side of a picture
 * @property {number} [tall] pixels of its height if it is stretched
 * @property {string} kind CSS class of a picture: "thumb" in the overview, "tile" in the navigator
 * @property {boolean} [upright] whether each layer is a column, which needs an equal number of heads in all layers
 */

/**
 * The grid; its pictures are drawn at once, or one layer after the other if there are many weights.
 * @param {Scene} scene @param {Actions} actions @param {Surface} surface @param {Look} look
 */
export function poster(scene, actions, surface, look) {
  const rows = posterRows(scene);
  const sorted = rows.length === 1 && scene.map.layers.length > 1;
  const upright = look.upright === true;
  const grid = upright ? rows[0].map((_, head) => rows.map((row) => row[head])) : rows;
  const columns = Math.max(...grid.map((row) => row.length), 1);
  const box = node("div", { class: `poster${sorted ? " sorted" : ""}${upright ? " upright" : ""}` });
  const names = shortNames(scene.map.layers);
  /** @param {LayerData} layer */
  const layerLabel = (layer) => node("span", { class: "layer", title: layer.title }, names.get(layer.name));
  const ranking = node("p", { class: "ranking" });
  box.append(ranking);
  if (!sorted) {
    box.style.gridTemplateColumns = `max-content repeat(${columns}, max-content)`;
    const labels = upright ? grid[0].map(({ layer }) => layerLabel(layer)) : headNumbers(columns, look.side);
    const axes = upright ? "layers →, heads ↓" : "heads →, layers ↓";
    box.append(node("span", { class: "axes" }, axes), node("span"), ...labels);
  }
  const kinds = new Set(scene.map.layers.map((layer) => layer.kind));
  let kind = "";
  /** @type {HTMLButtonElement[]} */
  const all = [];
  for (const row of grid) {
    const [{ layer, head }] = row;
    if (!sorted && kinds.size > 1 && layer.kind !== kind) box.append(node("span", { class: "kind" }, layer.kind));
    kind = layer.kind;
    const buttons = row.map((small) => tile(scene, small, actions, look, sorted));
    if (!sorted) {
      box.append(upright ? headNumber(head) : layerLabel(layer));
      buttons[buttons.length - 1].style.gridColumnEnd = "span 1";
    }
    box.append(...buttons);
    if (!sorted && row.length < columns)
      box.append(...Array.from({ length: columns - row.length }, () => node("span")));
    all.push(...buttons);
  }
  oneTabStop(
    all,
    Math.max(
      0,
      all.findIndex((button) => button.classList.contains("on")),
    ),
    sorted ? 1 : columns,
  );
  fillTiles(scene, surface, look, grid, all, (values) => {
    ranking.append(...rankHeads(scene, grid.flat(), all, values, actions));
  });
  return box;
}

/** @param {number} columns @param {number} side */
function headNumbers(columns, side) {
  const every = side >= NUMBERS_FROM ? 1 : 4;
  return Array.from({ length: columns }, (_, head) => headNumber(head % every ? "" : head));
}

/** @param {number | string} head */
function headNumber(head) {
  return node("span", { class: "number", "aria-hidden": "true" }, String(head));
}

/** @param {Scene} scene @param {Small} small @param {Actions} actions @param {Look} look @param {boolean} sorted */
function tile(scene, { layer, head }, actions, { kind, side }, sorted) {
  const { data, map } = scene;
  const role = headRole(data, layer.name, head);
  const worth = headImportance(data, layer.name, head);
  const name = `${layer.title}, ${headName(layer, head)}`;
  const parts = [name];
  if (worth) parts.push(`without it loss ${shortImportance(worth)}`);
  if (role) parts.push(roleSentence(role));
  const written = kind === "thumb" && side >= TEXT_FROM;
  const said = parts.join(", ");
  const element = node("button", { type: "button", class: kind, title: said });
  if (!written) element.setAttribute("aria-label", said);
  element.dataset.name = `${kind}-${layer.name}-${head}`;
  element.style.width = `${side}px`;
  element.append(node("span", { class: "seat" }), node("span", { class: "measure", "aria-hidden": "true" }));
  if (written) {
    if (!sorted) element.append(node("span", { class: "unseen" }, `${layer.title}, `));
    const short = worth ? ` ${shortImportance(worth)}` : "";
    element.append(node("span", {}, `${headName(layer, head)}${short}`));
    if (sorted) element.append(node("span", { class: "quiet" }, layerTitle(layer, map.layers)));
    if (role) element.append(node("span", { class: role.role ? "role" : "role quiet" }, shortRole(role)));
  }
  element.addEventListener("click", () => actions.open(layer.name, head));
  return element;
}

/**
 * Draws the pictures and the bars of the chosen measure.
 * @param {Scene} scene @param {Surface} surface @param {Look} look @param {Small[][]} rows
 * @param {HTMLButtonElement[]} buttons
 * @param {(values: (Measured | null)[]) => void} finished called when all are drawn
 */
function fillTiles(scene, { colours, onPaper }, { side, tall }, rows, buttons, finished) {
  const flat = rows.flat();
  const measured = chosenMeasure(scene);
  /** @type {(Measured | null)[]} */
  const values = [];
  const kinds = new Set(scene.map.layers.map((layer) => layer.kind));
  const scales = new Map([...kinds].map((kind) => [kind, posterScale(scene, kind)]));
  /** @param {number} index */
  const fill = (index) => {
    const { layer, head } = flat[index];
    const matrix = scene.shown(layer);
    const scale = scales.get(layer.kind) ?? scene.scale;
    const { canvas } = thumbPixels({ matrix, head, scale }, colours, side, tall);
    buttons[index].children[0].replaceChildren(canvas);
    values[index] = measured.of(layer, head);
    const text = values[index]?.text;
    if (text) buttons[index].title += `, ${measured.title} ${text}`;
  };
  const finish = () => {
    const largest = values.reduce((maximum, found) => Math.max(maximum, found?.value ?? 0), 1e-9);
    const full = ["importance", "distance"].includes(measured.name) ? largest : 1;
    buttons.forEach((button, index) => {
      const found = values[index];
      if (!found) return;
      const bar = node("i", { class: found.sure ? undefined : "unsure" });
      bar.style.width = `${(100 * Math.max(0, Math.min(found.value / full, 1))).toFixed(1)}%`;
      button.children[1].replaceChildren(bar);
    });
    finished(values);
  };
  const weights = scene.map.layers.reduce(
    (sum, layer) => sum + layer.queries.length * layer.keys.length * headCount(layer),
    0,
  );
  if (weights <= AT_ONCE || onPaper) {
    flat.forEach((_, index) => fill(index));
    return finish();
  }
  /** @param {number} first */
  const go = (first) => {
    if (!buttons[0].isConnected) return; // replaced meanwhile
    const end = performance.now() + SLICE;
    let index = first;
    while (index < flat.length && performance.now() < end) {
      fill(index);
      index += 1;
    }
    if (index < flat.length) setTimeout(() => go(index));
    else finish();
  };
  setTimeout(() => go(0));
}

/**
 * Marks the chosen heads, and those that are switched off.
 * @param {HTMLElement} box @param {Scene} scene @param {readonly InterventionData[]} interventions
 * @param {string} kind
 */
export function markTiles(box, { layer, state }, interventions, kind) {
  /** @type {Map<string, string>} */
  const changed = new Map();
  for (const { layer: name, heads, to } of interventions)
    for (const head of heads) changed.set(`${kind}-${name}-${head}`, to === "off" ? "×" : to === "uniform" ? "≡" : "•");
  for (const element of box.querySelectorAll(`.${kind}`)) {
    if (!(element instanceof HTMLElement)) continue;
    const name = element.dataset.name ?? "";
    const own = name.startsWith(`${kind}-${layer.name}-`);
    const on = own && (state.head === null || name === `${kind}-${layer.name}-${state.head}`);
    element.classList.toggle("on", on);
    element.classList.toggle("changed", changed.has(name));
    element.dataset.change = changed.get(name) ?? "";
    if (on && state.head !== null) element.setAttribute("aria-current", "true");
    else element.removeAttribute("aria-current");
  }
}

// The heads of the highest rank.

const RANKED = 3; // heads of the highest rank that are marked
const LEAST_RANKED = 6; // heads of a model, of fewer none is marked
const RANKED_WORDS = ["", "", "two ", "three "];

/** @typedef {{ layer: LayerData, head: number }} Small */

/**
 * Numbers the heads with the largest values of the chosen measure, and names them in a sentence. Values that are
 * not significant do not count.
 * @param {Scene} scene @param {Small[]} smalls @param {HTMLButtonElement[]} buttons
 * @param {(Measured | null)[]} values @param {Actions} actions
 */
function rankHeads(scene, smalls, buttons, values, actions) {
  if (smalls.length < LEAST_RANKED) return [];
  const measured = chosenMeasure(scene);
  const sign = measured.name === "entropy" ? -1 : 1;
  /** @param {number} index */
  const value = (index) => sign * (values[index]?.value ?? 0);
  const ranked = [...smalls.keys()]
    .filter((index) => values[index]?.sure && (sign < 0 || value(index) > 0))
    .sort((first, second) => value(second) - value(first))
    .slice(0, RANKED);
  if (!ranked.length) return [`No head has a significant ${measured.title}.`];
  const names = namesWithKind(scene.map.layers);
  const links = ranked.flatMap((index, place) => {
    const { layer, head } = smalls[index];
    buttons[index].classList.add("top");
    buttons[index].dataset.rank = String(place + 1);
    const said = `, number ${place + 1} of ${measured.most}`;
    buttons[index].title += said;
    if (buttons[index].ariaLabel) buttons[index].ariaLabel += said;
    const link = button(`${names.get(layer.name)}.${head}`, () => actions.open(layer.name, head));
    link.dataset.name = `rank-${place}`;
    link.tabIndex = -1; // the tab key reaches the same heads in the grid
    link.title = `${layer.title}, ${headName(layer, head)}`;
    const before = place === 0 ? "" : place === ranked.length - 1 ? " and " : ", ";
    return [before, link];
  });
  const several = ranked.length > 1;
  const noun = several ? `The ${RANKED_WORDS[ranked.length]}heads` : "The head";
  return [`${noun} with ${measured.most} (layer.head): `, ...links];
}

// A measure of all heads, such as importance, as bars and as a matrix of layers and heads.

const ROW = 20; // pixels
const CELL = 34; // pixels of the widest cell
const MOST_LABEL = 170; // pixels

/** @typedef {Small & { found: Measured, name: string }} Bar */

/** The heads with a value, the largest first. @param {Scene} scene @returns {Bar[]} */
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
 * @param {Scene} scene @param {Palette} colours
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
 * @param {Scene} scene @param {Palette} colours
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

/** The numbers of the charts, for screen readers and for reading. @param {Scene} scene */
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

// Numbers as bars: vectors, and shares in tables.

const MOST_NUMBERS = 5; // numbers of a vector shown as text
const STRIP = { width: 300, height: 30 }; // size of a vector in pixels
const BAR = 120; // pixels of the longest bar

/** @param {string} text @param {string} shape */
export function heading(text, shape) {
  const element = node("h3", {}, `${text} `);
  element.append(node("span", { class: "quiet" }, shape));
  return element;
}

/** @param {string[]} names */
export function headRow(...names) {
  const [top, row] = [node("thead"), node("tr")];
  row.append(...names.map((name) => (name ? node("th", { scope: "col" }, name) : node("td"))));
  top.append(row);
  return top;
}

/** @param {number} share @param {Palette} colours */
export function barCell(share, colours) {
  const cell = node("td", { class: "bars" });
  const bar = node("span", { "aria-hidden": "true" });
  bar.style.width = `${Math.max(0, share) * BAR}px`;
  bar.style.background = cssColour(colours.at(0.65));
  cell.append(bar);
  return cell;
}

/** A table that scrolls if it is wider than the page. @param {HTMLTableElement} table @param {string} name */
export function scrollBox(table, name) {
  const box = node("div", { class: "scrolling", role: "region", tabindex: 0, "aria-label": name });
  box.append(table);
  return box;
}

/**
 * Vectors as bars and numbers, each with its own scale.
 * @param {[string, number[]][]} vectors @param {Palette} colours
 */
export function strips(vectors, colours) {
  const list = node("dl", { class: "strips" });
  for (const [name, values] of vectors) {
    const largest = values.reduce((largest, value) => Math.max(largest, Math.abs(value)), 1e-9);
    const value = node("dd");
    const numbers = values
      .slice(0, MOST_NUMBERS)
      .map((value) => value.toFixed(3).replace(/^-(0\.0+)$/, "$1")) // no negative zeros
      .join("  ");
    const more =
      values.length > MOST_NUMBERS ? `  … ${values.length}\u00a0in\u00a0all, ±\u00a0${largest.toFixed(3)}` : "";
    value.append(strip(name, values, largest, colours), node("span", { class: "number quiet" }, numbers + more));
    list.append(node("dt", {}, name), value);
  }
  return list;
}

/**
 * Numbers as bars, positive ones upwards.
 * @param {string} name @param {number[]} values
 * @param {number} largest the value of a full bar
 * @param {Palette} colours
 */
function strip(name, values, largest, colours) {
  const { width, height } = STRIP;
  const low = Math.min(...values).toFixed(3);
  const high = Math.max(...values).toFixed(3);
  const label = `${name}: ${values.length} numbers from ${low} to ${high}`;
  const picture = svg("svg", { width, height, role: "img", "aria-label": label, viewBox: `0 0 ${width} ${height}` });
  const step = Math.min(18, width / values.length);
  values.forEach((value, index) => {
    const tall = (Math.abs(value) / largest) * (height / 2);
    const y = value < 0 ? height / 2 : height / 2 - tall;
    const fill = cssColour(colours.change(value < 0 ? -1 : 1));
    const bar = svg("rect", {
      x: index * step,
      y,
      width: Math.max(step - (step > 3 ? 1 : 0), 0.5),
      height: tall,
      fill,
    });
    bar.append(svg("title", {}, `${index}: ${value.toFixed(4)}`));
    picture.append(bar);
  });
  picture.append(
    svg("line", { x1: 0, x2: width, y1: height / 2, y2: height / 2, stroke: "currentColor", "stroke-opacity": 0.5 }),
  );
  return picture;
}

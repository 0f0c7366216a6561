// All heads of the model as a grid: a row for each layer, a column for each head, in every state of the page.

import { cssColour } from "./colours.js";
import { canvasContext, node, Part, select, textScale, textWidth } from "./dom.js";
import { headTag, headTitle, roleSentence, shortNames } from "./labels.js";
import { headCount } from "./matrix.js";
import { availableMeasures, chosenMeasure, MEASURES } from "./measures.js";
import { CanvasPen } from "./pen.js";
import { layerScale } from "./scale.js";
import { thumbnail } from "./heatmap.js";

/** @import { InterventionData, LayerData } from "./data.js" */
/** @import { Pen } from "./pen.js" */
/** @import { Measured } from "./measures.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

/** @typedef {{ layer: LayerData, head: number, x: number, y: number }} Tile */
/** @typedef {{ x: number, y: number, text: string, align: "start" | "middle" | "end" }} Title */
/** @typedef {{ tiles: Tile[], titles: Title[], side: number, turned: boolean, width: number, height: number, row: number }} Geometry `row`: pixels from row to row */

const GAP = 3; // pixels between tiles
const BAR = 5; // pixels of the bar below a tile
const LINE = 16; // pixels of a line of text
const LARGEST = 110;
const LEAST_HIGH = 12; // pixels of a tile, of which so many are one above the other that they are scrolled
const SMALLEST = 7;
const ROOMY = 42; // pixels of a tile and its gap; for larger ones, the picture does not make room
const SPARED = 70; // pixels left to the picture then
const RANKED = 3; // heads of the highest rank that are numbered
const LEAST_RANKED = 6; // heads of a model, of fewer none is numbered
const BADGE_INSIDE = 24; // pixels of a tile from which its rank is written inside it
const KINDS_APART = 10; // pixels between kinds of layers beside each other
const SLICE = 12; // milliseconds of drawing without a pause

/** @typedef {{ width: number, height: number, largest?: number, factor?: number }} Room `factor` of the text */

/** The places of all heads, with layers as rows or as columns, so that squares are largest. @param {LayerData[]} layers @param {Room} room */
export function gridGeometry(layers, room) {
  const [rows, columns] = [arrange(layers, false, room), arrange(layers, true, room)];
  return columns.side > rows.side ? columns : rows;
}

/** @param {LayerData[]} layers @param {boolean} turned whether layers are columns @param {Room} room @returns {Geometry} */
function arrange(layers, turned, { width, height, largest = LARGEST, factor = textScale() }) {
  const kinds = [...new Set(layers.map((layer) => layer.kind))];
  const several = kinds.length > 1;
  const names = shortNames(layers);
  const heads = Array.from({ length: Math.max(...layers.map(headCount), 1) }, (_, head) => String(head));
  const line = LINE * factor;
  /** @param {string} text */
  const wide = (text) => (textWidth(text) * factor) / textScale();
  const left = Math.max(...(turned ? heads : [...names.values()]).map(wide)) + 6;
  const [across, down] = turned ? [layers.length, heads.length] : [heads.length, layers.length];
  const top = line * (turned && several ? 3 : 2);
  const apart = turned ? KINDS_APART * (kinds.length - 1) : 0;
  const high = (height - top - (turned || !several ? 0 : line * kinds.length)) / Math.max(down, 1) - BAR - GAP;
  const most = Math.min(width, Math.max(width - SPARED, left + apart + across * ROOMY));
  const room = Math.min((most - left - apart) / Math.max(across, 1) - GAP, Math.max(high, LEAST_HIGH), largest);
  const side = Math.floor(Math.max(SMALLEST, room));
  const [step, row] = [side + GAP, side + BAR + GAP];
  /** @type {Geometry} */
  const made = { tiles: [], titles: [], side, turned, width: left + across * step + apart, height: top, row };
  const { tiles, titles } = made;
  const title = turned ? "↓ heads   → layers" : "↓ layers   → heads";
  titles.push({ x: 0, y: line / 2, text: title, align: "start" });
  made.width = Math.max(made.width, wide(title) + 2);
  const every = Math.ceil((wide(heads[heads.length - 1]) + 5) / step);
  heads.forEach((text, head) => {
    if (turned) titles.push({ x: left - 6, y: top + head * row + side / 2, text, align: "end" });
    else if (head % every === 0)
      titles.push({ x: left + head * step + side / 2, y: 1.5 * line, text, align: "middle" });
  });
  let at = turned ? left : top; // where the next layer begins
  for (const kind of kinds) {
    const own = layers.filter((layer) => layer.kind === kind);
    if (several)
      titles.push({ x: turned ? at : 0, y: turned ? 1.5 * line : at + line / 2, text: kind, align: "start" });
    if (several && !turned) at += line;
    if (several && turned && wide(kind) > own.length * step) made.side = 0; // this kind has no room for its name
    for (const layer of own) {
      const text = names.get(layer.name) ?? "";
      if (turned) titles.push({ x: at + side / 2, y: top - line / 2, text, align: "middle" });
      else titles.push({ x: left - 6, y: at + side / 2, text, align: "end" });
      for (let head = 0; head < headCount(layer); head += 1) {
        const place = turned ? { x: at, y: top + head * row } : { x: left + head * step, y: at };
        tiles.push({ layer, head, ...place });
      }
      at += turned ? step : row;
    }
    if (turned) at += KINDS_APART;
  }
  made.height = turned ? top + heads.length * row : at;
  return made;
}

/** The values of the measure that ranks the heads, and the value of a full bar. @param {Scene} scene @param {Tile[]} tiles */
function rankHeads(scene, tiles) {
  const measured = chosenMeasure(scene);
  const values = tiles.map(({ layer, head }) => measured.of(layer, head));
  const largest = values.reduce((maximum, found) => Math.max(maximum, found?.value ?? 0), 1e-9);
  const sign = measured.name === "entropy" ? -1 : 1;
  /** @param {number} index */
  const value = (index) => sign * (values[index]?.value ?? 0);
  const order =
    tiles.length < LEAST_RANKED
      ? []
      : [...tiles.keys()]
          .filter((index) => values[index]?.sure && (sign < 0 || value(index) > 0))
          .sort((first, second) => value(second) - value(first))
          .slice(0, RANKED);
  return { values, full: ["importance", "distance", "relation"].includes(measured.name) ? largest : 1, order };
}

/**
 * Paints some of the heads. Small pictures always share one scale, so that no weak head looks strong.
 * @param {Pen} pen @param {Scene} scene @param {Geometry} geometry @param {Surface["colours"]} colours @param {number} index
 */
export function paintTile(pen, scene, { tiles, side }, colours, index) {
  const { layer, head, x, y } = tiles[index];
  const { data, map, state, shown } = scene;
  const matrix = shown(layer);
  const box = { x, y, width: side, height: side };
  if (matrix.rows && matrix.columns) {
    const scale = layerScale(data, map, layer, { ...state, scale: "shared" }, shown, scene.beside?.matrix ?? null);
    const canvas = thumbnail(matrix, head, scale, colours, side);
    pen.image(canvas, box, { smooth: canvas.width > side * (devicePixelRatio || 1) });
  }
  pen.rect(box, { stroke: colours.quiet, width: 1, opacity: 0.25 });
}

/** @param {Pen} pen @param {Scene} scene @param {Geometry} geometry @param {Surface["colours"]} colours @param {number} [size] of the text */
export function paintRanks(pen, scene, { tiles, titles, side }, colours, size) {
  const ranking = rankHeads(scene, tiles);
  const { values, full, order } = ranking;
  for (const { x, y, text, align } of titles) pen.text(x, y, text, { fill: colours.quiet, align, size });
  tiles.forEach(({ x, y }, index) => {
    const found = values[index];
    if (!found) return;
    const width = side * Math.max(0, Math.min(found.value / full, 1));
    const bar = { x, y: y + side + 2, height: BAR - 2 };
    const ink = order.includes(index) ? colours.mark : colours.quiet;
    pen.rect({ ...bar, width: side }, { fill: ink, opacity: 0.15 });
    pen.rect({ ...bar, width }, { fill: ink, opacity: found.sure ? 0.9 : 0.4 });
  });
  order.forEach((index, rank) => {
    const out = side < BADGE_INSIDE ? 6 : 1; // pixels beyond the corner
    const [x, y] = [tiles[index].x + side + out, tiles[index].y - out];
    pen.rect({ x: x - 14, y, width: 14, height: 14 }, { fill: colours.mark, round: 7 });
    const fill = cssColour(colours.paper);
    pen.text(x - 7, y + 7.5, String(rank + 1), { fill, align: "middle", bold: true, size: 12 });
  });
  return ranking;
}

export class HeadGrid {
  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    this.element = node("section", { class: "heads", "aria-label": "Heads" });
    this.choice = new Part("rank");
    this.canvas = node("canvas", { "aria-hidden": "true" });
    this.cell = node("span", { role: "gridcell", id: `regard-head-${(gridsMade += 1)}` });
    const row = node("div", { role: "row", class: "unseen" });
    row.append(this.cell);
    this.grid = node("div", { role: "grid", tabindex: 0, "aria-activedescendant": this.cell.id, "data-name": "heads" });
    this.grid.append(this.canvas, row);
    this.ranks = new Part("ranks");
    this.element.append(this.choice.element, this.grid, this.ranks.element);
    /** @type {HTMLCanvasElement} the heads without marks */
    this.base = node("canvas");
    /** @type {unknown[]} */
    this.painted = [];
    /** @type {Geometry | null} */
    this.geometry = null;
    /** @type {Scene | null} */
    this.scene = null;
    /** @type {(Measured | null)[]} */
    this.values = [];
    /** @type {readonly [readonly InterventionData[], Surface] | undefined} what was marked last */
    this.latest = undefined;
    this.canvas.addEventListener("pointermove", (event) => {
      const tile = this.under(event.offsetX, event.offsetY);
      this.canvas.style.cursor = tile ? "pointer" : "default";
      if (event.pointerType === "mouse") actions.point(tile && { layer: tile.layer.name, head: tile.head });
    });
    this.canvas.addEventListener("pointerleave", () => actions.point(null));
    this.canvas.addEventListener("click", (event) => {
      const tile = this.under(event.offsetX, event.offsetY);
      if (tile) actions.open(tile.layer.name, tile.head);
    });
    this.grid.addEventListener("keydown", (event) => {
      const tile = this.beside(event.key);
      if (!tile) return;
      event.preventDefault();
      actions.choose({ layer: tile.layer.name, head: tile.head, all: false });
    });
  }

  /** @param {number} x @param {number} y */
  under(x, y) {
    const { geometry } = this;
    if (!geometry) return null;
    const { side, row, tiles } = geometry;
    return tiles.find((tile) => x >= tile.x && x < tile.x + side + GAP && y >= tile.y && y < tile.y + row) ?? null;
  }

  /** The head that an arrow key selects. @param {string} key */
  beside(key) {
    const { geometry, scene } = this;
    if (!geometry || !scene) return null;
    const { layer, state } = scene;
    const down = Number(key === "ArrowDown") - Number(key === "ArrowUp");
    const right = Number(key === "ArrowRight") - Number(key === "ArrowLeft");
    const layers = [...new Set(geometry.tiles.map((tile) => tile.layer))];
    const place = layers.indexOf(layer) + (geometry.turned ? right : down);
    const head = state.head + (geometry.turned ? down : right);
    if ((!down && !right) || !layers[place]) return null;
    const own = geometry.tiles.filter((tile) => tile.layer === layers[place]);
    return own[Math.min(head, own.length - 1)] ?? null;
  }

  /** @param {Scene} scene @param {readonly InterventionData[]} interventions @param {Surface} surface */
  show(scene, interventions, surface) {
    const { data, map, state } = scene;
    this.scene = scene;
    const measures = availableMeasures(scene);
    const measured = chosenMeasure(scene);
    this.choice.show([measured.name, measures.join()], () => {
      const names = measures.map((name) => MEASURES[name].title);
      const list = select("Rank by", names, measures.indexOf(measured.name), (index) =>
        this.actions.choose({ measure: measures[index] }),
      );
      list.title = `${measured.title}: ${measured.unit}; the bar below each head shows it`;
      return [list];
    });
    const { words, aside, frame } = state;
    const inputs = [map, data.importance, data.roles, measured.name, words, aside, frame, scene.beside];
    const wanted = [...inputs, surface.colours, surface.width, surface.height, devicePixelRatio];
    if (wanted.some((value, index) => value !== this.painted[index])) this.paintBase(scene, surface, wanted);
    this.mark(interventions, surface);
    this.tell(scene, measured.title);
  }

  /** @param {Scene} scene @param {Surface} surface @param {unknown[]} inputs */
  paintBase(scene, surface, inputs) {
    this.painted = inputs;
    const geometry = gridGeometry(scene.map.layers, surface);
    const ratio = devicePixelRatio || 1;
    this.geometry = geometry;
    this.base = node("canvas", {
      width: Math.ceil(geometry.width * ratio),
      height: Math.ceil(geometry.height * ratio),
    });
    const context = canvasContext(this.base);
    context.scale(ratio, ratio);
    const pen = new CanvasPen(context);
    const measured = chosenMeasure(scene);
    let index = 0;
    const go = () => {
      if (this.painted !== inputs) return; // other heads are drawn meanwhile
      const end = performance.now() + SLICE;
      for (; index < geometry.tiles.length && (surface.onPaper || performance.now() < end); index += 1) {
        paintTile(pen, scene, geometry, surface.colours, index);
        measured.of(geometry.tiles[index].layer, geometry.tiles[index].head); // is kept for the ranks
      }
      if (index < geometry.tiles.length) setTimeout(go);
      else this.tellRanks(scene, geometry, paintRanks(pen, scene, geometry, surface.colours));
      if (this.latest) this.mark(...this.latest);
    };
    this.latest = undefined;
    go();
  }

  /** Lists the heads of the highest rank. @param {Scene} scene @param {Geometry} geometry @param {ReturnType<typeof rankHeads>} ranking */
  tellRanks({ map }, { tiles }, { values, order }) {
    this.values = values;
    const several = map.layers.some((other) => other.kind !== map.layers[0].kind);
    this.ranks.show([values], () =>
      order.map((index, rank) => {
        const { layer, head } = tiles[index];
        const item = node("p");
        const name = several ? headTag(map.layers, layer, head) : headTitle(map.layers, layer, head);
        item.append(node("b", {}, String(rank + 1)), node("span", {}, name));
        item.append(node("span", { class: "number" }, values[index]?.text));
        const { query } = values[index] ?? {};
        const row = query === undefined ? {} : { query };
        item.addEventListener("click", () => {
          this.actions.choose({ layer: layer.name, head, all: false, key: null, ...row });
        });
        return item;
      }),
    );
  }

  /** Marks the selected head, and those that are changed. @param {readonly InterventionData[]} interventions @param {Surface} surface */
  mark(interventions, surface) {
    const { geometry, scene, canvas } = this;
    if (!geometry || !scene) return;
    this.latest = /** @type {const} */ ([interventions, surface]);
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== this.base.width) canvas.width = this.base.width;
    if (canvas.height !== this.base.height) canvas.height = this.base.height;
    Object.assign(canvas.style, { width: `${geometry.width}px`, height: `${geometry.height}px` });
    const context = canvasContext(canvas);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(this.base, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const pen = new CanvasPen(context);
    const { side, tiles } = geometry;
    const { colours } = surface;
    for (const { layer, head, x, y } of tiles) {
      const change = interventions.find((entry) => entry.layer === layer.name && entry.heads.includes(head));
      if (change) {
        const sign = change.to === "off" ? "×" : change.to === "uniform" ? "≡" : "•";
        pen.rect({ x, y, width: side, height: side }, { fill: `rgb(${colours.paper.join(" ")} / 65%)` });
        pen.text(x + side / 2, y + side / 2, sign, { fill: colours.mark, align: "middle", bold: true });
      }
      const drawn = layer === scene.layer && (scene.derived !== null || scene.heads.includes(head));
      if (drawn)
        pen.rect({ x: x - 1, y: y - 1, width: side + 2, height: side + 2 }, { stroke: colours.line, width: 1.5 });
      if (layer === scene.layer && head === scene.state.head)
        pen.rect({ x: x - 1, y: y - 1, width: side + 2, height: side + 2 }, { stroke: colours.mark, width: 2.5 });
    }
  }

  /** @param {Scene} scene @param {string} measure */
  tell({ data, map, layer, state }, measure) {
    const heads = Math.max(...map.layers.map(headCount), 1);
    const turned = this.geometry?.turned;
    const attributes = {
      "aria-label": `All heads: rows are ${turned ? "heads, columns are layers" : "layers, columns are heads"}; arrow keys select one`,
      "aria-rowcount": turned ? heads : map.layers.length,
      "aria-colcount": turned ? map.layers.length : heads,
    };
    for (const [name, value] of Object.entries(attributes)) this.grid.setAttribute(name, String(value));
    this.grid.dataset.head = headTag(map.layers, layer, state.head);
    const index = this.geometry?.tiles.findIndex((tile) => tile.layer === layer && tile.head === state.head) ?? -1;
    const value = this.values[index]?.text;
    const role = data.roles?.[layer.name]?.[state.head];
    const parts = [
      `${layer.title}, ${headTag(map.layers, layer, state.head)}`,
      value && `${measure} ${value}`,
      role && roleSentence(role),
    ];
    this.cell.textContent = parts.filter(Boolean).join(", ");
  }
}

let gridsMade = 0; // for unique element names

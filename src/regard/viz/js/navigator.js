// The navigator: all heads of the model as a grid, from which one is chosen.

import { clamp } from "./arithmetic.js";
import { node, Part, select } from "./dom.js";
import { availableMeasures, chosenMeasure, MEASURES } from "./measures.js";
import { shortNames } from "./layer-names.js";
import { headCount } from "./packing.js";
import { markTiles, poster } from "./poster.js";

/** @import { InterventionData, LayerData } from "./data.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

const TILE_GAP = 3; // pixels between pictures
const AROUND_TILES = 56; // pixels of the layers' names and of the pane's edges
const ABOVE_TILES = 128; // pixels of the list, the sentence, the numbers and the pane's edges
const LARGEST_TILE = 72; // pixels of a picture
const SMALLEST_TILE = 14;
const MOST_HIGH = 640; // pixels of all pictures of a column, with their bars, where the height is not limited
const BAR_SPACE = 7; // pixels of a bar and of the gaps around it
const STRETCH = 1.7; // ratio of the sides of a picture of equally many queries and keys
const LONGEST_NAME = 3; // characters of a layer's name above a column
const MOST_WIDE = 0.35; // of the view's width
const LEAST_WIDE = 220; // pixels
export const TABS = 900; // pixels of a view below which its panes are tabs, as in style.js

/**
 * The pixels of a picture and of the whole navigator.
 *
 * @param {Pick<Scene, "map">} scene
 * @param {Pick<Surface, "whole" | "high" | "factor">} surface
 */
export function navigatorSize({ map }, { whole, high, factor }) {
  const heads = Math.max(...map.layers.map(headCount), 1);
  const layers = Math.max(map.layers.length, 1);
  const uniform = isUniform(map.layers);
  const most = whole > TABS ? whole * MOST_WIDE : whole; // a tab has the whole width
  const room = most - AROUND_TILES * factor;
  const below = high === null ? MOST_HIGH : Math.max(high - ABOVE_TILES * factor, MOST_HIGH / 2);
  /** @param {number} columns @param {number} rows */
  const fitting = (columns, rows) => {
    const [wide, tall] = [room / columns - TILE_GAP, below / rows - BAR_SPACE - TILE_GAP];
    const limit = LARGEST_TILE * factor;
    if (!uniform) return { side: clamp(wide, SMALLEST_TILE, limit), tall: undefined };
    const side = clamp(Math.min(wide, STRETCH * tall), SMALLEST_TILE, limit);
    return { side, tall: clamp(tall, side / STRETCH, Math.min(side * STRETCH, limit)) };
  };
  // Twelve heads in each of six layers get larger pictures if each layer is a column.
  const flat = fitting(heads, layers);
  const turned = fitting(layers, heads);
  const legible = below / heads >= SMALLEST_TILE + BAR_SPACE;
  const upright = uniform && legible && turned.side * (turned.tall ?? 0) > flat.side * (flat.tall ?? 0);
  const { side, tall } = upright ? turned : flat;
  const wanted = AROUND_TILES * factor + (upright ? layers : heads) * (Math.floor(side) + TILE_GAP);
  return {
    side: Math.floor(side),
    tall: tall && Math.floor(tall),
    upright,
    width: Math.round(clamp(wanted, LEAST_WIDE * factor, Math.max(most, LEAST_WIDE))),
  };
}

/**
 * Whether the layers are of one kind, with equal numbers of heads and short names.
 *
 * @param {LayerData[]} layers
 */
function isUniform(layers) {
  const [first] = layers;
  return (
    layers.length > 0 &&
    layers.every(
      (layer) => layer.kind === first.kind && layer.kind !== "cross" && headCount(layer) === headCount(first),
    ) &&
    [...shortNames(layers).values()].every((name) => name.length <= LONGEST_NAME)
  );
}

export class Navigator {
  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    this.choice = new Part("choice-of-rank");
    this.grid = new Part("scrolling");
    this.element = node("div");
    this.element.append(this.choice.element, this.grid.element);
  }

  /**
   * @param {Scene} scene
   * @param {readonly InterventionData[]} interventions
   * @param {Surface} surface
   */
  show(scene, interventions, surface) {
    const { actions } = this;
    const { data, map, state, scale } = scene;
    const { side, tall, upright } = navigatorSize(scene, surface);
    const measures = availableMeasures(scene);
    const measured = chosenMeasure(scene);
    const known = [data.importance, data.roles];
    this.choice.show([measured.name, measures.join()], () => {
      const names = measures.map((name) => MEASURES[name].title);
      const list = select("Rank by", names, measures.indexOf(measured.name), (index) =>
        actions.choose({ measure: measures[index] }),
      );
      list.title = "What orders the heads; the bar below each head shows it";
      return [list, node("p", { class: "quiet unit" }, measured.unit)];
    });
    const shared = scale.name === "shared" && state.frame !== null ? scale.largest : 0;
    const inputs = [map, ...known, state.words, measured.name, scale.name, shared, state.aside];
    this.grid.show([...inputs, surface.colours, side, tall], () => {
      const look = { side, tall, upright, kind: "tile" };
      return [poster({ ...scene, state: { ...state, sorted: false } }, actions, surface, look)];
    });
    markTiles(this.grid.element, scene, interventions, "tile");
  }
}

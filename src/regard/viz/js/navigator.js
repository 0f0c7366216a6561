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
const AROUND_TILES = 52; // pixels of the layers' names and of the pane's edges
const LARGEST_TILE = 52; // pixels of a picture
const SMALLEST_TILE = 14;
const MOST_HIGH = 600; // pixels of all pictures of a column, with their bars
const BAR_SPACE = 10; // pixels of a bar and of the gaps around it
const LONGEST_NAME = 3; // characters of a layer's name above a column
const MOST_WIDE = 0.28; // of the view's width
const LEAST_WIDE = 196; // pixels
export const TABS = 900; // pixels of a view below which its panes are tabs, as in style.js

/**
 * The pixels of a picture and of the whole navigator.
 *
 * @param {Pick<Scene, "map">} scene
 * @param {number} width of the view
 * @param {number} factor of the text
 */
export function navigatorSize({ map }, width, factor) {
  const heads = Math.max(...map.layers.map(headCount), 1);
  const most = width > TABS ? width * MOST_WIDE : width; // a tab has the whole width
  const room = most - AROUND_TILES * factor;
  /** @param {number} columns @param {number} rows */
  const fitting = (columns, rows) =>
    Math.min(room / columns - TILE_GAP, columns < heads ? MOST_HIGH / rows - BAR_SPACE : Infinity);
  // Twelve heads in each of six layers get larger pictures if each layer is a column.
  const flat = fitting(heads, map.layers.length);
  const turned = fitting(map.layers.length, heads);
  const upright = turned > Math.max(flat, SMALLEST_TILE) && isUniform(map.layers);
  const columns = upright ? map.layers.length : heads;
  const side = Math.floor(clamp(upright ? turned : flat, SMALLEST_TILE, LARGEST_TILE * factor));
  const wanted = AROUND_TILES * factor + columns * (side + TILE_GAP);
  return { side, upright, width: Math.round(clamp(wanted, LEAST_WIDE * factor, Math.max(most, LEAST_WIDE))) };
}

/**
 * Whether the layers are of one kind, with equal numbers of heads and short names.
 *
 * @param {LayerData[]} layers
 */
function isUniform(layers) {
  const [first] = layers;
  return (
    layers.every((layer) => layer.kind === first.kind && headCount(layer) === headCount(first)) &&
    [...shortNames(layers).values()].every((name) => name.length <= LONGEST_NAME)
  );
}

export class Navigator {
  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    this.choice = new Part();
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
    const { side, upright } = navigatorSize(scene, surface.whole, surface.factor);
    const measures = availableMeasures(scene);
    const measured = chosenMeasure(scene);
    const known = [data.importance, data.roles];
    this.choice.show([measured.name, measures.join()], () => {
      const names = measures.map((name) => MEASURES[name].title);
      const list = select("Bar", names, measures.indexOf(measured.name), (index) =>
        actions.choose({ measure: measures[index] }),
      );
      list.title = "What the bar below each head shows";
      return [list, node("p", { class: "quiet unit" }, measured.unit)];
    });
    const shared = scale.name === "shared" && state.frame !== null ? scale.largest : 0;
    const inputs = [map, ...known, state.words, measured.name, scale.name, shared, state.aside];
    this.grid.show([...inputs, surface.colours, side], () => [
      poster({ ...scene, state: { ...state, sorted: false } }, actions, surface, { side, upright, kind: "tile" }),
    ]);
    markTiles(this.grid.element, scene, interventions, "tile");
  }
}

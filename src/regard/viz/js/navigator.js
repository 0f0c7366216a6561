// The navigator: all heads of the model as a grid, from which one is chosen.

import { clamp } from "./arithmetic.js";
import { node, Part, select } from "./dom.js";
import { availableMeasures, chosenMeasure, MEASURES } from "./measures.js";
import { headCount } from "./packing.js";
import { markTiles, poster } from "./poster.js";

/** @import { InterventionData } from "./data.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */

const TILE_GAP = 3; // pixels between pictures
const AROUND_TILES = 52; // pixels of the layers' names and of the pane's edges
const LARGEST_TILE = 52; // pixels of a picture
const SMALLEST_TILE = 14;
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
  const side = Math.floor(clamp(room / heads - TILE_GAP, SMALLEST_TILE, LARGEST_TILE * factor));
  const wanted = AROUND_TILES * factor + heads * (side + TILE_GAP);
  return { side, width: Math.round(clamp(wanted, LEAST_WIDE * factor, Math.max(most, LEAST_WIDE))) };
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
    const { side } = navigatorSize(scene, surface.whole, surface.factor);
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
      poster({ ...scene, state: { ...state, sorted: false } }, actions, surface, { side, kind: "tile" }),
    ]);
    markTiles(this.grid.element, scene, interventions, "tile");
  }
}

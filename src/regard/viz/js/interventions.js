// Interventions: heads switched off or made uniform, and single weights.

import { Dragged } from "./drag-plot.js";
import { button, node, Part, secondaryText } from "./dom.js";
import { withIcon } from "./icons.js";

/** @import { InterventionData } from "./data.js" */
/** @import { Actions, Scene } from "./scene.js" */

/**
 * The interventions with one more, which replaces an older one of the same head or weight; `undo`: without it.
 *
 * @param {readonly InterventionData[]} interventions
 * @param {InterventionData} change
 * @param {boolean} undo
 */
export function updateInterventions(interventions, change, undo) {
  const others = interventions.filter((old) => !sameTarget(old, change));
  return undo ? others : [...others, change];
}

/**
 * Whether two interventions concern the same head or weight.
 *
 * @param {InterventionData} first
 * @param {InterventionData} second
 */
function sameTarget(first, second) {
  if (first.layer !== second.layer || first.heads[0] !== second.heads[0]) return false;
  if (typeof first.to === "string" || typeof second.to === "string") return typeof first.to === typeof second.to;
  return first.query === second.query && first.key === second.key;
}

/** What can be done to the head and the weight that are chosen; the slider of a weight stays while it is dragged. */
export class TouchBar {
  /** @param {Actions} actions */
  constructor(actions) {
    this.actions = actions;
    this.heads = new Part();
    this.dragged = new Dragged((to) => {
      if (!this.place) return;
      this.actions.preview(this.place, to);
      this.actions.touch({ ...this.place, to }, false);
    });
    /** @type {Required<Omit<InterventionData, "to">> | null} */
    this.place = null;
    this.element = node("div", { class: "touch" });
    this.element.append(this.heads.element, this.dragged.element);
    this.heads.element.className = "bar";
  }

  /**
   * @param {Scene} scene
   * @param {readonly InterventionData[]} interventions active interventions
   */
  show(scene, interventions) {
    const { actions } = this;
    const { layer, matrix, state } = scene;
    const { query, key, focus, head } = state;
    const earlier = isEarlySnapshot(scene);
    const single = head !== null || key !== null || matrix.heads === 1;
    const can = !earlier && single && !scene.derived && !state.words && key !== null && state.mode === "heatmap";
    const inputs = [layer.name, matrix.heads, query, key, focus, head, earlier, scene.derived, interventions];
    this.heads.show(inputs, () => {
      if (earlier) return earlierNote(actions);
      if (scene.derived) return [secondaryText("Select a head of a layer to change it.")];
      if (!single) return [secondaryText("Select a head to switch it off, or point at a weight to change it.")];
      return switches(scene, interventions, actions);
    });
    this.place = can ? { layer: layer.name, heads: [focus], query, key } : null;
    this.dragged.show(this.place && scene, this.place, interventions);
  }

  /** Where more was touched since than is answered, show the weight as it is dragged. */
  ahead() {
    const { actions, dragged, place } = this;
    if (place && dragged.to !== null) actions.preview(place, dragged.to);
  }
}

/**
 * The number of active interventions, with buttons that undo them.
 *
 * @param {Scene} scene
 * @param {readonly InterventionData[]} interventions
 * @param {Actions | null} actions null: nothing can be undone
 */
export function changeMark(scene, interventions, actions) {
  if (!interventions.length || isEarlySnapshot(scene)) return [];
  const kinds = interventions.map(({ to }) => (typeof to === "string" ? `head ${to}` : "weight set"));
  const texts = [...new Set(kinds)].map((kind) => {
    const count = kinds.filter((candidate) => candidate === kind).length;
    return `${count} ${count > 1 ? kind.replace(/^(head|weight)/, "$1s") : kind}`;
  });
  const box = node("div", { class: "mark", role: "status" });
  box.append(node("b", {}, texts.join(", ")));
  if (actions) {
    box.append(withIcon(button("undo", actions.undo), "undo"));
    if (interventions.length > 1) box.append(button("undo all", actions.untouch));
  }
  return [box];
}

/** @param {Actions} actions */
function earlierNote(actions) {
  const text = "This is the model during training; interventions apply to the trained one.";
  return [secondaryText(text), button("to the trained model", () => actions.choose({ frame: null }))];
}

/**
 * Whether an early snapshot is displayed; the last one is the model itself.
 *
 * @param {Pick<Scene, "data" | "state">} scene
 */
function isEarlySnapshot({ data, state }) {
  return !!data.playback && state.frame !== null && state.frame < data.playback.frames.length - 1;
}

/**
 * @param {Scene} scene
 * @param {readonly InterventionData[]} interventions
 * @param {Actions} actions
 */
function switches({ layer, matrix, state }, interventions, actions) {
  const head = state.focus;
  const name = matrix.heads === 1 ? "attention" : `head ${head}`;
  return /** @type {const} */ (["off", "uniform"]).map((to) => {
    const change = { layer: layer.name, heads: [head], to };
    const on = interventions.some((intervention) => intervention.to === to && sameTarget(intervention, change));
    return withIcon(
      button(`${name} ${to}`, () => actions.touch(change, on), on),
      to,
    );
  });
}

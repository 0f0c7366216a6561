// Queries and keys as text; the keys are coloured by the weights of the selected query.

import { cssColour, inkOn } from "./colours.js";
import { node, oneTabStop, secondaryText } from "./dom.js";
import { nearbyIndices, signedNumber } from "./labels.js";
import { toggleNumber } from "./number-list.js";
import { selectedQueries } from "./rows.js";
import { currentHead } from "./sentence.js";
import { axisTitles } from "./axis-titles.js";

/** @import { Palette } from "./colours.js" */
/** @import { Actions, Scene } from "./scene.js" */

const MANY_KEYS = 12; // from this number, the keys may scroll and are reached with the tab key

const LONG_STRIP = 24; // from this number, a strip has one line, which scrolls to the chosen token

export class Tokens {
  /**
   * @param {Scene} scene
   * @param {Actions} actions
   */
  constructor(scene, actions) {
    const { matrix, state } = scene;
    this.scene = scene;
    const strongest = matrix.strongest(currentHead(scene), state.query);
    this.queries = tokenBox(matrix.queries, state.query);
    this.keys = tokenBox(matrix.keys, state.key ?? strongest);
    for (const [query, token] of this.queries.tokens) {
      const on = () => actions.point(query, null, this.scene.state.head);
      token.setAttribute("role", "button");
      token.dataset.name = `query-${query}`;
      token.addEventListener("mouseenter", on);
      token.addEventListener("focus", on);
      for (const event of ["mouseleave", "blur"]) token.addEventListener(event, () => actions.rest());
      /** @param {MouseEvent | KeyboardEvent} event */
      const choose = ({ shiftKey, ctrlKey, metaKey }) => {
        const { also } = this.scene.state;
        if (shiftKey || ctrlKey || metaKey) actions.choose({ also: toggleNumber(also, query) });
        else actions.choose({ query, key: null, also: "" });
      };
      token.addEventListener("click", choose);
      token.addEventListener("keydown", (event) => {
        if (event.key === "Enter") choose(event);
      });
    }
    oneTabStop([...this.queries.tokens.values()], state.query - (this.queries.tokens.keys().next().value ?? 0));
    const [down] = axisTitles(scene);
    if (matrix.columns > MANY_KEYS) {
      const attributes = { tabindex: "0", role: "region", "aria-label": "keys of the row" };
      for (const [name, value] of Object.entries(attributes)) this.keys.box.setAttribute(name, value);
    }
    this.lit = secondaryText("");
    const long = Math.max(matrix.rows, matrix.columns) > LONG_STRIP;
    this.element = node("div", { class: long ? "tokens long" : "tokens" });
    this.element.append(secondaryText(down), this.queries.box, this.lit, this.keys.box);
  }

  /**
   * Colours the keys by the weights or differences of a query: of the given head or the one in the sentence; the
   * mean of several queries. All drawings share the scale.
   *
   * @param {Scene} scene
   * @param {Palette} colours
   * @param {number} query
   * @param {number | null} head
   */
  light(scene, colours, query, head) {
    this.scene = scene;
    const { matrix, changes, largest, scale } = scene;
    const at = head ?? currentHead(scene);
    const own = matrix.heads > 1 || matrix.names;
    this.lit.textContent = `${axisTitles(scene)[1]}${own ? `, ${changes ? "change of " : ""}${matrix.name(at)}` : ""}`;
    const shown = changes ?? matrix.slices;
    const { share } = scale.of(matrix, at);
    this.reveal(this.queries, query);
    this.reveal(this.keys, scene.state.key ?? matrix.strongest(at, query));
    const queries = selectedQueries(scene.state, query, matrix.rows);
    for (const [index, token] of this.queries.tokens) {
      token.classList.toggle("on", queries.includes(index));
      token.setAttribute("aria-pressed", String(queries.includes(index)));
    }
    for (const [key, token] of this.keys.tokens) {
      const total = queries.reduce((sum, row) => sum + shown[at][row * matrix.columns + key], 0);
      const value = total / queries.length;
      token.title = `${changes ? signedNumber(total) : total.toFixed(3)}${queries.length > 1 ? ` from ${queries.length} rows` : ""}`;
      const colour = changes ? colours.change(value / largest) : colours.at(share(value));
      token.classList.toggle("aside", scale.aside && !changes && key === 0);
      token.style.background = cssColour(colour);
      token.style.color = inkOn(colour);
    }
  }

  /**
   * Scrolls a box of many tokens to one of them.
   *
   * @param {ReturnType<typeof tokenBox>} tokens
   * @param {number} index
   */
  reveal({ box, tokens }, index) {
    const token = tokens.get(index);
    if (!token || tokens.size <= MANY_KEYS || box.dataset.at === String(index)) return;
    box.dataset.at = String(index);
    box.scrollTop = Math.max(0, token.offsetTop - 4);
  }
}

/**
 * A box of tokens around an index, and each token by its index.
 *
 * @param {string[]} labels
 * @param {number} at
 */
function tokenBox(labels, at) {
  const box = node("div");
  const indices = nearbyIndices(labels.length, at);
  const tokens = new Map(indices.map((index) => [index, node("span", { class: "token" }, labels[index])]));
  if (indices[0] > 0) box.append(secondaryText("… "));
  box.append(...tokens.values());
  if (indices[indices.length - 1] < labels.length - 1) box.append(secondaryText(" …"));
  return { box, tokens };
}

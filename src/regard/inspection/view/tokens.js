// The queries and the keys written out; the weights of the query that is looked at colour the keys.

import { css, luminance } from "./colours.js";
import { node } from "./dom.js";
import { around } from "./labels.js";

/** @import { Palette } from "./colours.js" */
/** @import { Actions, Scene } from "./scene.js" */

export class Tokens {
  /**
   * @param {Scene} scene
   * @param {Actions} actions
   * @param {Palette} colours
   */
  constructor({ matrix, state }, actions, colours) {
    this.matrix = matrix;
    this.colours = colours;
    const strongest = matrix.strongest(state.head ?? 0, state.query);
    this.queries = tokensOf(matrix.queries, state.query);
    this.keys = tokensOf(matrix.keys, state.key ?? strongest);
    for (const [query, token] of this.queries.tokens) {
      const on = () => actions.point(query, null, state.head);
      token.tabIndex = 0;
      token.addEventListener("mouseenter", on);
      token.addEventListener("focus", on);
      token.addEventListener("click", () => actions.choose({ query, key: null }));
    }
    this.element = node("div", { class: "tokens" });
    this.element.append(quiet("from"), this.queries.box, quiet("to"), this.keys.box);
    this.light(state.query, state.head);
  }

  /**
   * Colour the keys by a query's weights: of a head, or their mean over all.
   *
   * @param {number} query
   * @param {number | null} head
   */
  light(query, head) {
    const { matrix } = this;
    const heads = matrix.chosen(head);
    for (const [index, token] of this.queries.tokens) token.classList.toggle("on", index === query);
    for (const [key, token] of this.keys.tokens) {
      const weight = heads.reduce((sum, each) => sum + matrix.at(each, query, key), 0) / heads.length;
      const colour = this.colours.at(weight / matrix.largest);
      token.style.background = css(colour);
      token.style.color = luminance(colour) > 0.45 ? "#000" : "#fff";
    }
  }
}

/**
 * A box of tokens, those around one of them, and each token by its index.
 *
 * @param {string[]} labels
 * @param {number} at
 */
function tokensOf(labels, at) {
  const box = node("div");
  const indices = around(labels.length, at);
  const tokens = new Map(indices.map((index) => [index, node("span", { class: "token" }, labels[index])]));
  if (indices[0] > 0) box.append(quiet("… "));
  box.append(...tokens.values());
  if (indices[indices.length - 1] < labels.length - 1) box.append(quiet(" …"));
  return { box, tokens };
}

/** @param {string} text */
function quiet(text) {
  return node("span", { class: "quiet" }, text);
}

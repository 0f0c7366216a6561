// Why a head looks there: what earlier parts of the model wrote into the query and the key of a weight.

import { heading, scrollBox } from "./bars.js";
import { cssColour } from "./colours.js";
import { button, keepFocus, node, Part } from "./dom.js";
import { withIcon } from "./icons.js";
import { isolate, signedNumber, tokenLabel } from "./labels.js";
import { latest } from "./latest.js";
import { commandHint, explainCommand, selectedWeight } from "./selected-weight.js";

/** @import { Palette } from "./colours.js" */
/** @import { Scene } from "./scene.js" */
/** @import { Which } from "./selected-weight.js" */

/**
 * What one part of the model wrote, and its part of the score.
 *
 * @typedef {{ kind: string, text: string, value: number }} Written
 */

/**
 * The score of a weight, as in `regard.interpret.Why`.
 *
 * @typedef {object} Reasons
 * @property {number} head
 * @property {number} query
 * @property {number} key
 * @property {string} query_label
 * @property {string} key_label
 * @property {number} score
 * @property {Written[]} query_parts the largest first
 * @property {Written[]} key_parts
 * @property {Record<string, number>} additions
 * @property {string} fixed
 */

/** @typedef {(which: Which) => Promise<Reasons>} AskWhy */

const MOST_PARTS = 6; // listed parts of a query or key
const LONGEST_PART = 90; // pixels of the longest bar
const WHAT = "what earlier parts of the model wrote into the query and the key";
const EQUAL = "A part that adds the same to the score of every key of a row does not change the weights.";

export class Why {
  /** @param {AskWhy} [ask] without it, only a hint is displayed */
  constructor(ask) {
    this.known = ask !== undefined;
    this.open = false;
    this.body = new Part();
    this.element = node("section", { class: "sum", "aria-label": "Why it looks there" });
    this.element.append(this.body.element);
    /** @type {unknown[]} */
    this.askedFor = [];
    /** @type {Reasons | Error | null} */
    this.found = null;
    /** @type {Palette | null} */
    this.colours = null;
    this.ask = latest(async (/** @type {Which} */ which) => {
      try {
        this.found = (await ask?.(which)) ?? null;
      } catch (error) {
        this.found = error instanceof Error ? error : new Error(String(error));
      }
      this.draw();
    });
  }

  /**
   * The card of the selected weight: not for merged words, averages or snapshots.
   *
   * @param {Part} card
   * @param {Scene} scene
   * @param {Palette} colours
   */
  show(card, scene, colours) {
    const { derived, matrix, state } = scene;
    const can = !derived && !matrix.names && !state.words && state.frame === null;
    const hint = can && !this.known && state.key !== null ? `${explainCommand(scene)} --why` : "";
    card.show([can, this.open, hint], () => {
      if (hint) return [commandHint(hint, WHAT, ", and the page of regard show displays it")];
      if (!can || !this.known) return [];
      const toggle = () => {
        this.open = !this.open;
        this.show(card, scene, colours);
      };
      const shown = withIcon(button("Why it looks there", toggle, this.open), "steps");
      return [shown, ...(this.open ? [this.element] : [])];
    });
    if (can && this.known && this.open) this.update(scene, colours);
  }

  /**
   * @param {Scene} scene
   * @param {Palette} colours
   */
  update(scene, colours) {
    this.colours = colours;
    const which = selectedWeight(scene);
    const asked = [scene.map, which.layer, which.head, which.output, which.key];
    if (asked.every((value, index) => value === this.askedFor[index])) return this.draw();
    this.askedFor = asked;
    this.ask(which);
  }

  draw() {
    const { found, colours } = this;
    if (!found || !colours) return;
    keepFocus(this.element, () => {
      this.body.show([found, colours], () =>
        found instanceof Error ? [node("p", { role: "alert" }, found.message)] : reasons(found, colours),
      );
    });
  }
}

/**
 * @param {Reasons} found
 * @param {Palette} colours
 */
function reasons({ head, query, key, query_label, key_label, score, fixed, additions, ...parts }, colours) {
  const [from, to] = [isolate(tokenLabel(query_label)), isolate(tokenLabel(key_label))];
  const title = `Why head ${head} gives ${from} (step ${query}) and ${to} (step ${key}) the score ${score.toFixed(4)}`;
  const columns = node("div", { class: "columns" });
  columns.append(
    ...side("Written into the query", parts.query_parts, colours),
    ...side("Written into the key", parts.key_parts, colours),
  );
  const added = Object.entries(additions).map(([name, value]) => `${name} ${signedNumber(value)}`);
  return [
    node("h2", {}, title),
    columns,
    ...(added.length ? [node("p", {}, `Added to the score: ${added.join(", ")}.`)] : []),
    node("p", { class: "quiet" }, `Fixed: ${fixed}. ${EQUAL}`),
  ];
}

/**
 * @param {string} title
 * @param {Written[]} parts
 * @param {Palette} colours
 */
function side(title, parts, colours) {
  const section = node("div");
  const largest = Math.max(...parts.map(({ value }) => Math.abs(value)), 1e-9);
  const table = node("table");
  const body = node("tbody");
  for (const { text, value } of parts.slice(0, MOST_PARTS)) body.append(partRow(text, value, largest, colours));
  const others = parts.slice(MOST_PARTS);
  const sum = others.reduce((total, { value }) => total + value, 0);
  if (others.length)
    body.append(partRow(`${others.length} other${others.length > 1 ? "s" : ""}`, sum, largest, colours));
  table.append(body);
  section.append(heading(title, `(${parts.length} part${parts.length > 1 ? "s" : ""})`), scrollBox(table, title));
  return [section];
}

/**
 * @param {string} text
 * @param {number} value
 * @param {number} largest the value of the longest bar
 * @param {Palette} colours
 */
function partRow(text, value, largest, colours) {
  const element = node("tr");
  const bar = node("span", { "aria-hidden": "true" });
  bar.style.width = `${Math.min(Math.abs(value) / largest, 1) * LONGEST_PART}px`;
  bar.style.background = cssColour(colours.change(value < 0 ? -1 : 1));
  const cell = node("td", { class: "bars" });
  cell.append(bar);
  element.append(node("th", { scope: "row", class: "part" }, text), node("td", {}, signedNumber(value)), cell);
  return element;
}

// The logit lens as a table, and direct logit attribution as a grid of layers and heads.

import { cssColour, inkOn } from "../../viz/js/colours.js";
import { node, oneTabStop, scrollBox, secondaryText, select, table } from "../../viz/js/dom.js";
import { percent, shortNames, tokenLabel } from "../../viz/js/labels.js";

/** @import { Colour, Palette } from "../../viz/js/colours.js" */
/** @import { View } from "../../viz/js/view.js" */

/**
 * @typedef {object} Lens
 * @property {string[]} positions
 * @property {string[]} layers
 * @property {string[]} head names of the final norm and the unembedding
 * @property {string[][][]} tokens by layer and position, the likeliest first
 * @property {number[][][]} probabilities
 */

/**
 * @typedef {object} Attribution
 * @property {string} token
 * @property {number} token_id
 * @property {number} logit
 * @property {Record<string, number[]>} heads by layer
 * @property {Record<string, number>} feed_forward
 * @property {Record<string, number>} embeddings
 * @property {Record<string, number>} biases
 * @property {number} remainder
 */

/** @param {Lens} lens @param {Palette} colours */
export function lensTable(lens, colours) {
  const rows = lens.layers.map((layer, row) => {
    const cells = lens.tokens[row].map((tokens, position) => {
      const shares = lens.probabilities[row][position];
      const cell = node("td", {}, tokenLabel(tokens[0]));
      cell.title = tokens.map((token, rank) => `${tokenLabel(token)} ${percent(shares[rank])}`).join("\n");
      paintLogits(cell, colours.at(shares[0]));
      return cell;
    });
    return [node("th", { scope: "row", title: layer }, row ? `layer ${row - 1}` : layer), ...cells];
  });
  const names = ["after", ...lens.positions.map(tokenLabel)];
  const box = scrollBox(table(names, rows.reverse()), "Logit lens"); // the last block on top, as the state flows upwards
  const said =
    `Each cell shows the likeliest token if ${lens.head.join(" and ")} are applied to the state after that layer. ` +
    "Its color shows the probability. Both modules were trained for the last layer only.";
  return [node("h2", {}, "Logit lens"), node("p", { class: "quiet" }, said), box];
}

/**
 * @param {Attribution} parts
 * @param {{ id: number, token: string }[]} tokens that can be chosen
 * @param {View} view @param {(token: number) => void} choose
 */
export function attributionGrid(parts, tokens, view, choose) {
  const { colours } = view.surface();
  const names = shortNames(view.map.layers);
  const rows = Object.entries(parts.heads);
  const most = Math.max(...rows.flatMap(([, values]) => values.map(Math.abs)), 1e-9);
  const heads = Math.max(...rows.map(([, values]) => values.length));
  const label = `What each head adds to the logit of ${tokenLabel(parts.token)}; rows are layers, columns are heads`;
  const grid = node("div", { class: "parts", role: "group", "aria-label": label });
  grid.style.gridTemplateColumns = `max-content repeat(${heads}, minmax(0, 2.2rem))`;
  grid.append(node("span"));
  for (let head = 0; head < heads; head += 1) grid.append(node("span", { class: "quiet" }, String(head)));
  /** @type {HTMLElement[]} */
  const cells = [];
  for (const [layer, values] of rows) {
    const name = names.get(layer) ?? layer;
    grid.append(node("span", { class: "quiet name", title: layer }, name));
    values.forEach((value, head) => {
      const cell = node("button", { type: "button", "aria-label": `layer ${name}, head ${head}: ${signed(value)}` });
      cell.title = `layer ${name}, head ${head}: ${signed(value)}`;
      paintLogits(cell, colours.change(value / most));
      cell.addEventListener("click", () => view.open(layer, head));
      cells.push(cell);
      grid.append(cell);
    });
    for (let head = values.length; head < heads; head += 1) grid.append(node("span"));
  }
  oneTabStop(cells, 0, heads);
  const list = tokens.map(({ token }) => tokenLabel(token));
  const at = tokens.findIndex(({ id }) => id === parts.token_id);
  const others = [parts.feed_forward, parts.embeddings, parts.biases].map((values) => Object.values(values));
  const sums = [rows.flatMap(([, values]) => values), ...others].map(total);
  const said = ["heads", "feed-forward", "embeddings", "biases"].map((name, index) => `${name} ${signed(sums[index])}`);
  return [
    select("Logit of", list, at, (index) => choose(tokens[index].id)),
    grid,
    secondaryText(
      `${said.join(", ")}: logit ${signed(parts.logit)}. Green heads raise the logit, brown ones lower it, by at most ${most.toFixed(2)}. Only direct paths count; the scale of each norm is frozen.`,
    ),
  ];
}

/** @param {number[]} values */
function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

/** @param {number} value */
function signed(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
}

/** @param {HTMLElement} element @param {Colour} colour */
function paintLogits(element, colour) {
  element.style.background = cssColour(colour);
  element.style.color = inkOn(colour);
}

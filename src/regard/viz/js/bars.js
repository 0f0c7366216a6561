// Numbers as bars: vectors, and shares in tables.

import { cssColour } from "./colours.js";
import { node, svg } from "./dom.js";

/** @import { Palette } from "./colours.js" */

const MOST_NUMBERS = 5; // numbers of a vector shown as text
const STRIP = { width: 300, height: 30 }; // size of a vector in pixels
const BAR = 120; // pixels of the longest bar

/**
 * @param {string} text
 * @param {string} shape
 */
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

/**
 * @param {number} share
 * @param {Palette} colours
 */
export function barCell(share, colours) {
  const cell = node("td", { class: "bars" });
  const bar = node("span", { "aria-hidden": "true" });
  bar.style.width = `${Math.max(0, share) * BAR}px`;
  bar.style.background = cssColour(colours.at(0.65));
  cell.append(bar);
  return cell;
}

/**
 * A table that scrolls if it is wider than the page.
 *
 * @param {HTMLTableElement} table
 * @param {string} name
 */
export function scrollBox(table, name) {
  const box = node("div", { class: "scrolling", role: "region", tabindex: 0, "aria-label": name });
  box.append(table);
  return box;
}

/**
 * Vectors as bars and numbers, each with its own scale.
 *
 * @param {[string, number[]][]} vectors
 * @param {Palette} colours
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
 *
 * @param {string} name
 * @param {number[]} values
 * @param {number} largest the value of a full bar
 * @param {Palette} colours
 */
function strip(name, values, largest, colours) {
  const { width, height } = STRIP;
  const low = Math.min(...values).toFixed(3);
  const high = Math.max(...values).toFixed(3);
  const label = `${name}: ${values.length} numbers from ${low} to ${high}`;
  const picture = svg("svg", {
    width,
    height,
    role: "img",
    "aria-label": label,
    viewBox: `0 0 ${width} ${height}`,
  });
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
    svg("line", {
      x1: 0,
      x2: width,
      y1: height / 2,
      y2: height / 2,
      stroke: "currentColor",
      "stroke-opacity": 0.5,
    }),
  );
  return picture;
}

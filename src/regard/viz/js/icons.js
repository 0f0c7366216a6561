// Small drawings beside the labels of buttons; none replaces a label.

import { node, svg } from "./dom.js";

/** @type {Record<string, string>} */
const ICONS = {
  picture: "M2 3h12v10H2zM2 11l4-4 3 3 2-2 3 3",
  heatmap: "M2 2h12v12H2zM2 6h12M2 10h12M6 2v12M10 2v12",
  lines: "M3 3l10 10M3 8h10M3 13L13 3",
  arcs: "M3 2v12M3 3c12 0 12 10 0 10M3 5c6 0 6 6 0 6",
  flow: "M2 4c6 0 6 8 12 8M2 12c6 0 6-8 12-8M11 9l3 3-3 2",
  table: "M2 3h12v10H2zM2 6h12M7 3v10",
  overview: "M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z",
  off: "M8 2v6M4.5 4a5.5 5.5 0 1 0 7 0",
  uniform: "M3 5h10M3 8h10M3 11h10",
  undo: "M6 3L2 7l4 4M2 7h8a4 4 0 0 1 0 8H7",
  save: "M8 2v8M4.5 7L8 10.5 11.5 7M2 14h12",
  sum: "M12 3H4l5 5-5 5h8",
  keys: "M1.5 4h13v8h-13zM4 7h.1M7 7h.1M10 7h.1M13 7h.1M5 10h6",
  search: "M7 2a5 5 0 1 0 .1 0M11 11l3.5 3.5",
  dice: "M2 2h12v12H2zM5 5h.1M11 5h.1M8 8h.1M5 11h.1M11 11h.1",
  bars: "M3 14V7M8 14V2M13 14V9",
  play: "M4 2l9 6-9 6z",
  steps: "M2 13h4V9h4V5h4",
  guide: "M8 14V7M8 4h.1M8 1a7 7 0 1 0 .1 0",
  role: "M8 2a3 3 0 1 0 .1 0M2 15c0-7 12-7 12 0",
};

/**
 * A small drawing beside a label, which it does not replace.
 *
 * @param {string} name
 */
export function icon(name) {
  const box = node("span", { class: "icon", "aria-hidden": "true" });
  const picture = svg("svg", { viewBox: "0 0 16 16" });
  picture.append(svg("path", { d: ICONS[name] }));
  box.append(picture);
  return box;
}

/**
 * Puts an icon before the label of a button.
 *
 * @template {HTMLElement} Kind
 * @param {Kind} element
 * @param {string} name
 */
export function withIcon(element, name) {
  element.prepend(icon(name));
  return element;
}

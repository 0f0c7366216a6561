// Self-attention as arcs beside a list of tokens, from each query to its keys.

import { headDashes, headColour } from "./colours.js";
import { node, oneTabStop, svg } from "./dom.js";
import { fisheye, omittedLabels } from "./fisheye.js";
import { nearbyIndices } from "./labels.js";
import { AROUND_LINES, headOffset, headLegend, lineToken } from "./lines.js";
import { largestKeys, lineOpacity, omittedLines, strongest } from "./row-lines.js";
import { currentHead } from "./sentence.js";
import { textScale, widestText } from "./text-width.js";
import { TALLEST } from "./viewport.js";

/** @import { Actions, Scene, Surface } from "./scene.js" */

const ARC_STEP = 19; // pixels between tokens
const ARC_LABEL = 170; // pixels of a label
const BULGE = 260; // pixels, the maximal width of an arc
const ENLARGED = 6; // keys of the chosen row that are far apart
export const CONTRAST = 1.5; // exponent of the opacity: arcs overlap, so weak ones are faint

/**
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Surface} surface
 */
export function arcs(scene, actions, { colours, width, height: room }) {
  const { matrix, state, scale } = scene;
  const heads = matrix.shown(state);
  const places = nearbyIndices(matrix.rows, state.query);
  const selection = strongest(matrix, heads, places, places, { ...state, aside: scale.aside });
  const factor = textScale();
  const widest = widestText(places.map((place) => matrix.keys[place]));
  const left = Math.min(ARC_LABEL * factor, Math.max(40, widest));
  const bulge = Math.min(BULGE * factor, Math.max(60, width - left - 30));
  const focus = [state.query, ...largestKeys(matrix, heads, state.query, ENLARGED)].map((key) => key - places[0]);
  const sides = fisheye(places.length, focus, (room ?? TALLEST) - AROUND_LINES, ARC_STEP * factor);
  const size = { width: left + bulge + 24, height: sides.height + 12 };
  const picture = svg("svg", { ...size, role: "group", "aria-label": "Arcs from queries to keys" });
  /** @param {number} place */
  const y = (place) => sides.at[place - places[0]] + 4;
  const drawn = selection.lines.map((line) => {
    const far = Math.abs(line.query - line.key) / Math.max(places.length - 1, 1);
    const out = left + 14 + Math.max(14, bulge * Math.sqrt(far)) * 1.3;
    const aside = headOffset(heads, line.head) - 4;
    const start = `${left + 10} ${y(line.query) + aside}`;
    const end = `${left + 10} ${y(line.key) + aside + (line.query === line.key ? 3 : 0)}`;
    const share = scale.of(matrix, line.head).share(line.weight);
    const element = svg("path", {
      d: `M ${start} C ${out} ${y(line.query) + aside}, ${out} ${y(line.key) + aside}, ${end}`,
      fill: "none",
      stroke: matrix.heads === 1 ? colours.line : headColour(line.head, colours.dark),
      "stroke-dasharray": headDashes(line.head),
      "stroke-width": 2,
      "stroke-opacity": lineOpacity(line, share ** CONTRAST, state),
    });
    const [from, to] = [matrix.queries[line.query], matrix.keys[line.key]];
    element.append(svg("title", {}, `${matrix.name(line.head)}: ${from} → ${to} ${line.weight.toFixed(3)}`));
    picture.append(element);
    return { ...line, element };
  });
  /** @param {number | null} query */
  const show = (query) => {
    for (const { element, query: own } of drawn) {
      element.setAttribute("visibility", query === null || own === query ? "visible" : "hidden");
    }
  };
  const words = places.map((place, index) => {
    const at = { x: left, y: y(place), "text-anchor": "end", "data-name": `arc-${place}` };
    const on = () => {
      show(place);
      const head = currentHead(scene);
      actions.point(place, matrix.strongest(head, place), head);
    };
    const off = () => {
      show(null);
      actions.rest();
    };
    const word = lineToken(matrix.queries[place], sides.labelled[index], ARC_LABEL * factor, at, on, off);
    if (place === state.query) word.classList.add("chosen");
    word.addEventListener("click", () => actions.choose({ query: place, key: null }));
    return word;
  });
  oneTabStop(words, state.query - places[0]);
  picture.append(...words);
  const box = node("div", { class: "lines" });
  const said = omittedLines(matrix, places, places, selection, state.top) + omittedLabels([sides]);
  box.append(...headLegend(scene, actions, colours.dark), picture, node("p", { class: "quiet" }, said));
  return box;
}

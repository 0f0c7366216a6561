// Self-attention as arcs beside a list of tokens, from each query to its keys.

import { clamp } from "./arithmetic.js";
import { headDashes, headColour } from "./colours.js";
import { node, oneTabStop, svg } from "./dom.js";
import { nearbyIndices, fitLabel } from "./labels.js";
import { headOffset, headLegend, omittedLines, strongest } from "./lines.js";
import { widestText, textWidth } from "./text-width.js";
import { currentHead } from "./sentence.js";

/** @import { Actions, Scene, Surface } from "./scene.js" */

const ARC_STEP = 19; // pixels between tokens
const ARC_LABEL = 170; // pixels of a label
const BULGE = 260; // pixels, the maximal width of an arc
export const CONTRAST = 1.5; // exponent of the opacity: arcs overlap, so weak ones are faint

/**
 * @param {Scene} scene
 * @param {Actions} actions
 * @param {Surface} surface
 */
export function arcs(scene, actions, { colours, width }) {
  const { matrix, state, scale } = scene;
  const heads = matrix.shown(state);
  const places = nearbyIndices(matrix.rows, state.query);
  const selection = strongest(matrix, heads, places, places, state);
  const left = Math.min(ARC_LABEL, Math.max(40, widestText(places.map((place) => matrix.keys[place]))));
  const bulge = Math.min(BULGE, Math.max(60, width - left - 30));
  const size = { width: left + bulge + 24, height: ARC_STEP * (places.length + 1) };
  const picture = svg("svg", {
    ...size,
    role: "group",
    "aria-label": "Arcs from queries to keys",
  });
  /** @param {number} place */
  const y = (place) => ARC_STEP * (place - places[0] + 0.8);
  const drawn = selection.lines.map((line) => {
    const far = Math.abs(line.query - line.key) / Math.max(places.length - 1, 1);
    const out = left + 14 + Math.max(14, bulge * Math.sqrt(far)) * 1.3;
    const aside = headOffset(heads, line.head) - 4;
    const start = `${left + 10} ${y(line.query) + aside}`;
    const end = `${left + 10} ${y(line.key) + aside + (line.query === line.key ? 3 : 0)}`;
    const element = svg("path", {
      d: `M ${start} C ${out} ${y(line.query) + aside}, ${out} ${y(line.key) + aside}, ${end}`,
      fill: "none",
      stroke: matrix.heads === 1 ? colours.line : headColour(line.head, colours.dark),
      "stroke-dasharray": headDashes(line.head),
      "stroke-width": 2,
      "stroke-opacity": clamp(scale.of(matrix, line.head).share(line.weight) ** CONTRAST, 0.05, 1).toFixed(3),
    });
    element.append(
      svg(
        "title",
        {},
        `${matrix.name(line.head)}: ${matrix.queries[line.query]} → ${matrix.keys[line.key]} ${line.weight.toFixed(3)}`,
      ),
    );
    picture.append(element);
    return { ...line, element };
  });
  /** @param {number | null} query */
  const show = (query) => {
    for (const { element, query: own } of drawn) {
      element.setAttribute("visibility", query === null || own === query ? "visible" : "hidden");
    }
  };
  const words = places.map((place) => {
    const attributes = { x: left, y: y(place), "text-anchor": "end", role: "button", class: "word" };
    const label = matrix.queries[place];
    const text = svg(
      "text",
      { ...attributes, "aria-label": label, "data-name": `arc-${place}` },
      fitLabel(label, ARC_LABEL, textWidth),
    );
    const on = () => {
      text.classList.add("on");
      show(place);
      const head = currentHead(scene);
      actions.point(place, matrix.strongest(head, place), head);
    };
    const off = () => {
      text.classList.remove("on");
      show(null);
      actions.rest();
    };
    for (const event of ["mouseenter", "focus"]) text.addEventListener(event, on);
    for (const event of ["mouseleave", "blur"]) text.addEventListener(event, off);
    text.addEventListener("click", () => actions.choose({ query: place, key: null }));
    return text;
  });
  oneTabStop(words, state.query - places[0]);
  picture.append(...words);
  const box = node("div", { class: "lines" });
  box.append(...headLegend(scene, actions, colours.dark), picture);
  box.append(node("p", { class: "quiet" }, omittedLines(matrix, places, places, selection)));
  return box;
}

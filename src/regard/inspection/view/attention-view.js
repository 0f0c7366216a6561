// Attention maps in a page: one heatmap for each head of the chosen layer, all on one scale.
//
//   import { show } from "./attention-view.js";
//   show(element, maps);
//
// `maps` is a list of attention maps as `regard.inspection.page` writes them:
//   { task, input, prediction: [int] or text, truth: the same or null,
//     layers: [{ name, title, queries: [label], keys: [label],
//                weights: [head][query][key], relevant: [query][key] | null }] }
// No dependency, no network. Text from inputs only ever becomes text nodes.

const SVG = "http://www.w3.org/2000/svg";
const CELL = 26; // side of one weight, pixels
// viridis at 0, 1/4, 1/2, 3/4, 1: keeps its order for colour-blind eyes and in grey.
const COLOURS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

/** Colour of a share from 0 to 1, as CSS. */
export function colour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (COLOURS.length - 1);
  const low = Math.min(Math.floor(at), COLOURS.length - 2);
  const channel = (i) => Math.round(COLOURS[low][i] + (at - low) * (COLOURS[low + 1][i] - COLOURS[low][i]));
  return `rgb(${channel(0)}, ${channel(1)}, ${channel(2)})`;
}

/** Draw `maps` into `element`, with a choice of input and layer. */
export function show(element, maps) {
  const state = { map: 0, layer: initialLayer(maps[0]) };
  const draw = () => {
    const map = maps[state.map];
    const choices = node("p", { class: "choices" });
    if (maps.length > 1) {
      choices.append(choice("Input", maps.map((each) => each.input), state.map, (index) => {
        Object.assign(state, { map: index, layer: Math.min(state.layer, maps[index].layers.length - 1) });
        draw();
      }));
    }
    choices.append(choice("Layer", map.layers.map((layer) => layer.title), state.layer, (index) => {
      state.layer = index;
      draw();
    }));
    element.replaceChildren(answer(map), choices, panels(map.layers[state.layer]));
  };
  draw();
}

/** The layer that reads the input, which is what most people look for first. */
function initialLayer(map) {
  return Math.max(0, map.layers.findIndex((layer) => layer.name.split(".").pop() === "cross"));
}

function answer(map) {
  const said = (answer) => answer === null ? "unknown" : Array.isArray(answer) ? answer.join(" ") : answer;
  const right = said(map.prediction) === said(map.truth);
  const line = node("p", { class: "answer" });
  line.append(node("b", {}, map.task), " ", node("code", {}, map.input), ` prediction ${said(map.prediction)}, `,
    `truth ${said(map.truth)} `);
  if (map.truth !== null) {
    line.append(node("span", { class: right ? "right" : "wrong" }, right ? "✓ right" : "✗ wrong"));
  }
  return line;
}

function choice(label, options, selected, onChange) {
  const select = node("select", {});
  options.forEach((option, index) => {
    const each = node("option", { value: index }, option);
    each.selected = index === selected;
    select.append(each);
  });
  select.addEventListener("change", () => onChange(select.selectedIndex));
  const wrapper = node("label", {}, `${label} `);
  wrapper.append(select);
  return wrapper;
}

function panels(layer) {
  const largest = Math.max(...layer.weights.flat(2));
  const readout = node("output", {}, `Point at a cell. Colours go from 0 to ${largest.toFixed(3)}.`);
  const row = node("div", { class: "panels" });
  layer.weights.forEach((_, head) => row.append(panel(layer, head, largest, readout)));
  const whole = node("div", {});
  whole.append(row, readout);
  if (layer.relevant) whole.append(node("p", { class: "note" }, "● the output depends on this input"));
  return whole;
}

function panel(layer, head, largest, readout) {
  const { queries, keys, relevant } = layer;
  const left = 12 + 7.5 * Math.max(...queries.map((label) => label.length));
  const picture = svg("svg", {
    width: left + keys.length * CELL + 4, height: 22 + queries.length * CELL + 4, role: "img",
    "aria-label": `Weights of head ${head}`,
  });
  const texts = { query: [], key: [] };
  keys.forEach((label, key) => {
    texts.key.push(svg("text", { x: left + (key + 0.5) * CELL, y: 15, "text-anchor": "middle" }, label));
  });
  queries.forEach((label, query) => {
    texts.query.push(svg("text", { x: left - 6, y: 22 + (query + 0.65) * CELL, "text-anchor": "end" }, label));
  });
  picture.append(...texts.key, ...texts.query);
  queries.forEach((_, query) => keys.forEach((_, key) => {
    const weight = layer.weights[head][query][key];
    const x = left + key * CELL, y = 22 + query * CELL;
    const cell = svg("rect", { x, y, width: CELL - 1, height: CELL - 1, fill: colour(weight / largest), tabindex: 0 });
    const tell = (on) => () => {
      texts.query[query].classList.toggle("on", on);
      texts.key[key].classList.toggle("on", on);
      if (on) readout.textContent = `head ${head}: ${queries[query]} → ${keys[key]} (step ${key}): ${weight.toFixed(4)}`;
    };
    for (const event of ["mouseenter", "focus"]) cell.addEventListener(event, tell(true));
    for (const event of ["mouseleave", "blur"]) cell.addEventListener(event, tell(false));
    picture.append(cell);
    if (relevant && relevant[query][key]) {
      picture.append(svg("circle", { cx: x + CELL / 2, cy: y + CELL / 2, r: 3, class: "relevant" }));
    }
  }));
  const figure = node("figure", {});
  figure.append(node("figcaption", {}, `head ${head}`), picture);
  return figure;
}

function node(name, attributes, text) {
  return filled(document.createElement(name), attributes, text);
}

function svg(name, attributes, text) {
  return filled(document.createElementNS(SVG, name), attributes, text);
}

function filled(element, attributes, text) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

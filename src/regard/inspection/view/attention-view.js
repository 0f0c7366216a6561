// Attention you can see and touch: one module, without dependencies, for the notebook, the exported page and the
// explorer.
//
//   import { show } from "./attention-view.js";
//   const view = show(element, { maps: [map] });
//   view.update({ maps: [other] });
//
// A map, as `regard.inspection.page.as_json` writes it:
//   { task, input, prediction: [int] or text or null, truth: the same, outputs: [label], probabilities: [share],
//     layers: [{ name, title, kind: "encoder" | "decoder" | "cross", queries: [label], keys: [label],
//                weights: [head][query][key], or { packed, largest, heads }, relevant: [[query, key]] or null,
//                query_words: [[query]] or null, key_words: [[key]] or null }] }
// `packed` is base64 of zlib of unsigned 16-bit numbers, low byte first: 65535 stands for `largest`.
// Beside `maps` there may be `original` (a map, what the model did before it was touched), `importance`
// ({ layer: [loss that is added when the head is off] }) and `playback` ({ steps: [step], losses: [[step, loss]],
// frames: [map] }). Text from inputs only ever becomes text nodes.

const LARGEST_CELL = 28; // pixels
const TALLEST = 560; // of a heatmap, pixels
const THUMBNAIL = 76; // side of a head in the overview, pixels
const SHOWN = 160; // tokens written out at once; of more, those around the chosen one
const LINES = 1500; // lines drawn at most, the strongest
const LIGHT = ["#ffffff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b"];
const DARK = ["#101418", "#0b2a4f", "#0d3f78", "#16599f", "#2c77c2", "#5598da", "#8abaea", "#c2dcf6", "#ffffff"];
// Less and more than before: brown and blue-green stay apart for colour-blind eyes.
const LESS = [166, 97, 26], MORE = [1, 133, 113];

const STYLE = `
.regard-view { font: 14px/1.45 system-ui, sans-serif; container-type: inline-size; }
.regard-view * { box-sizing: border-box; }
.regard-view .bar { display: flex; flex-wrap: wrap; gap: 0.4rem 1rem; align-items: center; margin: 0.4rem 0; }
.regard-view label { display: inline-flex; gap: 0.35rem; align-items: center; max-width: 100%; }
.regard-view select { max-width: min(24rem, 60cqw); }
.regard-view select, .regard-view button, .regard-view input { font: inherit; color: inherit; }
.regard-view button, .regard-view select { background: transparent; border: 1px solid color-mix(in srgb, currentColor 35%, transparent);
  border-radius: 4px; padding: 0.1rem 0.5rem; }
.regard-view option { color: black; background: white; }
.regard-view button[aria-pressed="true"] { background: color-mix(in srgb, currentColor 18%, transparent); font-weight: 600; }
.regard-view :focus-visible { outline: 2px solid #d97706; outline-offset: 1px; }
.regard-view .panels { display: flex; flex-wrap: wrap; gap: 0.75rem; }
.regard-view figure { margin: 0; max-width: 100%; }
.regard-view figcaption { font-size: 12px; display: flex; gap: 0.6rem; align-items: center; flex-wrap: wrap; }
.regard-view canvas { display: block; max-width: 100%; }
.regard-view .thumb { border: 0; padding: 2px; display: inline-grid; gap: 1px; justify-items: start; font-size: 11px; }
.regard-view .grid { display: grid; gap: 0.3rem; overflow-x: auto; }
.regard-view .grid .row { display: flex; gap: 0.2rem; align-items: end; }
.regard-view .grid .row > span:first-child { flex: 0 0 9.5rem; font-size: 12px; }
.regard-view .tokens { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 0.6rem; margin: 0.5rem 0; font-size: 13px; }
.regard-view .tokens > div { max-height: 7.5rem; overflow-y: auto; }
.regard-view .token { display: inline-block; padding: 0 3px; margin: 1px; border-radius: 3px; border: 1px solid transparent;
  min-width: 1.1em; text-align: center; white-space: pre; }
.regard-view .token.on { border-color: currentColor; font-weight: 600; }
.regard-view .token[tabindex] { cursor: pointer; }
.regard-view output { display: block; min-height: 1.5em; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.regard-view .answer { overflow-wrap: anywhere; margin: 0.3rem 0; }
.regard-view .answer code { white-space: pre-wrap; font-size: 1.05em; }
.regard-view .quiet { opacity: 0.75; }
.regard-view .legend { display: inline-flex; gap: 0.4rem; align-items: center; font-size: 12px; }
.regard-view .lines { overflow: auto; max-height: 640px; }
.regard-view svg text { fill: currentColor; font-size: 12px; }
.regard-view svg text.on { font-weight: 700; }
.regard-view svg text[tabindex] { cursor: pointer; }
.regard-view .changed { text-decoration: underline 2px; font-weight: 600; }
.regard-view .touch { border-left: 3px solid color-mix(in srgb, currentColor 35%, transparent); padding-left: 0.6rem; }
@media print { .regard-view { color: black; } .regard-view .bar, .regard-view .touch { display: none; } }
`;

/** Draw `data` into `element`; `options`: see `View`. Returns the view, with `update(data)` and `destroy()`. */
export function show(element, data, options = {}) {
  const view = new View(element, options);
  view.update(data);
  return view;
}

/** The widget of a notebook (anywidget). */
export default {
  render({ model, el }) {
    const waiting = new Map();
    model.on("msg:custom", (message) => {
      waiting.get(message.id)?.(message.weights);
      waiting.delete(message.id);
    });
    const exact = (place) => new Promise((resolve) => {
      const id = Math.random().toString(36);
      waiting.set(id, resolve);
      model.send({ ...place, id });
    });
    const view = show(el, JSON.parse(model.get("data")), { exact });
    model.on("change:data", () => view.update(JSON.parse(model.get("data"))));
    return () => view.destroy();
  },
};

/**
 * `options.exact({ map, layer, head, query })`: resolves to the row's exact weights, where those at hand are rounded.
 * `options.touch(interventions)`: called when heads are switched or a weight is set, as a list of
 * { layer, heads, to, query, key }; without it nothing can be touched.
 */
class View {
  constructor(element, options) {
    this.element = element;
    this.options = options;
    this.state = { map: 0, layer: null, head: null, mode: "heatmap", words: false, query: 0, key: null, focus: 0,
      change: false, frame: null };
    this.touched = [];
    this.matrices = new WeakMap();
    this.root = node("div", { class: "regard-view" });
    element.replaceChildren(this.root);
    adopt(element);
    this.observer = new ResizeObserver(() => this.resized());
    this.observer.observe(this.root);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.draw();
    this.scheme.addEventListener("change", this.redraw);
    this.printing = (on) => () => { this.forPaper = on; this.drawPanels(); };
    this.beforePrint = this.printing(true);
    this.afterPrint = this.printing(false);
    addEventListener("beforeprint", this.beforePrint);
    addEventListener("afterprint", this.afterPrint);
  }

  destroy() {
    this.observer.disconnect();
    clearInterval(this.timer);
    this.scheme.removeEventListener("change", this.redraw);
    removeEventListener("beforeprint", this.beforePrint);
    removeEventListener("afterprint", this.afterPrint);
    this.root.remove();
  }

  /** Show other data; what was chosen stays chosen where it still can be. */
  update(data) {
    this.data = data;
    if (data.interventions) this.touched = data.interventions;
    this.state.map = Math.min(this.state.map, data.maps.length - 1);
    if (data.playback === undefined || data.playback === null) this.state.frame = null;
    return this.choose({});
  }

  get map() {
    const { playback } = this.data;
    return this.state.frame === null || !playback ? this.data.maps[this.state.map] : playback.frames[this.state.frame];
  }

  get layer() { return this.map.layers.find((layer) => layer.name === this.state.layer); }

  /** Change what is shown, then draw. */
  async choose(change) {
    Object.assign(this.state, change);
    const { state, map } = this;
    if (!this.layer) state.layer = initialLayer(map);
    const layer = this.layer;
    if (layer) {
      const ticket = this.ticket = {};
      const matrix = await this.matrix(layer);
      const before = this.originalOf(layer);
      if (before) await this.matrix(before);
      for (const each of this.inAllFrames(layer)) await this.matrix(each);
      if (state.mode === "overview") for (const each of map.layers) await this.matrix(each);
      if (ticket !== this.ticket) return; // something else was chosen meanwhile
      if (state.head !== null && state.head >= matrix.heads) state.head = null;
      state.focus = state.head ?? Math.min(state.focus, matrix.heads - 1);
      if (state.head === null && matrix.heads > 1 && Math.max(matrix.rows, matrix.columns) > 80) state.head = 0;
      const seen = this.shown(layer);
      state.query = Math.min(state.query, seen.rows - 1);
      if (state.key !== null) state.key = Math.min(state.key, seen.columns - 1);
    }
    this.draw();
  }

  /** The layer before it was touched, where its weights are of the same tokens: another answer has others. */
  originalOf(layer) {
    const before = this.data.original?.layers.find((each) => each.name === layer.name);
    const same = (one, other) => one.length === other.length && one.every((label, index) => label === other[index]);
    return before && same(before.queries, layer.queries) && same(before.keys, layer.keys) ? before : undefined;
  }

  /** A layer as it was after each snapshot, so that one scale holds for all of the training. */
  inAllFrames(layer) {
    const { playback } = this.data;
    return (playback?.frames ?? []).map((frame) => frame.layers.find((each) => each.name === layer.name));
  }

  /** The weights of a layer as they came, unpacked once. */
  async matrix(layer) {
    if (!this.matrices.has(layer)) this.matrices.set(layer, unpack(layer));
    const matrix = await this.matrices.get(layer);
    layer.matrix = matrix;
    return matrix;
  }

  /** The weights of a layer as they are shown: between words, if that was chosen. */
  shown(layer) {
    const { matrix } = layer;
    if (!this.state.words || !(layer.query_words || layer.key_words)) return matrix;
    return layer.merged ??= merge(matrix, layer);
  }

  draw() {
    const { map, state, layer } = this;
    this.colours = palette(this.forPaper || !isDark(this.root));
    const parts = [answer(map, this.data.original)];
    if (layer) {
      parts.push(this.toolbar());
      if (this.options.touch) parts.push(this.touchBar());
      if (this.data.playback) parts.push(this.player());
      this.stage = node("div", {});
      this.strips = node("div", { class: "tokens" });
      this.readout = node("output", { "aria-live": "polite" });
      parts.push(this.stage, this.readout, this.strips, this.legend());
    } else {
      parts.push(node("p", { class: "quiet" }, "This model has no attention to show."));
    }
    const focused = this.root.contains(document.activeElement) ? document.activeElement.dataset.name : null;
    this.root.replaceChildren(...parts);
    if (layer) {
      this.drawPanels();
      this.drawTokens();
      this.tell();
    }
    // What was drawn anew gets the focus back that the old one had.
    if (focused) this.root.querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  toolbar() {
    const { map, state, data, layer } = this;
    const bar = node("div", { class: "bar" });
    if (data.maps.length > 1) {
      bar.append(select("Input", data.maps.map((each, index) => each.input || `input ${index}`), state.map,
        (index) => this.choose({ map: index, query: 0, key: null })));
    }
    const kinds = [...new Set(map.layers.map((each) => each.kind))];
    if (kinds.length > 1) {
      const names = { encoder: "encoder", decoder: "decoder", cross: "cross (outputs to inputs)" };
      bar.append(select("Kind", kinds.map((kind) => names[kind]), kinds.indexOf(layer.kind), (index) => {
        const number = this.among().indexOf(layer);
        const others = map.layers.filter((each) => each.kind === kinds[index]);
        this.choose({ layer: others[Math.min(number, others.length - 1)].name, query: 0, key: null });
      }));
    }
    const layers = this.among();
    if (layers.length > 1 || kinds.length === 1) {
      bar.append(select("Layer", layers.map((each) => each.title), layers.indexOf(layer),
        (index) => this.choose({ layer: layers[index].name, query: 0, key: null })));
    }
    const { heads } = layer.matrix;
    if (heads > 1) {
      const names = Array.from({ length: heads }, (_, head) => `head ${head}`);
      bar.append(select("Head", ["all heads", ...names], state.head === null ? 0 : state.head + 1,
        (index) => this.choose({ head: index === 0 ? null : index - 1 })));
    }
    const modes = { heatmap: "Heatmap", lines: "Lines", overview: "Overview" };
    const tabs = node("span", { role: "group", "aria-label": "How to draw" });
    for (const [mode, name] of Object.entries(modes)) {
      tabs.append(button(name, () => this.choose({ mode }), state.mode === mode), " ");
    }
    bar.append(tabs);
    if (map.layers.some((each) => each.query_words || each.key_words)) {
      bar.append(check("whole words", state.words, (words) => this.choose({ words, query: 0, key: null })));
    }
    if (this.originalOf(layer)) {
      bar.append(check("difference to the original", state.change, (change) => this.choose({ change })));
    }
    return bar;
  }

  /** The layers of the chosen one's kind. */
  among() { return this.map.layers.filter((each) => each.kind === this.layer.kind); }

  touchBar() {
    const { layer, state } = this;
    const bar = node("div", { class: "bar touch" });
    const head = state.focus;
    const single = layer.matrix.heads === 1 ? "attention" : `head ${head}`;
    if (state.head === null && state.key === null && layer.matrix.heads > 1) {
      bar.append(node("span", { class: "quiet" }, "Choose a head to switch it off, or point at a weight to change it."));
    } else {
      for (const [to, name] of [["off", "off"], ["uniform", "uniform"]]) {
        const on = this.touched.some((each) => each.layer === layer.name && each.heads[0] === head && each.to === to);
        bar.append(button(`${single} ${name}`, () => this.touch({ layer: layer.name, heads: [head], to }, on), on));
      }
      if (!state.words && state.key !== null && state.mode === "heatmap") {
        const weight = layer.matrix.at(head, state.query, state.key);
        const slider = node("input", { type: "range", min: 0, max: 1, step: 0.01, value: weight, "data-name": "weight" });
        const said = node("span", {}, weight.toFixed(2));
        slider.addEventListener("input", () => { said.textContent = Number(slider.value).toFixed(2); });
        slider.addEventListener("change", () => this.touch({ layer: layer.name, heads: [head],
          to: Number(slider.value), query: state.query, key: state.key }, false));
        const wrapper = node("label", {}, `weight of ${layer.queries[state.query]} on ${layer.keys[state.key]}`);
        wrapper.append(slider, said);
        bar.append(wrapper);
      }
    }
    if (this.touched.length) {
      bar.append(node("span", { class: "quiet" }, `${this.touched.length} changed`));
      bar.append(button("undo all", () => { this.touched = []; this.options.touch([]); }));
    }
    return bar;
  }

  /** Add an intervention, in place of an older one of the same head or weight; `undo`: only take that away. */
  touch(change, undo) {
    const same = (each) => each.layer === change.layer && each.heads[0] === change.heads[0]
      && (typeof each.to === "string") === (typeof change.to === "string")
      && (typeof each.to === "string" || (each.query === change.query && each.key === change.key));
    this.touched = this.touched.filter((each) => !same(each));
    if (!undo) this.touched.push(change);
    this.options.touch(this.touched);
  }

  player() {
    const { steps, losses, frames } = this.data.playback;
    const at = this.state.frame ?? frames.length - 1;
    const bar = node("div", { class: "bar" });
    const go = (frame) => this.choose({ frame });
    const play = button(this.timer ? "pause" : "play", () => {
      if (this.timer) {
        clearInterval(this.timer);
        this.timer = undefined;
        return this.draw();
      }
      let frame = at === frames.length - 1 ? 0 : at;
      this.timer = setInterval(() => {
        if (frame === frames.length - 1) {
          clearInterval(this.timer);
          this.timer = undefined;
        }
        go(frame);
        frame = Math.min(frame + 1, frames.length - 1);
      }, 350);
      go(frame);
    });
    play.dataset.name = "play";
    const slider = node("input", { type: "range", min: 0, max: frames.length - 1, step: 1, value: at,
      "aria-label": "training step", "data-name": "time" });
    slider.addEventListener("input", () => go(Number(slider.value)));
    bar.append(play, slider, node("span", { class: "step" }, `after ${steps[at].toLocaleString("en")} training steps`));
    bar.append(curve(losses, steps[at]));
    return bar;
  }

  legend() {
    const { largest } = this.scale();
    const bar = node("p", { class: "legend" });
    const canvas = node("canvas", { width: 120, height: 10, "aria-hidden": "true" });
    const context = canvas.getContext("2d");
    for (let x = 0; x < 120; x += 1) {
      context.fillStyle = css(this.changing() ? difference(x / 60 - 1, this.colours) : this.colours.at(x / 119));
      context.fillRect(x, 0, 1, 10);
    }
    const ends = this.changing() ? [`-${largest.toFixed(3)}`, `+${largest.toFixed(3)}`] : ["0", largest.toFixed(3)];
    bar.append(ends[0], canvas, `${ends[1]}, the same for all heads`);
    if (this.layer.relevant) bar.append(node("span", {}, "○ the output depends on this input"));
    return bar;
  }

  changing() { return this.state.change && this.originalOf(this.layer) !== undefined && this.state.mode === "heatmap"; }

  /** The largest weight of the layer, or of all that are drawn; or the largest difference. */
  scale() {
    if (this.changing()) return { largest: Math.max(...this.changes(this.layer).map((each) => greatest(each.values, true)), 1e-9) };
    const layers = this.state.mode === "overview" ? this.map.layers : [this.layer, ...this.inAllFrames(this.layer)];
    return { largest: Math.max(...layers.map((each) => this.shown(each).largest), 1e-9) };
  }

  /** For each head, the weights less those of the original. */
  changes(layer) {
    const now = this.shown(layer), before = this.shown(this.originalOf(layer));
    return now.slices.map((slice, head) => ({
      values: slice.map((value, index) => value - before.slices[head][index]),
    }));
  }

  drawPanels() {
    if (!this.stage || !this.layer) return;
    this.colours = palette(this.forPaper || !isDark(this.root));
    this.width = this.root.clientWidth;
    const draw = { heatmap: () => this.heatmaps(), lines: () => this.lines(), overview: () => this.overview() };
    this.stage.replaceChildren(draw[this.state.mode]());
    this.panels?.forEach((panel) => panel.draw());
  }

  resized() {
    if (this.width !== undefined && Math.abs(this.root.clientWidth - this.width) > 1) this.drawPanels();
  }

  heatmaps() {
    const { layer, state } = this;
    const matrix = this.shown(layer);
    const chosen = state.head === null ? matrix.slices.map((_, head) => head) : [state.head];
    const changes = this.changing() ? this.changes(layer) : null;
    const { largest } = this.scale();
    const row = node("div", { class: "panels" });
    this.panels = chosen.map((head, place) => {
      const panel = new Heatmap({
        matrix, head, place, largest, colours: this.colours,
        values: changes ? changes[head].values : matrix.slices[head], changing: changes !== null,
        queries: matrix.queries, keys: matrix.keys, relevant: matrix.relevant,
        available: this.root.clientWidth, chosen: () => this.state,
        onPoint: (query, key) => this.point(query, key, head),
        onChoose: (query, key) => this.choose({ query, key, focus: head }),
        onHead: (by) => this.choose({ head: (state.focus + by + matrix.heads) % matrix.heads }),
      });
      const figure = node("figure", {});
      const caption = node("figcaption", {}, matrix.heads > 1 ? `head ${head}` : layer.title);
      const added = this.data.importance?.[layer.name]?.[head];
      if (added !== undefined) caption.append(node("span", { class: "quiet" }, `off: loss ${signed(added)}`));
      if (panel.zoomable) {
        caption.append(button("+", () => panel.zoom(2)), button("−", () => panel.zoom(0.5)), button("fit", () => panel.fit()));
      }
      figure.append(caption, panel.canvas);
      row.append(figure);
      return panel;
    });
    return row;
  }

  overview() {
    this.panels = [];
    const { largest } = this.scale();
    const grid = node("div", { class: "grid" });
    for (const layer of this.map.layers) {
      const matrix = this.shown(layer);
      const row = node("div", { class: "row" });
      row.append(node("span", {}, layer.title));
      matrix.slices.forEach((values, head) => {
        const added = this.data.importance?.[layer.name]?.[head];
        const thumb = node("button", { class: "thumb", title: `${layer.title}, head ${head}` });
        const canvas = node("canvas", {});
        paintThumbnail(canvas, values, matrix, largest, this.colours);
        thumb.append(canvas, node("span", {}, `head ${head}${added === undefined ? "" : ` ${signed(added)}`}`));
        thumb.addEventListener("click", () => this.choose({ layer: layer.name, head, mode: "heatmap", query: 0, key: null }));
        row.append(thumb);
      });
      grid.append(row);
    }
    if (this.data.importance) {
      grid.append(node("p", { class: "quiet" }, "Numbers: by how much the loss rises when the head is off."));
    }
    return grid;
  }

  lines() {
    this.panels = [];
    const { layer, state } = this;
    const matrix = this.shown(layer);
    const heads = state.head === null ? matrix.slices.map((_, head) => head) : [state.head];
    const queries = around(matrix.rows, state.query, SHOWN);
    const strongest = matrix.strongest(heads[0], state.query);
    const keys = around(matrix.columns, state.key ?? strongest, SHOWN);
    const step = 19, left = 150, right = 330;
    const height = 12 + step * Math.max(queries.length, keys.length);
    const picture = svg("svg", { width: right + 160, height, role: "img", "aria-label": "Lines from queries to keys" });
    const segments = [];
    for (const head of heads) {
      for (const query of queries) {
        for (const key of keys) {
          const weight = matrix.at(head, query, key);
          if (weight > 0.01 * matrix.largest) segments.push([weight, head, query, key]);
        }
      }
    }
    segments.sort((a, b) => b[0] - a[0]);
    const drawn = segments.slice(0, LINES).map(([weight, head, query, key]) => {
      const line = svg("line", { x1: left + 6, y1: 10 + step * (query - queries[0]), x2: right - 6,
        y2: 10 + step * (key - keys[0]), stroke: hue(head, heads.length, this.colours.dark), "stroke-width": 2,
        "stroke-opacity": Math.max(0.05, weight / matrix.largest).toFixed(3) });
      picture.append(line);
      return { line, query, key, weight };
    });
    const focus = (query, key) => {
      for (const each of drawn) {
        const on = (query === null || each.query === query) && (key === null || each.key === key);
        each.line.setAttribute("visibility", on ? "visible" : "hidden");
      }
    };
    const write = (index, label, x, anchor, which, first) => {
      const text = svg("text", { x, y: 14 + step * (index - first), "text-anchor": anchor, tabindex: 0 }, shorten(label, 20));
      const on = () => {
        text.classList.add("on");
        focus(which === "query" ? index : null, which === "key" ? index : null);
        if (which === "query") this.point(index, matrix.strongest(heads[0], index), heads[0]);
      };
      const off = () => { text.classList.remove("on"); focus(null, null); };
      for (const event of ["mouseenter", "focus"]) text.addEventListener(event, on);
      for (const event of ["mouseleave", "blur"]) text.addEventListener(event, off);
      picture.append(text);
    };
    for (const query of queries) write(query, matrix.queries[query], left, "end", "query", queries[0]);
    for (const key of keys) write(key, matrix.keys[key], right, "start", "key", keys[0]);
    const box = node("div", { class: "lines" });
    box.append(picture);
    const hidden = matrix.rows - queries.length + matrix.columns - keys.length;
    if (hidden > 0) box.append(node("p", { class: "quiet" }, `${hidden} tokens further away are left out.`));
    return box;
  }

  /** The queries and the keys written out; the chosen query's weights colour the keys. */
  drawTokens() {
    const { layer, state } = this;
    const matrix = this.shown(layer);
    const write = (labels, at, which) => {
      const box = node("div", {});
      const indices = around(labels.length, at, SHOWN);
      if (indices[0] > 0) box.append(node("span", { class: "quiet" }, "… "));
      for (const index of indices) {
        const token = node("span", { class: "token", tabindex: which === "query" ? 0 : undefined }, labels[index]);
        if (which === "query") {
          const on = () => this.point(index, null, state.head);
          token.addEventListener("mouseenter", on);
          token.addEventListener("focus", on);
          token.addEventListener("click", () => this.choose({ query: index, key: null }));
        }
        token.dataset.index = index;
        box.append(token);
      }
      if (indices.at(-1) < labels.length - 1) box.append(node("span", { class: "quiet" }, " …"));
      return box;
    };
    this.queryBox = write(matrix.queries, state.query, "query");
    this.keyBox = write(matrix.keys, state.key ?? matrix.strongest(state.head ?? 0, state.query), "key");
    this.strips.replaceChildren(node("span", { class: "quiet" }, "from"), this.queryBox,
      node("span", { class: "quiet" }, "to"), this.keyBox);
    this.light(state.query, state.head);
  }

  /** Colour the keys by a query's weights: of a head, or their mean over all. */
  light(query, head) {
    const matrix = this.shown(this.layer);
    const heads = head === null ? matrix.slices.map((_, each) => each) : [head];
    for (const token of this.queryBox.children) token.classList.toggle("on", Number(token.dataset.index) === query);
    for (const token of this.keyBox.children) {
      if (token.dataset.index === undefined) continue;
      const key = Number(token.dataset.index);
      const weight = heads.reduce((sum, each) => sum + matrix.at(each, query, key), 0) / heads.length;
      const colour = this.colours.at(weight / matrix.largest);
      token.style.background = css(colour);
      token.style.color = luminance(colour) > 0.45 ? "#000" : "#fff";
    }
  }

  /** A query, and perhaps a key, is pointed at. */
  point(query, key, head) {
    this.light(query, head);
    this.panels.forEach((panel) => panel.mark(query, key));
    this.tell(query, key, head);
  }

  /** Say what is pointed at, or else what is chosen. */
  tell(query = this.state.query, key = this.state.key, head = null) {
    const matrix = this.shown(this.layer);
    if (key === null && head === null) {
      this.readout.textContent = `Point at a weight, or use the arrow keys on a heatmap. ${matrix.rows} × ${matrix.columns} weights in each of ${matrix.heads} head${matrix.heads > 1 ? "s" : ""}.`;
      return;
    }
    const at = head ?? this.state.focus, to = key ?? matrix.strongest(at, query);
    const weight = matrix.at(at, query, to);
    const mainly = key === null ? " mainly" : "";
    const said = `head ${at}: ${matrix.queries[query]} →${mainly} ${matrix.keys[to]} (step ${to})`;
    this.readout.textContent = `${said}: ${weight.toFixed(4)}`;
    if (this.changing()) {
      const change = this.changes(this.layer)[at].values[query * matrix.columns + to];
      this.readout.textContent += ` (${signed(change)})`;
    }
    const chosen = key !== null && query === this.state.query && key === this.state.key && !this.state.words;
    if (chosen && matrix.exact) this.readout.textContent = `${said}: ${Number(weight.toPrecision(9))} exactly`;
    if (chosen && !matrix.exact && this.options.exact) {
      const layer = this.state.layer;
      this.options.exact({ map: this.state.map, layer, head: at, query }).then((row) => {
        if (layer === this.state.layer) this.readout.textContent = `${said}: ${row[to]} exactly`;
      });
    }
  }
}

/** One head on a canvas: however many weights it has, no more is painted than there are pixels. */
class Heatmap {
  constructor(options) {
    Object.assign(this, options);
    const { matrix } = this;
    this.canvas = node("canvas", { tabindex: 0, role: "img", "data-name": `heatmap-${this.place}`,
      "aria-label": `Weights of head ${this.head}: ${matrix.rows} queries, ${matrix.columns} keys; arrow keys move` });
    const longest = (labels) => labels.slice(0, 400).reduce((most, label) => Math.max(most, label.length), 1);
    this.upright = longest(this.keys) > 3;
    this.left = Math.min(14 + 7 * longest(this.queries), 130, this.available * 0.35);
    this.top = this.upright ? Math.min(12 + 7 * longest(this.keys), 110) : 20;
    const fitting = (this.available - this.left - 6) / matrix.columns;
    this.base = Math.min(LARGEST_CELL, fitting, matrix.rows > 20 ? (TALLEST - this.top) / matrix.rows : LARGEST_CELL);
    this.zoomable = this.base < 12;
    this.cell = this.base;
    this.at = { row: 0, column: 0 };
    this.levels = [{ values: this.values, rows: matrix.rows, columns: matrix.columns }];
    this.marked = null;
    this.plot = { width: Math.max(8, matrix.columns * this.base), height: Math.max(8, matrix.rows * this.base) };
    this.listen();
  }

  listen() {
    const { canvas } = this;
    let drag = null;
    canvas.addEventListener("pointermove", (event) => {
      if (drag && this.cell > this.base && event.buttons) {
        this.at.column = drag.column - (event.offsetX - drag.x) / this.cell;
        this.at.row = drag.row - (event.offsetY - drag.y) / this.cell;
        drag.moved = true;
        this.draw();
        return;
      }
      const place = this.under(event);
      if (place) this.onPoint(place.query, place.key);
    });
    canvas.addEventListener("pointerdown", (event) => { drag = { x: event.offsetX, y: event.offsetY, ...this.at, moved: false };
      if (this.cell > this.base) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => {
      const place = this.under(event), moved = drag?.moved ?? true;
      drag = null;
      if (place && !moved) this.onChoose(place.query, place.key);
    });
    canvas.addEventListener("pointercancel", () => { drag = null; });
    canvas.addEventListener("pointerleave", () => {
      const { query, key } = this.chosen();
      this.onPoint(query, key);
    });
    canvas.addEventListener("wheel", (event) => {
      if (!this.zoomable || !(event.ctrlKey || event.metaKey)) return; // else the page scrolls
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.3 : 1 / 1.3, this.under(event));
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => { if (this.zoomable) this.zoom(2, this.under(event)); });
    canvas.addEventListener("keydown", (event) => {
      const { query, key } = this.chosen();
      const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -Infinity], End: [0, Infinity] };
      const others = { "+": () => this.zoom(2, { query, key }), "-": () => this.zoom(0.5, { query, key }), 0: () => this.fit(),
        "[": () => this.onHead(-1), "]": () => this.onHead(1) };
      if (moves[event.key]) {
        const [down, right] = moves[event.key];
        const within = (value, size) => Math.max(0, Math.min(size - 1, value));
        this.onChoose(within(query + (key === null ? 0 : down), this.matrix.rows), within((key ?? 0) + (key === null ? 0 : right), this.matrix.columns));
      } else if (others[event.key]) {
        others[event.key]();
      } else {
        return;
      }
      event.preventDefault();
    });
  }

  /** The cell under a pointer. */
  under(event) {
    const key = Math.floor((event.offsetX - this.left) / this.cell + this.at.column);
    const query = Math.floor((event.offsetY - this.top) / this.cell + this.at.row);
    const inside = event.offsetX >= this.left && event.offsetY >= this.top && query >= 0 && key >= 0
      && query < this.matrix.rows && key < this.matrix.columns;
    return inside ? { query, key } : null;
  }

  zoom(factor, place) {
    const { width, height } = this.plot;
    const middle = place ?? { query: this.at.row + height / this.cell / 2, key: this.at.column + width / this.cell / 2 };
    this.cell = Math.max(this.base, Math.min(40, this.cell * factor));
    this.at = { row: middle.query - height / this.cell / 2, column: middle.key - width / this.cell / 2 };
    this.draw();
  }

  fit() {
    this.cell = this.base;
    this.draw();
  }

  /** Mark a row, and a cell in it. */
  mark(query, key) {
    this.marked = { query, key };
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  /** Weights at half the resolution for each level: the largest of four, so that nothing strong is lost. */
  level(number) {
    while (this.levels.length <= number) this.levels.push(halved(this.levels.at(-1), this.changing));
    return this.levels[number];
  }

  paint() {
    const { canvas, cell, left, top, matrix, plot, colours } = this;
    const clamp = (value, size, length) => Math.max(0, Math.min(value, size - length / cell));
    this.at.row = clamp(this.at.row, matrix.rows, plot.height);
    this.at.column = clamp(this.at.column, matrix.columns, plot.width);
    const ratio = devicePixelRatio || 1;
    const width = left + plot.width + 4, height = top + plot.height + 4;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.save();
    context.beginPath();
    context.rect(left, top, plot.width, plot.height);
    context.clip();
    const level = Math.max(0, Math.ceil(Math.log2(1 / (cell * ratio))));
    const { values, rows, columns } = this.level(level);
    const size = 2 ** level;
    const first = { row: Math.floor(this.at.row / size), column: Math.floor(this.at.column / size) };
    const last = { row: Math.min(rows, Math.ceil((this.at.row + plot.height / cell) / size)),
      column: Math.min(columns, Math.ceil((this.at.column + plot.width / cell) / size)) };
    const wide = last.column - first.column, high = last.row - first.row;
    const small = document.createElement("canvas");
    small.width = wide;
    small.height = high;
    const brush = small.getContext("2d");
    const image = brush.createImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer);
    const table = this.changing ? colours.differences : colours.table;
    for (let row = 0; row < high; row += 1) {
      const begin = (row + first.row) * columns + first.column;
      for (let column = 0; column < wide; column += 1) {
        const share = values[begin + column] / this.largest;
        pixels[row * wide + column] = table[Math.max(0, Math.min(255, Math.round(255 * (this.changing ? (share + 1) / 2 : share))))];
      }
    }
    brush.putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    const x = left + (first.column * size - this.at.column) * cell, y = top + (first.row * size - this.at.row) * cell;
    context.drawImage(small, x, y, wide * size * cell, high * size * cell);
    if (cell >= 9) this.grid(context);
    if (this.relevant && cell >= 4) this.dots(context);
    context.restore();
    this.outline(context);
    this.labels(context);
    canvas.style.touchAction = cell > this.base ? "none" : "manipulation";
  }

  grid(context) {
    const { cell, left, top, plot } = this;
    context.strokeStyle = css(this.colours.paper);
    context.lineWidth = 1;
    context.beginPath();
    for (let x = -(this.at.column % 1) * cell; x <= plot.width; x += cell) { context.moveTo(left + x, top); context.lineTo(left + x, top + plot.height); }
    for (let y = -(this.at.row % 1) * cell; y <= plot.height; y += cell) { context.moveTo(left, top + y); context.lineTo(left + plot.width, top + y); }
    context.stroke();
  }

  dots(context) {
    const { cell, left, top } = this;
    context.fillStyle = "white";
    context.strokeStyle = "black";
    for (const [query, key] of this.relevant) {
      context.beginPath();
      context.arc(left + (key + 0.5 - this.at.column) * cell, top + (query + 0.5 - this.at.row) * cell, Math.min(3, cell / 5), 0, 7);
      context.fill();
      context.stroke();
    }
  }

  /** The row and the cell that are pointed at, or chosen. */
  outline(context) {
    const { cell, left, top, plot } = this;
    const { query, key } = this.marked ?? this.chosen();
    const y = top + (query - this.at.row) * cell;
    if (query === null || y + cell < top || y > top + plot.height) return;
    context.strokeStyle = this.colours.mark;
    context.lineWidth = 1.5;
    context.strokeRect(left, y, plot.width, Math.max(cell, 2));
    if (key !== null) context.strokeRect(left + (key - this.at.column) * cell, y, Math.max(cell, 2), Math.max(cell, 2));
  }

  labels(context) {
    const { cell, left, top, matrix, plot } = this;
    const marked = this.marked ?? this.chosen();
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = this.colours.ink;
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(12 / cell));
    for (let query = Math.ceil(this.at.row); query < matrix.rows && (query - this.at.row) * cell < plot.height; query += 1) {
      if (query % every && query !== marked.query) continue;
      if (every > 1 && query !== marked.query && Math.abs(query - marked.query) < every) continue;
      context.font = `${query === marked.query ? "bold " : ""}12px system-ui, sans-serif`;
      context.textAlign = "right";
      context.fillText(shorten(this.queries[query], Math.floor((left - 10) / 6.5)), left - 6, top + (query + 0.5 - this.at.row) * cell);
    }
    for (let key = Math.ceil(this.at.column); key < matrix.columns && (key - this.at.column) * cell < plot.width; key += 1) {
      if (key % every && key !== marked.key) continue;
      if (every > 1 && key !== marked.key && marked.key !== null && Math.abs(key - marked.key) < every) continue;
      context.font = `${key === marked.key ? "bold " : ""}12px system-ui, sans-serif`;
      const x = left + (key + 0.5 - this.at.column) * cell;
      context.save();
      context.translate(x, top - 5);
      if (this.upright || every > 1) {
        context.rotate(-Math.PI / 2);
        context.textAlign = "left";
        context.fillText(shorten(this.keys[key], Math.floor((top - 6) / 6.5)), 0, 0);
      } else {
        context.textAlign = "center";
        context.fillText(this.keys[key], 0, -4);
      }
      context.restore();
    }
  }
}

/** Weights of a layer: `slices[head]` is a Float32Array of rows times columns. */
class Matrix {
  constructor(slices, rows, columns, queries, keys, relevant) {
    Object.assign(this, { slices, rows, columns, queries, keys, relevant, heads: slices.length });
    this.largest = slices.reduce((most, slice) => Math.max(most, greatest(slice)), 1e-9);
  }

  at(head, query, key) { return this.slices[head][query * this.columns + key]; }

  /** The key with the largest weight of a query. */
  strongest(head, query) {
    let best = 0;
    for (let key = 1; key < this.columns; key += 1) if (this.at(head, query, key) > this.at(head, query, best)) best = key;
    return best;
  }
}

async function unpack(layer) {
  const { weights, queries, keys, relevant } = layer;
  const rows = queries.length, columns = keys.length;
  if (Array.isArray(weights)) {
    const slices = weights.map((head) => Float32Array.from(head.flat()));
    return Object.assign(new Matrix(slices, rows, columns, queries, keys, relevant), { exact: true });
  }
  const text = atob(weights.packed);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index += 1) bytes[index] = text.charCodeAt(index);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const view = new DataView(await new Response(stream).arrayBuffer());
  const size = rows * columns;
  const slices = Array.from({ length: weights.heads }, (_, head) => {
    const slice = new Float32Array(size);
    for (let index = 0; index < size; index += 1) {
      slice[index] = view.getUint16(2 * (head * size + index), true) / 65535 * weights.largest;
    }
    return slice;
  });
  return new Matrix(slices, rows, columns, queries, keys, relevant);
}

/** Between words: a word is given the weight of all its pieces, and gives the mean of theirs. */
function merge(matrix, layer) {
  const alone = (labels) => labels.map((_, index) => [index]);
  const queries = layer.query_words ?? alone(matrix.queries), keys = layer.key_words ?? alone(matrix.keys);
  const slices = matrix.slices.map((_, head) => {
    const slice = new Float32Array(queries.length * keys.length);
    queries.forEach((pieces, query) => keys.forEach((others, key) => {
      let sum = 0;
      for (const piece of pieces) for (const other of others) sum += matrix.at(head, piece, other);
      slice[query * keys.length + key] = sum / pieces.length;
    }));
    return slice;
  });
  const written = (words, labels) => words.map((word) => word.map((index) => labels[index]).join("").replace(/^▁/, "") || "▁");
  const place = (words) => new Map(words.flatMap((word, number) => word.map((index) => [index, number])));
  const queryOf = place(queries), keyOf = place(keys);
  const relevant = matrix.relevant?.map(([query, key]) => [queryOf.get(query), keyOf.get(key)]) ?? null;
  return new Matrix(slices, queries.length, keys.length, written(queries, matrix.queries), written(keys, matrix.keys), relevant);
}

/** Half as many rows and columns, each the greatest of four; `signed`: by size, whatever the sign. */
function halved({ values, rows, columns }, bySize) {
  const high = Math.ceil(rows / 2), wide = Math.ceil(columns / 2);
  const found = new Float32Array(high * wide);
  for (let row = 0; row < high; row += 1) {
    const a = 2 * row * columns, b = Math.min(2 * row + 1, rows - 1) * columns;
    for (let column = 0; column < wide; column += 1) {
      const c = 2 * column, d = Math.min(c + 1, columns - 1);
      const four = [values[a + c], values[a + d], values[b + c], values[b + d]];
      let best = four[0];
      for (let index = 1; index < 4; index += 1) {
        if (bySize ? Math.abs(four[index]) > Math.abs(best) : four[index] > best) best = four[index];
      }
      found[row * wide + column] = best;
    }
  }
  return { values: found, rows: high, columns: wide };
}

function greatest(values, bySize = false) {
  let most = 0;
  for (let index = 0; index < values.length; index += 1) {
    const value = bySize ? Math.abs(values[index]) : values[index];
    if (value > most) most = value;
  }
  return most;
}

function paintThumbnail(canvas, values, matrix, largest, colours) {
  let level = { values, rows: matrix.rows, columns: matrix.columns };
  const ratio = devicePixelRatio || 1;
  while (Math.max(level.rows, level.columns) > THUMBNAIL * ratio) level = halved(level);
  const most = Math.max(matrix.rows, matrix.columns);
  canvas.width = level.columns;
  canvas.height = level.rows;
  canvas.style.width = `${Math.max(4, THUMBNAIL * matrix.columns / most)}px`;
  canvas.style.height = `${Math.max(4, THUMBNAIL * matrix.rows / most)}px`;
  canvas.style.imageRendering = "pixelated";
  const context = canvas.getContext("2d");
  const image = context.createImageData(level.columns, level.rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let index = 0; index < pixels.length; index += 1) {
    pixels[index] = colours.table[Math.max(0, Math.min(255, Math.round(255 * level.values[index] / largest)))];
  }
  context.putImageData(image, 0, 0);
}

/** The layer that reads the input, which is what most people look for first. */
function initialLayer(map) {
  return (map.layers.find((layer) => layer.kind === "cross") ?? map.layers[0])?.name ?? null;
}

function answer(map, original) {
  const said = (one) => one === null || one === undefined ? "unknown" : Array.isArray(one) ? one.join(" ") : one;
  const line = node("div", { class: "answer" });
  if (map.prediction === null || map.prediction === undefined) {
    line.append(node("code", {}, map.input));
    return line;
  }
  line.append(node("b", {}, map.task), " ", node("code", {}, map.input), " prediction ", node("b", { class: "prediction" }, said(map.prediction)));
  if (map.truth !== null && map.truth !== undefined) {
    const right = said(map.prediction) === said(map.truth);
    line.append(`, truth ${said(map.truth)} `, node("span", {}, right ? "✓ right" : "✗ wrong"));
  }
  if (original) {
    const same = said(original.prediction) === said(map.prediction);
    line.append(node("span", { class: same ? "quiet" : "changed" }, same ? " (as before it was touched)" : ` (before: ${said(original.prediction)})`));
  }
  const steps = node("div", {});
  const few = map.outputs.length <= 40 ? map.outputs : [];
  few.forEach((label, step) => {
    const before = original?.outputs[step] === label ? original.probabilities[step] : undefined;
    const number = Array.isArray(map.prediction) ? ` ${map.prediction[step]}` : "";
    const now = map.probabilities[step];
    const was = before !== undefined && Math.abs(before - now) >= 0.005 ? ` (was ${percent(before)})` : "";
    steps.append(node("span", { class: was ? "token changed" : "token" }, `${label}${number} `));
    steps.append(node("span", { class: "quiet" }, `${percent(now)}${was} `));
  });
  line.append(steps);
  return line;
}

/** The loss over training, with a mark at a step. */
function curve(losses, step) {
  const width = 180, height = 36;
  const picture = svg("svg", { width, height, role: "img", "aria-label": "loss during training" });
  if (!losses.length) return picture;
  const last = losses.at(-1)[0], most = Math.max(...losses.map(([, loss]) => loss), 1e-9);
  const x = (at) => 2 + (width - 4) * Math.log1p(at) / Math.log1p(last), y = (loss) => height - 3 - (height - 6) * loss / most;
  const points = losses.map(([at, loss]) => `${x(at).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
  picture.append(svg("polyline", { points, fill: "none", stroke: "currentColor", "stroke-opacity": 0.7 }));
  picture.append(svg("line", { x1: x(step), x2: x(step), y1: 0, y2: height, stroke: "#d97706", "stroke-width": 2 }));
  return picture;
}

/** Indices of at most `most` of `count` things, around one of them. */
function around(count, at, most) {
  const first = Math.max(0, Math.min(at - Math.floor(most / 2), count - most));
  return Array.from({ length: Math.min(count, most) }, (_, index) => first + index);
}

const palettes = new Map();

function palette(light) {
  if (!palettes.has(light)) {
    const stops = (light ? LIGHT : DARK).map(rgb);
    const at = (share) => {
      const place = Math.max(0, Math.min(share, 1)) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
      return stops[low].map((channel, index) => Math.round(channel + (place - low) * (stops[low + 1][index] - channel)));
    };
    const colours = { at, dark: !light, paper: stops[0], ink: light ? "#111" : "#eee", mark: light ? "#d97706" : "#fbbf24" };
    const pack = ([red, green, blue]) => (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
    colours.table = Uint32Array.from({ length: 256 }, (_, index) => pack(at(index / 255)));
    colours.differences = Uint32Array.from({ length: 256 }, (_, index) => pack(difference(index / 127.5 - 1, colours)));
    palettes.set(light, colours);
  }
  return palettes.get(light);
}

/** Colour of a share from 0 to 1 on white paper, as CSS. */
export function colour(share) { return css(palette(true).at(share)); }

function difference(share, colours) {
  const end = share < 0 ? LESS : MORE;
  return colours.paper.map((channel, index) => Math.round(channel + Math.min(1, Math.abs(share)) * (end[index] - channel)));
}

function hue(head, heads, dark) {
  return heads === 1 ? (dark ? "#8abaea" : "#08519c") : `hsl(${Math.round(360 * head / heads + 210) % 360} 65% ${dark ? 65 : 38}%)`;
}

const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const css = ([red, green, blue]) => `rgb(${red}, ${green}, ${blue})`;
const luminance = ([red, green, blue]) => (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
const percent = (share) => `${(100 * share).toFixed(1)}%`;
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
const shorten = (label, most) => label.length > Math.max(most, 2) ? `${label.slice(0, Math.max(most, 2) - 1)}…` : label;

/** Whether text is light here, and so the page dark: whatever theme a notebook has. */
function isDark(element) {
  const channels = getComputedStyle(element).color.match(/[\d.]+/g)?.map(Number) ?? [0, 0, 0];
  return luminance(channels) > 0.5;
}

const sheets = new WeakSet();

/** Put the style where the element lives, which may be a shadow root. */
function adopt(element) {
  const home = element.getRootNode().adoptedStyleSheets ? element.getRootNode() : document;
  if (sheets.has(home)) return;
  sheets.add(home);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  home.adoptedStyleSheets = [...home.adoptedStyleSheets, sheet];
}

function select(label, options, chosen, onChange) {
  const found = node("select", { "data-name": label });
  options.forEach((option, index) => {
    const each = node("option", { value: index }, option);
    each.selected = index === chosen;
    found.append(each);
  });
  found.addEventListener("change", () => onChange(found.selectedIndex));
  const wrapper = node("label", {}, label);
  wrapper.append(found);
  return wrapper;
}

function check(label, on, onChange) {
  const box = node("input", { type: "checkbox", "data-name": label });
  box.checked = on;
  box.addEventListener("change", () => onChange(box.checked));
  const wrapper = node("label", {});
  wrapper.append(box, label);
  return wrapper;
}

function button(label, onClick, pressed) {
  const found = node("button", { type: "button", "data-name": label, "aria-pressed": pressed }, label);
  found.addEventListener("click", onClick);
  return found;
}

function node(name, attributes, text) { return filled(document.createElement(name), attributes, text); }

function svg(name, attributes, text) { return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, text); }

function filled(element, attributes, text) {
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

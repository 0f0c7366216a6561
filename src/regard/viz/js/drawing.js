// The parts of the view; each is rebuilt only if its data has changed.

import { answer, currentHead, selectedQueries, sentences } from "./sentence.js";
import { comparedMap } from "./scene.js";
import { button, canvasContext, node, oneTabStop, Part, secondaryText, withIcon } from "./dom.js";
import { legend, symbolLegend } from "./legend.js";
import { Navigator, Stage } from "./stage.js";
import { saveButtons } from "./pictures.js";
import { commandHint, explainCommand, Sum, Why } from "./sum.js";
import { choices, toolbar } from "./toolbar.js";
import { changeMark, TouchBar } from "./interventions.js";
import { effectActions, effectOf, pairedBars, whatChanged } from "./changes.js";
import { axisTitles, isolate, nearbyIndices, signedNumber, tokenLabel } from "./labels.js";
import { cssColour, inkOn, shade } from "./colours.js";
import { latest, toggleNumber } from "./arithmetic.js";
import { headRow, scrollBox } from "./poster.js";
import { halve } from "./matrix.js";

/** @import { Palette } from "./colours.js" */
/** @import { InterventionData, MapData, RowData, ViewData } from "./data.js" */
/** @import { Player } from "./view.js" */
/** @import { Actions, Scene, Surface } from "./scene.js" */
/** @import { AskWhy, Explain } from "./sum.js" */
/** @import { Level, Matrix } from "./matrix.js" */

/**
 * @typedef {object} Shown
 * @property {ViewData} data
 * @property {MapData} map
 * @property {Scene | null} scene null: there is no attention
 * @property {InterventionData[]} interventions
 */

const MOST_TOKENS = 160; // of more tokens, only those around the selected one are shown

/** What the legend and the choices below the picture depend on. @param {Scene} scene */
function drawnInputs({ state, before, beside, scale }) {
  const { change, words, off, mean, least, top, aside } = state;
  return [change, words, off, mean, least, top, aside, before, beside?.name, scale.name];
}

export class Drawing {
  /**
   * @param {HTMLElement} root @param {Actions} actions @param {Player} player
   * @param {HTMLElement} help the button that shows the keys
   * @param {{ exact?: Exact, explain?: Explain, why?: AskWhy, keeps?: boolean, row?: AskRow, touch?: unknown }} options
   */
  constructor(root, actions, player, help, { exact, explain, why, keeps = false, row, touch }) {
    this.root = root;
    this.actions = actions;
    this.player = player;
    this.touchBar = touch === undefined ? null : new TouchBar(actions);
    this.readout = new Readout(exact);
    this.long = row && new Long(row);
    this.keeps = keeps;
    this.sum = explain && new Sum(explain, actions);
    this.why = new Why(why);
    this.navigator = new Navigator(actions);
    this.stage = new Stage(actions);
    /** @type {Scene | null} */
    this.scene = null;
    /** @type {Tokens | null} */
    this.tokens = null;
    this.parts = {
      toolbar: new Part(),
      mark: new Part(),
      sentence: new Part("said"),
      player: new Part(),
      legend: new Part("below"),
      choices: new Part("choices"),
      tokens: new Part("strip"),
      save: new Part("save"),
      answer: new Part("card"),
      changes: new Part("card changes"),
      readout: new Part("card"),
      touch: new Part("card"),
      sum: new Part("card"),
      why: new Part("card"),
      row: new Part("row-box"),
      long: new Part(),
    };
    const { toolbar, mark, sentence, player: training, legend, choices, tokens, save, ...inspected } = this.parts;
    const { panes, showPane } = makePanes(root);
    this.showPane = showPane;
    const foot = node("div", { class: "foot" });
    save.element.classList.add("bar");
    foot.append(save.element, help);
    panes.heads.append(this.navigator.element);
    const above = [mark, toolbar, sentence, training].map((part) => part.element);
    const under = node("div", { class: "under" });
    under.append(legend.element, choices.element);
    panes.picture.append(...above, this.stage.element, under, tokens.element, foot);
    panes.inspector.append(...Object.values(inspected).map((part) => part.element));
    this.parts.readout.show([], () => [node("h2", {}, "Weight"), this.readout.element]);
  }

  /**
   * Updates the parts that have changed.
   * @param {Shown} shown
   * @param {() => Surface} surface measures the room, which other parts leave to the picture
   */
  show(shown, surface) {
    const { data, map, scene } = shown;
    this.scene = scene;
    const compared = scene && comparedMap(data, map, scene.state);
    this.parts.answer.show([map, data.original, compared?.map], () => [answer(map, data.original, compared)]);
    if (scene) this.drawScene(scene, shown.interventions, surface);
    else this.drawNothing();
  }

  // Shows dragged weights before the model has answered; parts with the model's answer wait.
  /** @param {Scene} scene @param {Surface} surface */
  preview(scene, surface) {
    const { state } = scene;
    this.stage.show(scene, surface);
    this.parts.legend.show([scene.largest, surface.colours], () => [legend(scene, surface.colours)]);
    this.tokens?.light(scene, surface.colours, state.query, state.head);
    this.readout.tell(scene, state.query, state.key, null);
  }

  drawNothing() {
    const kept = [this.parts.answer, this.parts.readout];
    for (const part of Object.values(this.parts)) if (!kept.includes(part)) part.show([null], () => []);
    this.navigator.element.replaceChildren();
    this.readout.element.textContent = "";
    this.stage.showNothing("This model has no attention to show.");
  }

  /** @param {Scene} scene @param {InterventionData[]} interventions @param {() => Surface} measured */
  drawScene(scene, interventions, measured) {
    const { parts, player, touchBar } = this;
    const { colours } = measured();
    const effect = effectOf(scene, interventions);
    const pictured = effect?.scene ?? scene;
    const seen = effect?.moved ? pictured : scene; // in numbers, which are 0 for a head that is off
    const actions = effect?.moved ? effectActions(effect, this.actions) : this.actions;
    this.scene = pictured;
    this.drawControls(scene, interventions);
    const { map, layer, matrix, state, largest, before } = pictured;
    const shown = [map, layer, matrix, state.head, state.mode, effect?.text];
    parts.sentence.show(
      [...shown, scene.data, state.query, state.also, state.focus, state.key === null, state.off],
      () => (effect ? [node("p", { class: "sentence" }, effect.text)] : sentences(scene)),
    );
    parts.legend.show([...shown, largest, colours, ...drawnInputs(pictured)], () => [legend(pictured, colours)]);
    this.drawTokens(pictured, colours, actions);
    parts.save.show([seen, colours], () => saveButtons(seen, colours, this.stage.element));
    parts.row.show([...shown, before, state.query, state.key, state.focus, state.off, layer.square], () =>
      layer.square > 1 ? [] : rowList(seen, actions),
    );
    this.readout.tell(seen, state.query, state.key, null);
    const { long } = this;
    const squares = long !== undefined && layer.square > 1 && state.frame === null;
    parts.long.show([squares], () => (squares ? [long.element] : []));
    drawSum(this, parts.sum, scene, colours);
    this.why.show(parts.why, scene, colours);
    const surface = measured(); // all around the picture is there
    if (squares) long.show(scene, colours, surface.width);
    this.stage.show(pictured, surface, actions);
    this.navigator.show(scene, interventions, surface);
    player.tell(scene.data.playback ? state.frame : null);
    if (scene.data.behind) touchBar?.ahead();
  }

  // The parts by which the view and the model are changed.
  /** @param {Scene} scene @param {InterventionData[]} interventions */
  drawControls(scene, interventions) {
    const { actions, parts, player, touchBar } = this;
    const { data, map, layer, matrix, state } = scene;
    const shown = [data, map, layer, matrix, state.head, state.mode];
    const undoable = touchBar && actions;
    parts.mark.show([interventions, state.frame], () => changeMark(scene, interventions, undoable));
    parts.changes.show([map, data.original, interventions, state.frame, state.words], () =>
      whatChanged(scene, interventions, actions),
    );
    parts.toolbar.show(shown, () => [toolbar(scene, actions)]);
    parts.choices.show([...shown, ...drawnInputs(scene)], () => [...choices(scene, actions), ...symbolLegend(scene)]);
    parts.player.show([data.playback], () => (data.playback ? [player.bar(data.playback)] : []));
    parts.touch.show([touchBar], () => (touchBar ? [node("h2", {}, "Change the model"), touchBar.element] : []));
    touchBar?.show(scene, interventions);
  }

  /** @param {Scene} scene @param {Palette} colours @param {Actions} actions */
  drawTokens(scene, colours, actions) {
    const { matrix, layer, state } = scene;
    const place = Math.max(matrix.rows, matrix.columns) > MOST_TOKENS ? [state.query, state.key] : [];
    const named = state.mode !== "picture"; // patches are labelled by their position
    this.parts.tokens.show([layer, matrix, named, ...place], () => {
      this.tokens = null;
      if (!named) return [];
      this.tokens = new Tokens(scene, actions);
      return [this.tokens.element];
    });
    this.tokens?.light(scene, colours, state.query, state.head);
  }

  // Highlights the query and key under the pointer.
  /** @param {number} query @param {number | null} key @param {number | null} head @param {Surface} surface */
  point(query, key, head, { colours }) {
    const { scene } = this;
    if (!scene) return;
    this.tokens?.light(scene, colours, query, head);
    this.readout.tell(scene, query, key, head);
    this.stage.mark(query, key);
  }
}

// The three panes of the view: heads, picture, inspector. In a narrow view they are tabs.

const PANES = /** @type {const} */ ([
  { name: "heads", title: "Heads", icon: "overview" },
  { name: "picture", title: "Picture", icon: "heatmap" },
  { name: "inspector", title: "Inspector", icon: "search" },
]);

/** @typedef {(typeof PANES)[number]["name"]} PaneName */

let views = 0; // number of views so far, for unique element names

/**
 * The panes in `root`, with the tabs that choose one of them where there is no room for all.
 * @param {HTMLElement} root
 * @returns {{ panes: Record<PaneName, HTMLElement>, showPane: (name: PaneName) => void }}
 */
function makePanes(root) {
  views += 1;
  const tabs = node("div", { class: "tabs", role: "tablist", "aria-label": "Panes" });
  const box = node("div", { class: "panes" });
  /** @param {string} chosen */
  const choose = (chosen) => {
    root.dataset.pane = chosen;
    for (const { name } of PANES) buttons[name].setAttribute("aria-selected", String(name === chosen));
  };
  /** @type {Record<string, HTMLButtonElement>} */
  const buttons = {};
  /** @type {Partial<Record<PaneName, HTMLElement>>} */
  const panes = {};
  for (const { name, title, icon } of PANES) {
    const id = `regard-${views}-${name}`;
    const tab = node("button", { type: "button", role: "tab", id: `${id}-tab`, "aria-controls": id }, title);
    tab.addEventListener("click", () => choose(name));
    tab.addEventListener("focus", () => choose(name));
    buttons[name] = withIcon(tab, icon);
    panes[name] = node("section", { class: `pane ${name}`, id, "aria-label": title });
  }
  oneTabStop(Object.values(buttons), 1);
  tabs.append(...Object.values(buttons));
  box.append(...Object.values(panes));
  root.append(tabs, box);
  choose("picture");
  return { panes: /** @type {Record<PaneName, HTMLElement>} */ (panes), showPane: choose };
}

// The largest weights of the chosen row as bars; the first step towards its sum.

const LISTED = 6; // keys

/** @param {Scene} scene @param {Actions} actions */
function rowList({ matrix, ...scene }, actions) {
  const { state } = scene;
  const head = currentHead({ matrix, ...scene });
  if (!matrix.rows || !matrix.columns) return [];
  const row = matrix.row(matrix.slices[head], state.query);
  const { before } = scene;
  const old = before && before.rows === matrix.rows ? before.row(before.slices[head], state.query) : null;
  /** @param {number} key */
  const larger = (key) => Math.max(row[key], old?.[key] ?? 0);
  const order = [...row.keys()].sort((first, second) => larger(second) - larger(first)).slice(0, LISTED);
  if (state.key !== null && !order.includes(state.key)) order.splice(-1, 1, state.key);
  const largest = Math.max(larger(order[0]), 1e-9);
  const rest = row.reduce((sum, weight) => sum + weight, 0) - order.reduce((sum, key) => sum + row[key], 0);
  const list = node("ol", { class: "row-list" });
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  order.forEach((key, place) => {
    const item = node("li");
    const chosen = button("", () => actions.choose({ key, focus: head }), key === state.key);
    chosen.dataset.name = `row-key-${place}`;
    const text = old ? `${old[key].toFixed(3)} → ${row[key].toFixed(3)}` : row[key].toFixed(3);
    buttons.push(chosen);
    chosen.append(
      node("span", { class: "key-name" }, matrix.keys[key]),
      pairedBars(old && old[key] / largest, row[key] / largest),
      node("span", {}, text),
    );
    item.append(chosen);
    list.append(item);
  });
  oneTabStop(buttons, order.indexOf(state.key ?? order[0]));
  const title = `Largest weights of ${isolate(matrix.queries[state.query])}, ${matrix.name(head)}${old ? ": before → now" : ""}`;
  const left = matrix.columns - order.length;
  return [
    secondaryText(title),
    list,
    ...(left > 0 ? [secondaryText(`The other ${left} keys have ${Math.max(0, rest).toFixed(3)} in all.`)] : []),
  ];
}

// The card with the computation of the selected weight.

/**
 * The computation of a weight: not for merged words, averages or snapshots.
 * @param {{ sum?: Sum, keeps: boolean, root: HTMLElement, actions: Actions }} view @param {Part} card
 * @param {Scene} scene @param {Palette} colours
 */
function drawSum({ sum, keeps, root, actions }, card, scene, colours) {
  const { state, derived, matrix } = scene;
  const can = sum !== undefined && !derived && !matrix.names && !state.words && state.frame === null;
  const available = !keeps || scene.map.sums !== undefined;
  const hinted = state.key !== null || state.sum;
  const command = can && !available ? (hinted ? explainCommand(scene) : "") : null;
  card.show([can, state.sum, command], () => {
    if (!can) return [];
    if (command !== null) return command ? [commandHint(command)] : [];
    const shown = withIcon(
      button("Explain this weight", () => actions.choose({ sum: !state.sum }), state.sum),
      "sum",
    );
    return [shown, ...(state.sum ? [sum.element] : [])];
  });
  const explaining = can && available && state.sum;
  const opened = explaining && !root.classList.contains("explaining");
  root.classList.toggle("explaining", explaining);
  if (opened) card.element.scrollIntoView({ block: "nearest" });
  if (can && available && state.sum) sum.show(scene, colours);
}

// A line with the weight under the pointer, or else the selected one.

/** @typedef {{ map: number, layer: string, head: number, query: number }} Row a row of weights */
/** @typedef {(row: Row) => Promise<number[]>} Exact asks for the weights of a row as they were computed */

class Readout {
  /** @param {Exact} [exact] */
  constructor(exact) {
    this.exact = exact;
    this.element = node("output", { "aria-live": "polite" });
    this.told = 0;
  }

  /**
   * @param {Scene} scene @param {number} query
   * @param {number | null} key null: the key with the largest weight
   * @param {number | null} head null: the head in which the query was selected
   */
  tell(scene, query, key, head) {
    const { element, exact } = this;
    element.textContent = describeWeight(scene, query, key, head);
    element.classList.toggle("invitation", key === null && head === null); // it is not printed
    this.told += 1;
    const { matrix, state, layer, derived, preview } = scene;
    const chosen = key !== null && query === state.query && key === state.key && !state.words;
    // Exact weights exist for the maps only, not for the frames of a playback, nor for a weight that is dragged.
    const rounded = !matrix.exact && !derived && !preview && layer.square === 1;
    if (!exact || !chosen || !rounded || state.frame !== null) return;
    const at = head ?? state.focus;
    const { told: ticket } = this;
    exact({ map: state.map, layer: layer.name, head: at, query }).then((row) => {
      if (ticket !== this.told) return;
      element.textContent = `${describeHead(scene, at, query, key)}: ${row[key]} exactly${describeChange(scene, at, query, key)}`;
    });
  }
}

/**
 * The description of a weight.
 * @param {Pick<Scene, "matrix" | "state" | "before">} scene @param {number} query @param {number | null} key
 * @param {number | null} head
 */
export function describeWeight(scene, query, key, head) {
  const { matrix, state } = scene;
  if (key === null && head === null) return invitation(matrix);
  const at = head ?? state.focus;
  const to = key ?? matrix.strongest(at, query);
  const weight = matrix.at(at, query, to);
  const name = describeHead(scene, at, query, to, key === null);
  const chosen = key !== null && query === state.query && key === state.key && !state.words;
  const value = chosen && matrix.exact ? `${Number(weight.toPrecision(9))} exactly` : weight.toFixed(4);
  return `${name}: ${value}${describeChange(scene, at, query, to)}`;
}

/**
 * The change of a weight, if there is an original one.
 * @param {Pick<Scene, "matrix" | "before">} scene @param {number} head @param {number} query @param {number} key
 */
function describeChange({ matrix, before }, head, query, key) {
  if (!before) return "";
  const was = before.at(head, query, key);
  return ` (was ${was.toFixed(4)}, ${signedNumber(matrix.at(head, query, key) - was)})`;
}

/** @param {Matrix} matrix */
function invitation({ rows, columns, heads, names }) {
  const scope = names ? "" : ` in each of ${heads} head${heads > 1 ? "s" : ""}`;
  const size = `${rows} × ${columns} weights${scope}`;
  return `Point at a weight, or use the arrow keys on a heatmap. ${size}.`;
}

/**
 * @param {Pick<Scene, "matrix"> & Partial<Pick<Scene, "layer">>} scene @param {number} head @param {number} query
 * @param {number} key
 */
function describeHead({ matrix, layer }, head, query, key, mainly = false) {
  const [from, to] = [isolate(matrix.queries[query]), isolate(matrix.keys[key])];
  const side = layer?.square ?? 1;
  const step = side > 1 ? `steps ${key * side} to ${(key + 1) * side - 1}, the largest weight` : `step ${key}`;
  return `${matrix.name(head)}: ${from} →${mainly ? " mainly" : ""} ${to} (${step})`;
}

// Queries and keys as text; the keys are coloured by the weights of the selected query.

const MANY_KEYS = 12; // from this number, the keys may scroll and are reached with the tab key

const LONG_STRIP = 24; // from this number, a strip has one line, which scrolls to the chosen token

export class Tokens {
  /** @param {Scene} scene @param {Actions} actions */
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
   * @param {Scene} scene @param {Palette} colours @param {number} query @param {number | null} head
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

  // Scrolls a box of many tokens to one of them.
  /** @param {ReturnType<typeof tokenBox>} tokens @param {number} index */
  reveal({ box, tokens }, index) {
    const token = tokens.get(index);
    if (!token || tokens.size <= MANY_KEYS || box.dataset.at === String(index)) return;
    box.dataset.at = String(index);
    box.scrollTop = Math.max(0, token.offsetTop - 4);
  }
}

/** A box of tokens around an index, and each token by its index. @param {string[]} labels @param {number} at */
function tokenBox(labels, at) {
  const box = node("div");
  const indices = nearbyIndices(labels.length, at);
  const tokens = new Map(indices.map((index) => [index, node("span", { class: "token" }, labels[index])]));
  if (indices[0] > 0) box.append(secondaryText("… "));
  box.append(...tokens.values());
  if (indices[indices.length - 1] < labels.length - 1) box.append(secondaryText(" …"));
  return { box, tokens };
}

// One exact row of a long input, which is requested, since the map contains only the maximum of each square.

/** @typedef {{ layer: string, head: number, step: number }} LongRow */
/** @typedef {(which: LongRow) => Promise<RowData>} AskRow */

const STRIP_HEIGHT = 24; // pixels

export class Long {
  /** @param {AskRow} ask */
  constructor(ask) {
    this.step = 0;
    /** @type {unknown[]} */
    this.askedFor = [];
    /** @type {RowData | null} */
    this.found = null;
    /** @type {{ scene: Scene, colours: Palette, width: number } | null} */
    this.shown = null;
    this.number = node("input", { type: "number", min: 0, step: 1, "data-name": "step" });
    this.number.addEventListener("change", () => this.go(Number(this.number.value)));
    this.row = new Part();
    this.element = node("section", { class: "sum", "aria-label": "Exact row" });
    const label = node("label", {}, "Exact row: step");
    label.append(this.number);
    this.element.append(label, this.row.element);
    this.ask = latest(async (/** @type {LongRow} */ which) => {
      try {
        this.found = await ask(which);
        this.draw();
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        this.row.show([error], () => [node("p", { role: "alert" }, message)]);
      }
    });
  }

  // Shows the selected row: the first of its square, unless another is typed.
  /** @param {Scene} scene @param {Palette} colours @param {number} width */
  show(scene, colours, width) {
    const { state, layer, map } = scene;
    this.shown = { scene, colours, width };
    const asked = [map, layer.name, state.head ?? state.focus, state.query];
    if (asked.every((value, index) => value === this.askedFor[index])) return this.draw();
    if (state.query !== this.askedFor[3] || Math.floor(this.step / layer.square) !== state.query) {
      this.step = state.query * layer.square;
    }
    this.askedFor = asked;
    this.go(this.step);
  }

  /** @param {number} step */
  go(step) {
    if (!this.shown || !Number.isInteger(step)) return;
    const { layer, state } = this.shown.scene;
    this.step = step;
    this.number.value = String(step);
    this.ask({ layer: layer.name, head: state.head ?? state.focus, step });
  }

  draw() {
    const { found, shown } = this;
    if (!found || !shown) return;
    this.row.show([found, shown.colours, shown.width], () => [
      node("p", {}, `Attention of “${isolate(tokenLabel(found.query))}” to all ${found.weights.length} steps:`),
      drawStrip(found.weights, shown.colours, shown.width),
      scrollBox(largestOf(found), "The largest weights of the row"),
    ]);
  }
}

// A row as a strip of colours, scaled to its largest weight.
/** @param {number[]} weights @param {Palette} colours @param {number} width */
function drawStrip(weights, colours, width) {
  /** @type {Level} */
  let level = { values: Float32Array.from(weights), rows: 1, columns: weights.length };
  while (level.columns > Math.max(width, 1)) level = halve(level);
  const canvas = node("canvas", { width: level.columns, height: 1, role: "img" });
  canvas.setAttribute("aria-label", `${weights.length} weights as colors; the table below lists the largest`);
  const largest = level.values.reduce((maximum, value) => Math.max(maximum, value), 1e-9);
  const image = canvasContext(canvas).createImageData(level.columns, 1);
  new Uint32Array(image.data.buffer).set(
    Array.from(level.values.subarray(0, level.columns), (value) => colours.table[shade(value / largest)]),
  );
  canvasContext(canvas).putImageData(image, 0, 0);
  Object.assign(canvas.style, { width: "100%", height: `${STRIP_HEIGHT}px`, imageRendering: "pixelated" });
  canvas.style.border = "1px solid var(--edge)";
  return canvas;
}

/** @param {RowData} row */
function largestOf({ largest }) {
  const table = node("table");
  const body = node("tbody");
  for (const { step, key, weight } of largest) {
    const line = node("tr");
    line.append(
      node("td", {}, String(step)),
      node("th", { scope: "row" }, tokenLabel(key)),
      node("td", {}, weight.toPrecision(6)),
    );
    body.append(line);
  }
  table.append(headRow("step", "key", "weight"), body);
  return table;
}

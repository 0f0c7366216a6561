// The explorer: type an input, see prediction, truth and attention; change a head or a weight and see the effect.

import { ask } from "./ask.js";
import { Predictions } from "./predictions.js";
import { searchTree } from "./tree.js";
import { formatAddress, readAddress, replaceAddress } from "./js/state.js";
import { addTokens } from "./js/style.js";
import { button, checkbox, icon, keepFocus, node, oneTabStop, select } from "./js/dom.js";
import { isolate, revealHidden, tokenLabel } from "./js/labels.js";
import { latest } from "./js/arithmetic.js";
import { currentHead } from "./js/sentence.js";
import { View } from "./js/view.js";
import { unpack } from "./js/matrix.js";

/** @import { Asked, Written } from "./js/state.js" */
/** @import { BesideData, InterventionData, LayerData, MapData, PlaybackData, RoleData, WorthData } from "./js/data.js" */
/** @import { LongRow, Row } from "./js/drawing.js" */
/** @import { Which } from "./js/sum.js" */
/** @import { Searched } from "./tree.js" */
/** @import { Scene } from "./js/scene.js" */

/** @typedef {{ map: MapData, original?: MapData, beside?: BesideData[], left_out?: string[], touched?: InterventionData[], values?: boolean, weighed?: { map: MapData, original?: MapData } }} Found the answer to an input, that before it was touched, why some others are not beside it, how it was touched, whether its values were asked for, and its maps with weighted values */

/**
 * The explored model.
 * @typedef {object} About
 * @property {string} task
 * @property {string} summary
 * @property {string} kind
 * @property {number | null} step null for a model that was not trained here
 * @property {boolean} draws whether it can draw inputs
 * @property {boolean} writes whether it generates its answer token by token
 * @property {"next" | "masked" | null} predicts which tokens a language model predicts
 * @property {string | null} mask the text of its mask token
 * @property {boolean} [pictures] whether its inputs are images
 * @property {boolean} snapshots whether it has snapshots of its training
 * @property {string | null} [history] the run that it started from, and its earlier schedules
 * @property {string} [accepts] description of accepted inputs, if they are limited
 * @property {string[]} [without] buttons of what cannot be computed
 * @property {string[]} [texts] inputs of a model that has no unseen ones
 * @property {string} [origin_of_texts] where they come from, if they are examples
 * @property {[string, string] | null} [back] title and address of the page that links here
 * @property {Record<string, string[]>} [examined] findings of the examination of each head
 * @property {Record<string, WorthData[]> | null} [importance] importance of each head from the examination
 * @property {Record<string, RoleData[]>} [roles] role of each head from the examination
 */

/**
 * @typedef {object} State
 * @property {InterventionData[]} touched
 * @property {string} task
 * @property {Record<string, WorthData[]>} [importance]
 * @property {Record<string, RoleData[]>} [roles]
 * @property {Partial<Record<string, AbortController>>} working aborts the running computation
 * @property {Record<string, string[]>} [examined]
 * @property {PlaybackData} [playback]
 * @property {Found} [found]
 * @property {Written} [written] the displayed search
 * @property {View} [view]
 * @property {boolean} draws whether the model can draw inputs
 * @property {string} accepts
 * @property {string} fetching names of the layers whose weights were requested
 * @property {Predictions} [predictions]
 * @property {boolean} weighed whether weights are multiplied by the norms of their values
 * @property {string} noValues why weights cannot be multiplied by the norms of values
 * @property {boolean} valuesChecked whether `noValues` is known
 * @property {boolean} foreign whether it was not trained here: then weights cannot be explained
 * @property {number} seed
 * @property {number} ticket identifies the latest request
 * @property {string | null} shownText the typed input that is answered or asked for, without interventions
 */

const WORK = 300; // milliseconds after which the page says that the model is computing
const VALUES_WAIT = 1000; // milliseconds after which it is checked whether values are known
const TYPING = 150; // milliseconds without a keystroke before an input is sent
const PROGRESS = 400; // milliseconds between progress requests
const LARGEST_IMAGE = 8_000_000; // bytes of an image
const CHUNK = 8192; // bytes converted to characters at once
// The inputs over which importance, roles and samples of a model without data of its own are computed.

const ROLES_NEED = 2; // inputs

export class Texts {
  /**
   * @param {HTMLElement} box
   * @param {HTMLElement} opener the button that opens the list
   * @param {{ open: (text: string) => void, typed: () => string, changed: () => void }} actions
   */
  constructor(box, opener, actions) {
    /** @type {string[] | null} null: the model has unseen inputs of its own */
    this.all = null;
    this.origin = "";
    this.noun = "text";
    this.box = box;
    this.opener = opener;
    this.actions = actions;
    opener.addEventListener("click", () => {
      box.hidden = !box.hidden;
      this.draw();
      if (!box.hidden) box.querySelector("button")?.focus();
    });
  }

  /**
   * Shows the inputs of the model that the page begins with.
   * @param {string[] | undefined} texts
   * @param {string} origin where they come from
   * @param {boolean} pictures whether they are images
   */
  begin(texts, origin, pictures) {
    Object.assign(this, { all: texts ?? null, origin, noun: pictures ? "image" : "text" });
    this.draw();
  }

  /** @param {string} text */
  add(text) {
    if (!this.all || !text.trim() || this.all.includes(text)) return;
    this.all.push(text);
    this.changed();
  }

  changed() {
    this.actions.changed();
    this.draw();
  }

  /** What requests send. */
  get body() {
    return { texts: this.all ?? [] };
  }

  /** Why the roles of heads cannot be computed; empty if they can. */
  get noRoles() {
    const { all, noun } = this;
    if (!all || all.length >= ROLES_NEED) return "";
    return `Head roles needs ${ROLES_NEED} ${noun}s or more, and the list has ${all.length}: add one in ${noun === "text" ? "Texts" : "Images"}.`;
  }

  draw() {
    const { all, box, opener, noun } = this;
    opener.hidden = !all;
    if (!all) return;
    const label = opener.lastChild ?? opener;
    label.textContent = `${noun === "text" ? "Texts" : "Images"} (${all.length})`;
    opener.setAttribute("aria-expanded", String(!box.hidden));
    if (!box.hidden) keepFocus(box, () => box.replaceChildren(this.list(all)));
  }

  /** @param {string[]} all */
  list(all) {
    const section = node("section", { class: "steps", "aria-label": "Inputs of examinations" });
    const list = node("ul");
    all.forEach((text, index) => {
      const item = node("li");
      const opens = button(isolate(tokenLabel(text)), () => this.actions.open(text));
      const removes = button("Remove", () => {
        all.splice(index, 1);
        this.changed();
      });
      opens.dataset.name = `text-${index}`;
      removes.dataset.name = `remove-${index}`;
      removes.setAttribute("aria-label", `Remove ${text}`);
      item.append(opens, removes);
      list.append(item);
    });
    const bar = node("div", { class: "bar" });
    bar.append(
      ...(this.noun === "text" ? [button("Add the typed input", () => this.add(this.actions.typed()))] : []),
      button("Close", () => this.opener.click()),
    );
    const from = this.origin ? ` The first ones are examples ${this.origin}.` : "";
    const use = `Head importance, Head roles and Top inputs use these ${this.noun}s. Select one to show it.${from}`;
    section.append(node("p", { class: "quiet" }, use), list, bar);
    return section;
  }
}

const picture = /** @type {HTMLInputElement} */ (element("picture"));
const input = /** @type {HTMLInputElement} */ (element("input"));
const message = element("message");
const main = element("view");
const texts = new Texts(element("list"), element("texts"), {
  open: (text) => showInput(text),
  typed: () => input.value,
  changed: () => {
    Object.assign(state, { importance: undefined, roles: undefined }); // they were of other inputs
    updateButtons();
    if (state.found) draw(state.found);
  },
});
/** @type {State} */
const state = {
  task: "",
  touched: [],
  foreign: false,
  seed: 0,
  ticket: 0,
  working: {},
  shownText: null,
  draws: false,
  accepts: "",
  fetching: "",
  weighed: false,
  noValues: "",
  valuesChecked: false,
};

/** @param {string} id */
function element(id) {
  const item = document.getElementById(id);
  if (!item) throw new Error(`the page has no element ${id}`);
  return item;
}

/**
 * Runs work that sends requests and displays its errors; of concurrent runs only the last one counts.
 * @param {() => Promise<() => void>} work resolves to a function that displays the response
 * @param {boolean} [answers] whether it answers an input: if that is rejected, the old answer is dimmed
 */
async function runRequest(work, answers = false) {
  state.ticket += 1;
  const { ticket } = state;
  main.classList.add("waiting");
  const slow = setTimeout(() => {
    if (ticket === state.ticket) element("work").textContent = "The model is computing …";
  }, WORK);
  try {
    const finish = await work();
    if (ticket !== state.ticket) return;
    message.textContent = "";
    if (answers) markRejected(false);
    finish();
  } catch (error) {
    if (ticket !== state.ticket) return;
    message.textContent = error instanceof Error ? error.message : String(error);
    if (answers) {
      state.shownText = null;
      markRejected(true);
      element("note").textContent = ""; // it belongs to the old input
    }
  } finally {
    clearTimeout(slow);
    if (ticket === state.ticket) {
      main.classList.remove("waiting");
      element("work").textContent = "";
    }
  }
}

/** @param {boolean} on whether what is shown belongs to another input than that which stands there */
function markRejected(on) {
  main.classList.toggle("refused", on);
  main.inert = on;
  input.setAttribute("aria-invalid", String(on));
}

/** @param {Found} answered */
function draw(answered) {
  state.found = answered;
  if (state.weighed && answered.values === undefined) return weigh(answered);
  const { map, original } = state.weighed && answered.weighed ? answered.weighed : answered;
  const { importance, examined, roles, playback, touched, view } = state;
  const data = {
    maps: [map],
    original,
    importance,
    examined,
    roles,
    playback,
    beside: state.weighed ? undefined : answered.beside, // their values are not known
    interventions: touched,
    behind: answered.touched !== undefined && answered.touched !== touched,
  };
  const notes = [map.note, ...(answered.left_out ?? [])].filter(Boolean);
  element("note").textContent = notes.map((note) => `Note: ${note}`).join(" "); // next to the typed input
  document.title = `${state.task}: ${revealHidden(answered.map.input)} · Regard`;
  if (view) view.update(data);
  else {
    const { state: chosen } = readAddress(location.hash);
    const usual = { touch, row, exact, why, fits: true, state: chosen, chosen: stateChanged };
    main.replaceChildren();
    state.view = new View(main, state.foreign ? usual : { ...usual, explain });
    state.view.update(data);
    updateAddress();
    showWholeLayers();
  }
  updateButtons();
  requestIdleCallback(() => checkValues(answered.map), { timeout: VALUES_WAIT });
  if (state.view) state.predictions?.show({ input: answered.map.input, touched }, state.view);
}

/** Requests the weights that are in view, if only thumbnails of them were sent. */
async function showWholeLayers() {
  const { found, view } = state;
  const layers = found && view?.scene && !state.playback ? neededLayers(view.scene) : [];
  if (!found || !layers.length || state.fetching === layers.join()) return;
  state.fetching = layers.join();
  try {
    const whole = await wholeLayers(found, layers);
    if (state.found === found) draw({ ...found, ...whole });
  } catch (error) {
    message.textContent = error instanceof Error ? error.message : String(error);
  } finally {
    state.fetching = "";
    if (state.found !== found) showWholeLayers();
  }
}

/** @param {Found} found @param {string[]} layers */
async function wholeLayers({ map, original, touched = [] }, layers) {
  const whole = await ask("api/layers", { input: map.input, interventions: touched, layers });
  return { map: withLayers(map, whole.map), original: original && withLayers(original, whole.original) };
}

/** @param {Row} which */
async function exact({ layer, head, query }) {
  return (await row({ layer, head, step: query })).weights;
}

/** Marks buttons that need more than there is; their title is the reason. */
function updateButtons() {
  const shown = state.found?.map;
  const none = shown && !shown.layers.length ? "This model has no attention." : "";
  const first = shown ? "" : "Show an input first.";
  const unknown = texts.all || state.draws ? "" : "No unseen inputs are known: the text of this run is not here.";
  const reasons = {
    importance: none || unknown || (texts.all?.length ? "" : texts.all && first),
    roles: none || unknown || texts.noRoles,
    search: none || unknown || first,
    tree: first,
    playback: first,
    values: none || first || (shown && isLong(shown) ? "Value-weighted: the input is too long." : state.noValues),
  };
  for (const [name, reason] of Object.entries(reasons)) {
    element(name).setAttribute("aria-disabled", String(Boolean(reason)));
    element(name).title = reason || (element(name).dataset.does ?? "");
  }
  const example = texts.origin && texts.all?.includes(input.value) ? `Example ${texts.origin}.` : "";
  const limits = state.accepts && state.accepts !== "a text" ? `Accepts ${state.accepts}.` : "";
  const accepts = [limits, example].filter(Boolean).join(" ");
  Object.assign(element("accepts"), { textContent: accepts, title: accepts });
}

/** @param {string} text */
function showInput(text) {
  input.value = text;
  return attend({ fresh: true });
}

function stateChanged() {
  updateAddress();
  showWholeLayers();
  state.predictions?.rowChanged();
}

// Shows an answer with weighted values; if they are not known, the button says why and cannot be pressed.
/** @param {Found} answered */
function weigh(answered) {
  const { input: text } = answered.map;
  const interventions = answered.touched ?? [];
  return runRequest(async () => {
    let reason = "";
    try {
      if (isLong(answered.map)) throw new Error("Value-weighted: the input is too long.");
      const layers = thumbnails(answered.map.layers);
      if (layers.length) Object.assign(answered, await wholeLayers(answered, layers));
      const { map, original } = answered;
      const [norms, norms0] = [
        await valueNorms({ input: text, interventions }),
        original && (await valueNorms({ input: text })),
      ];
      reason = missingValues(map, norms);
      if (!reason)
        answered.weighed = {
          map: weighValues(map, norms),
          original: original && norms0 && weighValues(original, norms0),
        };
    } catch (error) {
      reason = error instanceof Error ? error.message : String(error);
    }
    return () => {
      answered.values = true;
      if (reason) setWeighed(false);
      if (answered === state.found) draw(answered);
      message.textContent = reason;
    };
  });
}

/** @param {object} body @returns {Promise<ValueNorms>} */
function valueNorms(body) {
  return ask("api/value_norms", body);
}

// Finds out once whether the model's values are known, so that the button is never offered in vain.
/** @param {MapData} map */
async function checkValues(map) {
  if (state.valuesChecked || element("values").hidden || isLong(map)) return;
  state.valuesChecked = true;
  const norms = await valueNorms({ input: map.input }).catch((error) => String(error?.message ?? error));
  state.noValues = typeof norms === "string" ? norms : missingValues(map, norms);
  updateButtons();
}

/** @param {boolean} on */
function setWeighed(on) {
  state.weighed = on;
  element("values").setAttribute("aria-pressed", String(on));
}

/** @param {Which} which */
function explain(which) {
  return ask("api/explain", { ...which, input: state.found?.map.input, interventions: state.touched });
}

/** @param {Which} which */
function why({ layer, head, output, key }) {
  return ask("api/why", { layer, head, output, key, input: state.found?.map.input, interventions: state.touched });
}

/** @param {LongRow} which */
function row(which) {
  return ask("api/row", { ...which, input: state.found?.map.input, interventions: state.touched });
}

/** Keep in the address what is shown: of which input, and what was done to it. */
function updateAddress() {
  const { found, view, touched, written } = state;
  if (!found || !view) return;
  /** @type {Asked[]} */
  const all = ["importance", "roles"];
  const asked = all.filter((name) => isComputed(name) || state.working[name]);
  replaceAddress(formatAddress(view.state, { input: found.map.input, touched, written, asked }));
}

/** @param {Asked} name */
function isComputed(name) {
  return Object.keys(state[name] ?? {}).length > 0;
}

/** @param {InterventionData[]} touched */
function touch(touched) {
  Object.assign(state, { touched, playback: undefined, shownText: null });
  answerAgain(undefined);
}

/** While a weight is dragged, one question is under way at a time, and the last one is always answered. */
const answerAgain = latest(() => attend());

/** Show the input that stands there, touched as it is; `fresh`: another one, which nothing has been done to. */
export function attend({ fresh = false, drawn = false } = {}) {
  if (fresh) Object.assign(state, { touched: [], playback: undefined });
  state.shownText = fresh && !drawn ? input.value : null;
  element("steps").hidden = true; // it belongs to another answer
  state.written = undefined;
  return runRequest(async () => {
    const asked = drawn ? { seed: state.seed } : { input: input.value };
    const { touched } = state;
    const layer = state.view?.scene?.layer.name ?? readAddress(location.hash).state.layer ?? null;
    /** @type {Found} */
    const response = await ask("api/attend", { interventions: touched, layer, ...asked });
    response.touched = touched;
    return () => {
      if (drawn) input.value = response.map.input;
      draw(response);
    };
  }, true);
}

/** Show what the address says: another part of the answer that is there, or another input. */
async function followAddress() {
  const { input: text, state: chosen, touched, written, asked } = readAddress(location.hash);
  const { found, touched: before } = state;
  const shown = text === found?.map.input && !touched?.length && !before.length && (written || !state.written);
  const same = text === null || shown;
  if (text !== null && !same) {
    input.value = text;
    Object.assign(state, { touched: touched ?? [], playback: undefined });
    await attend();
  }
  if (chosen.frame !== undefined && !state.playback) await runRequest(showPlayback);
  if (written) await runRequest(() => showSearch(written.beam, written.branch));
  state.view?.choose(chosen);
  for (const name of asked) if (!isComputed(name) && !state.working[name]) compute(name);
}

/** What the page says of the subject, and what can be done with it. */
async function showSubject() {
  /** @type {About} */
  const about = await ask("api/run");
  return () => {
    Object.assign(state, {
      task: about.task,
      foreign: about.step === null,
      examined: about.examined,
      importance: about.importance ?? undefined,
      roles: about.roles,
      draws: about.draws,
      accepts: about.accepts ?? "",
    });
    texts.begin(about.texts, about.origin_of_texts ?? "", about.pictures ?? false);
    element("task").textContent = about.task;
    const past = about.history ? ` (${about.history})` : "";
    const summary =
      about.step === null
        ? `${about.kind}: ${about.summary.replace(/^an? /, "")}`
        : `${about.summary}; ${about.kind} model, ${about.step.toLocaleString("en")} training steps${past}`;
    Object.assign(element("about"), { textContent: summary, title: summary });
    const back = /** @type {HTMLAnchorElement} */ (element("back"));
    back.hidden = !about.back;
    [back.textContent, back.href] = about.back ?? ["", ""];
    element("draw").hidden = !about.draws;
    element("file").hidden = !about.pictures;
    input.readOnly = about.pictures ?? false;
    element("playback").hidden = !about.snapshots;
    element("tree").hidden = !about.writes;
    updateButtons();
    if (about.predicts) {
      state.predictions = new Predictions(about.predicts, about.mask, ask, async (text, touched) => {
        input.value = text;
        state.touched = touched;
        await attend();
        if (about.predicts === "next") state.view?.choose({ query: Number.MAX_SAFE_INTEGER, key: null });
      });
    }
    for (const name of about.without ?? []) element(name).hidden = true;
    const more = [...element("more").querySelectorAll("button")].filter((option) => !option.hidden);
    oneTabStop(more, 0);
    if (readAddress(location.hash).input !== null) followAddress();
    else if (about.draws) attend({ fresh: true, drawn: true });
    else if (about.texts?.length) showInput(about.texts[0]);
  };
}

/** Runs a long computation beside other requests; pressing its button again stops it. @param {Asked} name */
async function compute(name) {
  const button = element(name);
  const working = state.working[name];
  if (working) return working.abort();
  const control = new AbortController();
  state.working[name] = control;
  const label = button.lastChild ?? button; // after the icon
  const usual = label.textContent;
  const watch = setInterval(async () => {
    const progress = (await ask("api/progress").catch(() => ({})))[name];
    if (state.working[name] === control && progress) label.textContent = `Stop (${progress[0]} of ${progress[1]})`;
  }, PROGRESS);
  label.textContent = "Stop";
  try {
    state[name] = await ask(`api/${name}`, texts.body, control.signal);
    if (state.found) draw(state.found);
  } catch (error) {
    if (!control.signal.aborted) message.textContent = error instanceof Error ? error.message : String(error);
  } finally {
    clearInterval(watch);
    state.working[name] = undefined;
    label.textContent = usual;
    updateAddress();
  }
}

// Shows the search for the answer; `beam`: its width, `first`: the selected branch.
/** @param {number} [beam] @param {number} [first] */
async function showSearch(beam, first) {
  /** @type {Searched} */
  const response = await ask("api/tree", { input: input.value, interventions: state.touched, beam: beam ?? null });
  return () => {
    const steps = element("steps");
    /** @param {number} branch */
    const choose = (branch) => {
      state.written = { beam: response.tree.beam, branch };
      draw({ map: response.maps[response.shown[branch]] });
      state.view?.choose({ query: response.tree.branches[branch].step, key: null, also: "" });
      updateAddress();
    };
    const close = () => {
      steps.hidden = true;
      steps.replaceChildren();
      attend();
    };
    steps.hidden = false;
    steps.replaceChildren(searchTree(response, first, choose, (width) => runRequest(() => showSearch(width)), close));
  };
}

/** @param {Sample} sample @param {Wanted} wanted */
async function openSample({ input: text, query, key }, { layer, head }) {
  await showInput(text);
  state.view?.choose({ layer, focus: head, query, key, also: "", words: false });
}

/** Find unseen inputs which the head in view weighs most. */
function findSamples() {
  const scene = state.view?.scene;
  if (!scene) {
    message.textContent = state.found ? "This model has no attention to search." : "Show an input first.";
    return;
  }
  const { layer, state: chosen } = scene;
  const token = chosen.key === null ? null : (layer.keys[chosen.key] ?? null);
  const wanted = { layer: layer.name, head: currentHead(scene), token, wrong_first: false };
  const tokens = [...new Set(layer.keys)].sort();
  /** @param {Wanted} asked */
  const again = (asked) =>
    runRequest(async () => {
      const answer = { found: await ask("api/samples", { ...asked, ...texts.body }), asked };
      const box = element("samples");
      return () => showSamples(box, answer, tokens, openSample, again, () => element("search").focus());
    });
  return again(wanted);
}

/** Send the picture that was chosen, and show it. */
async function sendPicture() {
  const file = picture.files?.[0];
  if (!file) return () => {};
  picture.value = ""; // so that the same file can be selected again
  if (file.size > LARGEST_IMAGE) throw new Error(`${file.name} has more than 8 MB: choose a smaller image`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  let text = "";
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  const response = await ask("api/picture", { name: file.name, content: btoa(text) });
  return () => {
    texts.add(response.input);
    showInput(response.input);
  };
}

async function showPlayback() {
  state.touched = [];
  /** @type {PlaybackData} */
  const playback = await ask("api/playback", { input: input.value });
  return () => {
    state.playback = playback;
    draw({ map: playback.frames[playback.frames.length - 1] });
  };
}

/** @param {string} name @param {() => unknown} does */
function onClick(name, does) {
  element(name).addEventListener("click", () => {
    const { title, ariaDisabled } = element(name);
    if (ariaDisabled === "true") message.textContent = title;
    else does();
  });
}

let timer = 0;
input.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => attend({ fresh: true }), TYPING);
});
element("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  if (state.shownText !== input.value) attend({ fresh: true }); // typing has asked already
});
picture.addEventListener("change", () => runRequest(sendPicture, true));
element("draw").addEventListener("click", () => {
  state.seed += 1;
  attend({ fresh: true, drawn: true });
});
element("tour").addEventListener("click", () => tour(element("guide")));
onClick("values", () => {
  setWeighed(!state.weighed);
  if (state.found) draw(state.found);
});
addEventListener("hashchange", followAddress);
onClick("importance", () => compute("importance"));
onClick("roles", async () => {
  await compute("roles");
  if (isComputed("roles")) state.view?.choose({ mode: "overview" });
});
onClick("search", findSamples);
onClick("tree", () => runRequest(() => showSearch()));
onClick("playback", () => runRequest(showPlayback));
for (const button of element("more").querySelectorAll("button")) {
  button.prepend(icon(button.dataset.icon ?? ""));
}
addTokens(document);
document.addEventListener("keydown", (event) => {
  if (event.target === document.body) state.view?.pressed(event);
});
// The token in the address is now in a cookie, and is removed so that nobody copies it from the screen.
if (location.search) history.replaceState(null, "", location.pathname);
runRequest(showSubject);

// Whole weights of layers of which only thumbnails were sent, since the others of many weights come when needed.

// Names of the layers that a view shows as thumbnails though it needs all weights.
/** @param {Pick<Scene, "map" | "layer" | "state">} scene */
function neededLayers({ map, layer, state }) {
  const all = state.mode === "overview" || state.mode === "flow" || state.words;
  const shown = all ? map.layers : map.layers.filter(({ name }) => name === layer.name);
  return thumbnails(shown);
}

/** The names of the thumbnails among layers. @param {LayerData[]} layers */
export function thumbnails(layers) {
  return layers.filter(({ weights }) => !Array.isArray(weights) && weights.side > 1).map(({ name }) => name);
}

// A map with some layers in place of their thumbnails.
/** @param {MapData} map @param {LayerData[]} whole @returns {MapData} */
function withLayers(map, whole) {
  const byName = new Map(whole.map((layer) => [layer.name, layer]));
  return { ...map, layers: map.layers.map((layer) => byName.get(layer.name) ?? layer) };
}

// Weights times the norms of the values that they weigh (Kobayashi et al. 2020), as a picture instead of weights.

/** @typedef {{ norms: Record<string, number[][]>, left_out: Record<string, string> }} ValueNorms norms by layer, head and key */

const SAID =
  "Weights are multiplied by the norms of their values, and rows are divided by their sums (Kobayashi et al. 2020).";

// The reason why weights cannot be multiplied by the norms of values; empty if they can.
/** @param {MapData} map @param {ValueNorms} values */
function missingValues(map, { norms, left_out: reasons }) {
  if (isLong(map)) return "Value-weighted: the input is too long.";
  const missing = map.layers.filter((layer) => !norms[layer.name]);
  if (!missing.length) return "";
  const [{ name }] = missing;
  const more = missing.length > 1 ? ` and ${missing.length - 1} more` : "";
  return `Value-weighted: the values of ${name}${more} are not known: ${reasons[name] ?? "they are not recorded"}.`;
}

/** Whether the input is so long that the map holds the largest weights of squares. @param {MapData} map */
function isLong(map) {
  return map.layers.some((layer) => layer.square > 1);
}

/** The map with weighted values. @param {MapData} map @param {ValueNorms} values @returns {MapData} */
function weighValues(map, { norms }) {
  const layers = map.layers.map((layer) => ({ ...layer, weights: weighed(layer, norms[layer.name]) }));
  return { ...map, layers, note: [map.note, SAID].filter(Boolean).join(" "), sums: undefined };
}

/** @param {LayerData} layer @param {number[][]} norms by head and key */
function weighed(layer, norms) {
  const matrix = unpack(layer);
  return matrix.slices.map((slice, head) =>
    layer.queries.map((_, query) => {
      const row = Array.from(matrix.row(slice, query), (weight, key) => weight * norms[head][key]);
      const sum = row.reduce((before, value) => before + value, 0);
      return sum > 0 ? row.map((value) => value / sum) : row;
    }),
  );
}

// A one-minute tour of the explorer, which can be skipped at any time and controlled by keys.

/** @typedef {{ at: string, text: string }} Stop what is pointed at, and what is said of it */

/** @type {Stop[]} */
const STOPS = [
  { at: "#input", text: "Type an input here; the accepted form is described below. The model answers as you type." },
  { at: ".answer", text: "The model's prediction and the probability of each output, with the truth if it is known." },
  {
    at: ".pane.heads",
    text:
      "All heads of the model, a row for each layer; select one to see it. The bar below a head is its entropy, its " +
      "importance or another measure.",
  },
  {
    at: ".panels",
    text:
      "The attention of each head. Rows are queries, columns are keys. The stronger " +
      "the color, the larger the weight; each row sums to 1.",
  },
  { at: ".sentence", text: "The selected row in words." },
  {
    at: ".panels",
    text: "Point at a weight to read it, click to select it. Keyboard: Tab to a heatmap, then arrows; [ and ] change the head.",
  },
  { at: ".choice", text: "The same as lines between tokens, as a table of numbers, or all layers and heads at once." },
  {
    at: "button[data-name='Explain this weight']",
    text: "The computation of a weight, number by number: query times key, softmax, values, answer.",
  },
  {
    at: ".touch",
    text:
      "Large weights need not matter. Switch a head off, make it uniform, or drag a weight, and see whether " +
      "the answer changes.",
  },
  { at: "#importance", text: "The loss increase without each head, over many samples." },
  {
    at: "#roles",
    text: "The role of each head, if it is significant: it attends to the previous step, to the aligned word, ...",
  },
  {
    at: "#search",
    text: "Other inputs with the largest weights of the displayed head, optionally wrong answers first. This is the end of the tour.",
  },
];

/**
 * Starts the tour. It ends after the last stop, with Escape or with Skip; the focus returns to its former element.
 * @param {HTMLElement} guide contains the text of the stops
 */
export function tour(guide) {
  const before = document.activeElement;
  const stops = STOPS.filter(({ at }) => document.querySelector(at)?.checkVisibility());
  /** @type {Element | null} */
  let shown = null;
  /** @param {KeyboardEvent} event */
  const pressed = (event) => {
    if (event.key === "Escape") end();
  };
  const end = () => {
    shown?.classList.remove("toured");
    guide.hidden = true;
    document.removeEventListener("keydown", pressed);
    if (before instanceof HTMLElement) before.focus();
  };
  /** @param {number} number */
  const go = (number) => {
    if (number === stops.length) return end();
    shown?.classList.remove("toured");
    shown = document.querySelector(stops[number].at);
    shown?.classList.add("toured");
    shown?.scrollIntoView({ block: "nearest" });
    const last = number === stops.length - 1;
    const next = button(last ? "Done" : "Next", () => go(number + 1));
    const row = node("div");
    row.append(node("span", { class: "count" }, `${number + 1} of ${stops.length}`));
    if (number) row.append(button("Back", () => go(number - 1)));
    if (!last) row.append(button("Skip", end));
    row.append(next);
    guide.replaceChildren(node("p", { "aria-live": "polite" }, stops[number].text), row);
    next.focus();
  };
  document.addEventListener("keydown", pressed);
  guide.hidden = false;
  go(0);
}

// Samples of a head: unseen inputs with its largest weights, which open at these weights.

/** @typedef {{ layer: string, head: number, token: string | null, wrong_first: boolean }} Wanted */
/** @typedef {{ input: string, weight: number, query: number, key: number, query_label: string, key_label: string, right: boolean | null }} Sample */
/** @typedef {{ layer: string, head: number, token: string | null, looked_at: number, wrong: number | null, samples: Sample[] }} Samples */

const ANY = "anything";

/**
 * Shows samples in `box` until it is closed.
 * @param {HTMLElement} box @param {{ found: Samples, asked: Wanted }} answer
 * @param {string[]} tokens choices for the search
 * @param {(sample: Sample, wanted: Wanted) => void} open @param {(wanted: Wanted) => void} search
 * @param {() => void} closed
 */
function showSamples(box, { found, asked }, tokens, open, search, closed) {
  const close = () => {
    box.hidden = true;
    box.replaceChildren();
    closed();
  };
  box.hidden = false;
  keepFocus(box, () =>
    box.replaceChildren(sampleList(found, asked, tokens, (sample) => open(sample, asked), search, close)),
  );
}

/**
 * A list of samples, and the choices for another search.
 * @param {Samples} data @param {Wanted} wanted
 * @param {string[]} tokens choices for the search
 * @param {(sample: Sample) => void} open @param {(wanted: Wanted) => void} search @param {() => void} close
 */
function sampleList(data, wanted, tokens, open, search, close) {
  const box = node("section", { class: "steps", "aria-label": "Samples of a head" });
  const bar = node("div", { class: "bar" });
  const known = [...new Set([...(wanted.token === null ? [] : [wanted.token]), ...tokens])];
  const options = [ANY, ...known.map((token) => tokenLabel(token))];
  const at = wanted.token === null ? 0 : known.indexOf(wanted.token) + 1;
  bar.append(
    select("attends to", options, at, (index) => search({ ...wanted, token: index ? known[index - 1] : null })),
    checkbox("wrong answers first", wanted.wrong_first, (on) => search({ ...wanted, wrong_first: on })),
    button("Close", close),
  );
  const title = `Inputs on which head ${data.head} of ${data.layer} has its largest weights`;
  box.append(node("h2", {}, title), bar, node("p", { class: "quiet" }, describeSearch(data)), listSamples(data, open));
  return box;
}

/** @param {Samples} found */
function describeSearch({ looked_at, wrong, token, samples }) {
  const place = token === null ? "" : ` at ${isolate(tokenLabel(token))}`;
  const errors = wrong === null ? "" : `, ${wrong} of them answered wrongly`;
  return `${looked_at} unseen inputs${errors}; ${samples.length} shown, by their largest weight${place}. Select one to open it.`;
}

/** @param {Samples} found @param {(sample: Sample) => void} open */
function listSamples({ samples }, open) {
  const table = node("table");
  const head = node("tr");
  for (const name of ["weight", "from", "to", "answer", "input"]) head.append(node("th", { scope: "col" }, name));
  const [top, body] = [node("thead"), node("tbody")];
  top.append(head);
  samples.forEach((sample, index) => {
    const row = node("tr");
    const answer = sample.right === null ? "" : sample.right ? "right" : "wrong";
    const from = `${isolate(tokenLabel(sample.query_label))} (${sample.query})`;
    const to = `${isolate(tokenLabel(sample.key_label))} (${sample.key})`;
    for (const text of [sample.weight.toFixed(4), from, to, answer]) row.append(node("td", {}, text));
    const cell = node("td", { class: "input" });
    const opens = button(tokenLabel(sample.input), () => open(sample));
    opens.dataset.name = `sample-${index}`;
    cell.append(opens);
    row.append(cell);
    body.append(row);
  });
  table.append(top, body);
  const region = node("div", { class: "scrolling", role: "region", tabindex: 0, "aria-label": "samples" });
  region.append(table);
  return region;
}

// The explorer: type an input, see prediction, truth and attention; touch a head or a weight, see what changes.

import { tour } from "./tour.js";
import { addressOf, keepAddress, readAddress } from "./view/address.js";
import { oneTabStop } from "./view/dom.js";
import { show } from "./view/entry.js";

/** @import { InterventionData, MapData, PlaybackData } from "./view/data.js" */
/** @import { View } from "./view/view.js" */

/** @typedef {{ map: MapData, original?: MapData }} Found the answer to an input, and that before it was touched */

/**
 * What is explored.
 *
 * @typedef {object} About
 * @property {string} task
 * @property {string} summary
 * @property {string} kind
 * @property {number | null} step null for a model that was not trained here
 * @property {boolean} draws whether it draws samples of its own
 * @property {boolean} snapshots whether it kept some of its training
 * @property {string} [accepts] what may be typed, for people; not where that is any text
 * @property {Record<string, string[]>} [examined] what an examination says of each head
 */

/**
 * @typedef {object} State
 * @property {InterventionData[]} touched
 * @property {string} task
 * @property {Record<string, number[]>} [importance]
 * @property {Record<string, string[]>} [examined]
 * @property {PlaybackData} [playback]
 * @property {Found} [found]
 * @property {View} [view]
 * @property {number} seed
 * @property {number} ticket of the latest thing that is being done
 */

const TYPING = 150; // milliseconds without a key before an input is sent
const input = /** @type {HTMLInputElement} */ (element("input"));
const message = element("message");
const main = element("view");
/** @type {State} */
const state = { task: "", touched: [], seed: 0, ticket: 0 };

/** @param {string} id */
function element(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

/**
 * Ask the server; an answer that is no success is thrown as its error.
 *
 * @param {string} path
 * @param {object} [body]
 */
async function ask(path, body) {
  const headers = { "content-type": "application/json" };
  const request = body && { method: "POST", headers, body: JSON.stringify(body) };
  const response = await fetch(path, request).catch(() => {
    throw new Error("The explorer does not answer: is `regard show` still running?");
  });
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

/**
 * Do something that asks the server, and say what went wrong; of several at once, only the last one counts.
 *
 * @param {() => Promise<() => void>} work resolves to what is done with the answer
 * @param {boolean} [answers] whether it is the answer to an input: where that is refused, the old one is dimmed
 */
async function doing(work, answers = false) {
  state.ticket += 1;
  const { ticket } = state;
  main.classList.add("waiting");
  try {
    const found = await work();
    if (ticket !== state.ticket) return;
    message.textContent = "";
    if (answers) refused(false);
    found();
  } catch (error) {
    if (ticket !== state.ticket) return;
    message.textContent = error instanceof Error ? error.message : String(error);
    if (answers) refused(true);
  } finally {
    if (ticket === state.ticket) main.classList.remove("waiting");
  }
}

/** @param {boolean} on whether what is shown belongs to another input than that which stands there */
function refused(on) {
  main.classList.toggle("refused", on);
  main.inert = on;
  input.setAttribute("aria-invalid", String(on));
}

/** @param {Found} found */
function draw(found) {
  state.found = found;
  const { importance, examined, playback, touched, view } = state;
  const data = {
    maps: [found.map],
    original: found.original,
    importance,
    examined,
    playback,
    interventions: touched,
  };
  document.title = `${state.task}: ${found.map.input} · Regard`;
  if (view) view.update(data);
  else state.view = show(main, data, { touch, state: readAddress(location.hash).state, chosen: keep });
}

/** Keep in the address what is shown: of which input, and what was done to it. */
function keep() {
  const { found, view, touched } = state;
  if (found && view) keepAddress(addressOf(view.state, { input: found.map.input, touched }));
}

/** @param {InterventionData[]} touched */
function touch(touched) {
  Object.assign(state, { touched, playback: undefined });
  attend();
}

/** Show the input that stands there, touched as it is; `fresh`: another one, which nothing has been done to. */
function attend({ fresh = false, drawn = false } = {}) {
  if (fresh) Object.assign(state, { touched: [], playback: undefined });
  return doing(async () => {
    const asked = drawn ? { seed: state.seed } : { input: input.value };
    /** @type {Found} */
    const found = await ask("api/attend", { interventions: state.touched, ...asked });
    return () => {
      if (drawn) input.value = found.map.input;
      draw(found);
    };
  }, true);
}

/** Show what the address says: another part of the answer that is there, or another input. */
async function follow() {
  const { input: asked, state: chosen, touched } = readAddress(location.hash);
  const same = asked === null || (asked === state.found?.map.input && !touched?.length && !state.touched.length);
  if (asked !== null && !same) {
    input.value = asked;
    Object.assign(state, { touched: touched ?? [], playback: undefined });
    await attend();
  }
  if (chosen.frame !== undefined && !state.playback) await doing(watchItForm);
  state.view?.choose(chosen);
}

/** What the page says of the subject, and what can be done with it. */
async function introduce() {
  /** @type {About} */
  const about = await ask("api/run");
  return () => {
    Object.assign(state, { task: about.task, examined: about.examined });
    element("task").textContent = about.task;
    const steps = about.step === null ? about.kind : `${about.kind} model, ${about.step.toLocaleString("en")} training steps`;
    element("about").textContent = `${about.summary}; ${steps}`;
    element("draw").hidden = !about.draws;
    element("playback").hidden = !about.snapshots;
    element("accepts").textContent = about.accepts ? `Takes ${about.accepts}` : "";
    const more = [...element("more").querySelectorAll("button")].filter((each) => !each.hidden);
    oneTabStop(more, 0);
    if (readAddress(location.hash).input !== null) follow();
    else if (about.draws) attend({ fresh: true, drawn: true });
  };
}

async function weighHeads() {
  state.importance = await ask("api/importance");
  return () => {
    if (state.found) draw(state.found);
  };
}

async function watchItForm() {
  state.touched = [];
  /** @type {PlaybackData} */
  const playback = await ask("api/playback", { input: input.value });
  return () => {
    state.playback = playback;
    draw({ map: playback.frames[playback.frames.length - 1] });
  };
}

let timer = 0;
input.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => attend({ fresh: true }), TYPING);
});
element("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  attend({ fresh: true });
});
element("draw").addEventListener("click", () => {
  state.seed += 1;
  attend({ fresh: true, drawn: true });
});
element("tour").addEventListener("click", () => tour(element("guide")));
addEventListener("hashchange", follow);
element("importance").addEventListener("click", () => doing(weighHeads));
element("playback").addEventListener("click", () => doing(watchItForm));
// A token in the address has done its work, and is not for whoever reads over one's shoulder.
if (location.search) history.replaceState(null, "", location.pathname);
doing(introduce);

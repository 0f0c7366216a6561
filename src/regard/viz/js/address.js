// The view's state in the page's address: it survives a reload, and a link shows others the same view.

import { MEASURE_NAMES } from "./measures.js";
import { SCALE_NAMES } from "./scale.js";
import { START } from "./state.js";

/** @import { InterventionData } from "./data.js" */
/** @import { State } from "./state.js" */

/** @typedef {{ beam: number, branch: number }} Written how wide the search for the answer is that is shown, and what is looked at in it */
/** @typedef {"importance" | "roles"} Asked a computation that takes a while */

const NUMBERS = ["map", "head", "query", "key", "focus", "frame", "top"];
const SHARES = ["least"];
const LISTS = ["off", "also"];
const SWITCHES = ["words", "change", "mean", "sorted", "sum", "aside", "all"];
/** @type {Asked[]} */
const COMPUTATIONS = ["importance", "roles"];
const MODES_IN_ADDRESS = ["picture", "heatmap", "lines", "arcs", "flow", "table", "overview"];

/**
 * The content of an address; `input`, `touched` and `written` are null if absent.
 *
 * @typedef {object} Addressed
 * @property {Partial<State>} state
 * @property {string | null} input
 * @property {InterventionData[] | null} touched
 * @property {Written | null} written
 * @property {Asked[]} asked
 */

/**
 * The part of an address after "#", with all values that differ from the initial state.
 *
 * @param {Readonly<State>} state
 * @param {{ input?: string, touched?: InterventionData[], written?: Written, asked?: Asked[] }} more
 */
export function formatAddress(state, { input, touched, written, asked } = {}) {
  const parameters = new URLSearchParams();
  if (input !== undefined) parameters.set("input", input);
  for (const [name, value] of Object.entries(state)) {
    const usual = START[/** @type {keyof State} */ (name)];
    if (value !== null && value !== usual) parameters.set(name, String(value));
  }
  if (touched?.length) parameters.set("touched", JSON.stringify(touched));
  if (written) parameters.set("written", `${written.beam},${written.branch}`);
  if (asked?.length) parameters.set("asked", asked.join(","));
  return `#${parameters}`;
}

/**
 * Parses the result of `addressOf`; invalid values are ignored.
 *
 * @param {string} hash
 * @returns {Addressed}
 */
export function readAddress(hash) {
  const parameters = new URLSearchParams(hash.slice(1));
  /** @type {Record<string, unknown>} */
  const state = {};
  for (const [name, value] of parameters) {
    if (NUMBERS.includes(name) && /^\d{1,6}$/.test(value)) state[name] = Number(value);
    else if (SHARES.includes(name) && /^0\.\d{1,4}$/.test(value)) state[name] = Number(value);
    else if (name === "temperature" && /^\d{1,3}(\.\d{1,4})?$/.test(value))
      state[name] = clampTemperature(Number(value));
    else if (LISTS.includes(name) && /^\d{1,6}(,\d{1,6})*$/.test(value)) state[name] = value;
    else if (SWITCHES.includes(name)) state[name] = value === "true";
    else if (name === "beside" && /^(original|(model|input|snapshot)-\d{1,4})$/.test(value)) state[name] = value;
    else if (name === "measure" && MEASURE_NAMES.some((measure) => measure === value)) state[name] = value;
    else if (name === "chart" && ["bars", "matrix"].includes(value)) state[name] = value;
    else if (name === "scale" && SCALE_NAMES.some((scale) => scale === value)) state[name] = value;
    else if (name === "layer" || (name === "mode" && MODES_IN_ADDRESS.includes(value))) state[name] = value;
  }
  const asked = parameters.get("asked")?.split(",") ?? [];
  return {
    state,
    input: parameters.get("input"),
    touched: parseList(parameters.get("touched")),
    written: parseSearch(parameters.get("written")),
    asked: COMPUTATIONS.filter((name) => asked.includes(name)),
  };
}

/**
 * Clamps a temperature to the allowed range.
 *
 * @param {number} value
 */
function clampTemperature(value) {
  return Math.min(Math.max(value, 0.1), 10);
}

/**
 * @param {string | null} text
 * @returns {Written | null}
 */
function parseSearch(text) {
  const match = /^(\d{1,2}),(\d{1,6})$/.exec(text ?? "");
  return match && { beam: Number(match[1]), branch: Number(match[2]) };
}

/** @param {string | null} text */
function parseList(text) {
  try {
    const list = JSON.parse(text ?? "null");
    return Array.isArray(list) ? list : null;
  } catch {
    return null;
  }
}

/**
 * Replaces the address without a new history entry.
 *
 * @param {string} hash
 */
export function replaceAddress(hash) {
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

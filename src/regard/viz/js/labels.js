// Display forms of numbers and tokens.

/** @import { LayerData, MapData, RoleData, ViewData, WorthData } from "./data.js" */

const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu; // control and format characters, line and paragraph separators
const JOINERS = "\u200c\u200d"; // joiners that some scripts and emoji need between characters
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
/** Begins a word, in the labels of pieces as they are shown; in the data it is ▁, which looks like a bar. */
export const WORD = "␣";
const ISOLATE = ["\u2068", "\u2069"];

/** @param {number} share `null` or NaN if it is not finite */
export function percent(share) {
  return Number.isFinite(share) ? `${(100 * share).toFixed(1)}%` : "not finite";
}

/** The name of a head: its number, unless the layer has names. @param {{ names: string[] | null }} layer @param {number} head */
export function headName({ names }, head) {
  return names?.[head] ?? `head ${head}`;
}

/** @param {number} value */
export function signedNumber(value) {
  const size = Math.abs(value);
  if (size < 0.0005) return value === 0 ? "0.000" : `${value < 0 ? "−" : "+"}${size.toPrecision(1)}`;
  return `${value < 0 ? "−" : "+"}${size.toFixed(3)}`;
}

/** A text with the code points of characters that are invisible or change direction. @param {string} text */
export function revealHidden(text) {
  return text.replace(HIDDEN, (hidden, at) => {
    if (hidden === "\n" || hidden === "\t") return hidden;
    if (JOINERS.includes(hidden) && at > 0 && at < text.length - 1) return hidden;
    return `[U+${(hidden.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}]`;
  });
}

/**
 * The label of a token, never empty: outer spaces, tabs, line breaks and starts of words are shown as symbols.
 * @param {string} label
 */
export function tokenLabel(label) {
  if (label === "") return "∅";
  if (/^\p{M}+$/u.test(label)) return `◌${label}`;
  const signs = label.replaceAll("\r\n", "↵").replaceAll("\n", "↵").replaceAll("\t", "⇥");
  const text = revealHidden(signs);
  return text.replaceAll("▁", WORD).replace(/^\s+|\s+$/gu, (blanks) => WORD.repeat(blanks.length));
}

/**
 * Labels as they are read: without the sign that a word begins; a piece that continues a word begins with a dot.
 * @param {string[]} labels results of `tokenLabel` @param {number[][] | null} words pieces of each word, if known
 */
export function plainLabels(labels, words) {
  const later = new Set((words ?? []).flatMap((pieces) => pieces.slice(1)));
  return labels.map((label, index) => {
    if (later.has(index)) return label.startsWith(WORD) ? label : `·${label}`;
    return label.length > 1 && label.startsWith(WORD) ? label.slice(1) : label;
  });
}

/** One token as it is read in a text. @param {string} label */
export function plainToken(label) {
  return plainLabels([tokenLabel(label)], null)[0];
}

/** A label inside a sentence, isolated so that right-to-left text does not reorder what follows. @param {string} label */
export function isolate(label) {
  return RIGHT_TO_LEFT.test(label) ? `${ISOLATE[0]}${label}${ISOLATE[1]}` : label;
}

/**
 * The part of a label that fits, with an ellipsis if it is shortened.
 * @param {string} label @param {number} room
 * @param {(text: string) => number} widthOf in the unit of `room`
 */
export function fitLabel(label, room, widthOf) {
  if (widthOf(label) <= room) return label;
  const letters = [...label];
  /** The first and the last letters: labels often differ in their ends. @param {number} kept */
  const cut = (kept) =>
    `${letters.slice(0, Math.ceil(kept / 2)).join("")}…${letters.slice(letters.length - Math.floor(kept / 2)).join("")}`;
  let [low, high] = [1, letters.length - 1]; // at least one character remains
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (widthOf(cut(middle)) <= room) low = middle;
    else high = middle - 1;
  }
  return cut(low);
}

// Short names of layers: the part in which the layers of a kind differ, usually a number.

/**
 * The short name of each layer, by its name.
 * @param {Pick<LayerData, "name" | "kind">[]} layers @returns {Map<string, string>}
 */
export function shortNames(layers) {
  /** @type {Map<string, string>} */
  const names = new Map();
  for (const kind of new Set(layers.map((layer) => layer.kind))) {
    const alike = layers.filter((layer) => layer.kind === kind);
    const parts = alike.map((layer) => layer.name.split(/[._/]/));
    const same = (/** @type {number} */ place) => parts.every((words) => words[place] === parts[0][place]);
    alike.forEach((layer, index) => {
      const own = parts[index].filter((_, place) => !same(place)).join(".");
      names.set(layer.name, own.length > 0 && own.length <= 8 ? own : String(index));
    });
  }
  return names;
}

/**
 * The short name of each layer, after its kind if the layers are of several kinds: `cross 1`.
 * @param {Pick<LayerData, "name" | "kind">[]} layers @returns {Map<string, string>}
 */
export function namesWithKind(layers) {
  const names = shortNames(layers);
  const several = new Set(layers.map((layer) => layer.kind)).size > 1;
  return several ? new Map(layers.map(({ name, kind }) => [name, `${kind} ${names.get(name)}`])) : names;
}

/**
 * The name of a layer in the page: its title, unless that is the path of a module.
 * @param {Pick<LayerData, "name" | "title" | "kind">} layer @param {Pick<LayerData, "name" | "kind">[]} layers
 */
export function layerTitle(layer, layers) {
  if (layer.title !== layer.name || !/[._/]/.test(layer.name)) return layer.title;
  return `layer ${shortNames(layers).get(layer.name)}`;
}

/**
 * The name of a head in a model: `2.3` for head 3 of layer 2, `cross 2.3` if the layers are of several kinds.
 * @param {Pick<LayerData, "name" | "kind">[]} layers @param {Pick<LayerData, "name"> & { names?: string[] | null }} layer
 * @param {number} head
 */
export function headTag(layers, layer, head) {
  const name = namesWithKind(layers).get(layer.name) ?? layer.name;
  return layer.names ? `${name} ${layer.names[head]}` : `${name}.${head}`;
}

/**
 * The name of a head in words: `layer 2, head 3`, `cross layer 2, head 3`.
 * @param {Pick<LayerData, "name" | "kind">[]} layers @param {Pick<LayerData, "name" | "kind" | "names">} layer
 * @param {number} head
 */
export function headTitle(layers, layer, head) {
  const kind = layers.some((other) => other.kind !== layer.kind) ? `${layer.kind} ` : "";
  return `${kind}layer ${shortNames(layers).get(layer.name)}, ${headName(layer, head)}`;
}

// Titles of the rows and columns of a weight matrix.

const SIDES = {
  encoder: ["inputs (queries)", "inputs (keys)"],
  decoder: ["outputs (queries)", "outputs (keys)"],
  cross: ["outputs (queries)", "inputs (keys)"],
};
const TOKENS = ["tokens (queries)", "tokens (keys)"]; // for text that is read, such as a prompt

/**
 * Titles of rows and columns: tokens for text that the model reads, unless it also writes outputs or answers with
 * numbers.
 * @param {{ map: Pick<MapData, "prediction" | "layers">, layer: Pick<LayerData, "kind" | "written"> }} scene
 */
export function axisTitles({ map, layer }) {
  const [down, across] = SIDES[layer.kind];
  const answers = Array.isArray(map.prediction);
  if (layer.kind === "cross") return [answers || layer.written || map.prediction === null ? down : TOKENS[0], across];
  const outputs = layer.kind === "encoder" ? map.layers.some((layer) => layer.written) : layer.written;
  return answers || outputs ? [down, across] : TOKENS;
}

// Roles of heads over many samples, as text.

/** The role in a few words. @param {RoleData} found */
export function shortRole({ role, strength, reliable }) {
  if (role === null || !strength) return "no role found";
  return `${reliable ? "" : "cannot be told, perhaps "}${role}: ${strength.mean.toFixed(2)}`;
}

/** The role with its confidence interval. @param {RoleData} found */
export function roleSentence({ role, strength, untrained, error, reliable }) {
  if (role === null || !strength) return "Over many samples, no significant role was found for this head.";
  const { mean, low, high } = strength;
  const sure = `${mean.toFixed(2)}, from ${low.toFixed(2)} to ${high.toFixed(2)}`;
  if (role === EVEN_ROLE) return `Over many samples, this head attends uniformly (to other tokens: ${sure}; ${error}).`;
  const scale = "0: uniform attention, 1: this role alone";
  const claim = reliable ? `this head attends to ${role}` : `it cannot be told whether this head attends to ${role}`;
  return `Over many samples, ${claim}: ${sure} (${scale}; before training at most ${untrained.toFixed(2)}; ${error}).`;
}

const EVEN_ROLE = "everything alike";

// Head importance as text: the loss increase when a head is ablated.

/**
 * The importance of a head; undefined if unknown, or if `named` says that the slice is not a head.
 * @param {Pick<ViewData, "importance">} data @param {string} layer @param {number} head @param {unknown} [named]
 */
export function headImportance({ importance }, layer, head, named = null) {
  return named ? undefined : importance?.[layer]?.[head];
}

/** In brackets where 0 is in its interval, as in the terminal. @param {WorthData} found */
export function shortImportance({ added, low, high }) {
  return low !== null && high !== null && low <= 0 && high >= 0 ? `(${signedNumber(added)})` : signedNumber(added);
}

/** With how sure that is. @param {WorthData} found */
export function importanceSentence({ added, low, high }) {
  const sure = low === null || high === null ? "" : `, 95% interval ${signedNumber(low)} to ${signedNumber(high)}`;
  return `Without it, the loss changes by ${signedNumber(added)} (head importance${sure}).`;
}

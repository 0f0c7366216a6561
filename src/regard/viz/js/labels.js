// How numbers and tokens are written.

const SHOWN = 160; // tokens written out at once
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu; // control and format characters, and separators of lines
const JOINERS = "\u200c\u200d"; // which letters of some scripts and parts of pictographs need between them
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
/** Begins a word, in the labels of pieces as they are shown; in the data it is ▁, which looks like a bar. */
export const WORD = "␣";
const ISOLATE = ["\u2068", "\u2069"];

/** @param {number} share `null` or NaN where it is not finite */
export function percent(share) {
  return Number.isFinite(share) ? `${(100 * share).toFixed(1)}%` : "not finite";
}

/**
 * What a head of a layer is called: by its place, unless something else is told.
 *
 * @param {{ names: string[] | null }} layer
 * @param {number} head
 */
export function called({ names }, head) {
  return names?.[head] ?? `head ${head}`;
}

/** @param {number} value */
export function signed(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
}

/**
 * A text in which every character is seen: one that would be invisible, or turn the letters around, is named.
 *
 * @param {string} text
 */
export function legible(text) {
  return text.replace(HIDDEN, (hidden, at) => {
    if (hidden === "\n" || hidden === "\t") return hidden;
    if (JOINERS.includes(hidden) && at > 0 && at < text.length - 1) return hidden;
    return `[U+${(hidden.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}]`;
  });
}

/**
 * The label of a token, never empty: blanks at its ends, tabs, line breaks and the begin of a word are shown as signs.
 *
 * @param {string} label
 */
export function visible(label) {
  if (label === "") return "∅";
  if (/^\p{M}+$/u.test(label)) return `◌${label}`;
  const signs = label.replaceAll("\r\n", "↵").replaceAll("\n", "↵").replaceAll("\t", "⇥");
  const found = legible(signs);
  return found.replaceAll("▁", WORD).replace(/^\s+|\s+$/gu, (blanks) => WORD.repeat(blanks.length));
}

/**
 * A label that may stand in a sentence: one that is read from the right does not turn around what follows.
 *
 * @param {string} label
 */
export function isolated(label) {
  return RIGHT_TO_LEFT.test(label) ? `${ISOLATE[0]}${label}${ISOLATE[1]}` : label;
}

/**
 * As much of a label as there is room for, and the sign of an omission where that is not all of it.
 *
 * @param {string} label
 * @param {number} room
 * @param {(text: string) => number} widthOf in the unit of `room`
 */
export function cut(label, room, widthOf) {
  if (widthOf(label) <= room) return label;
  const letters = [...label];
  let [low, high] = [1, letters.length - 1]; // something always stays
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (widthOf(`${letters.slice(0, middle).join("")}…`) <= room) low = middle;
    else high = middle - 1;
  }
  return `${letters.slice(0, low).join("")}…`;
}

/**
 * Indices of at most `most` of `count` things, around one of them.
 *
 * @param {number} count
 * @param {number} at
 */
export function around(count, at, most = SHOWN) {
  const first = Math.max(0, Math.min(at - Math.floor(most / 2), count - most));
  return Array.from({ length: Math.min(count, most) }, (_, index) => first + index);
}

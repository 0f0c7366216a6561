// Display forms of numbers and tokens.

const SHOWN = 160; // tokens shown at once
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

/**
 * The name of a head: its number, unless the layer has names.
 *
 * @param {{ names: string[] | null }} layer
 * @param {number} head
 */
export function headName({ names }, head) {
  return names?.[head] ?? `head ${head}`;
}

/** @param {number} value */
export function signedNumber(value) {
  const size = Math.abs(value);
  if (size < 0.0005) return value === 0 ? "0.000" : `${value < 0 ? "−" : "+"}${size.toPrecision(1)}`;
  return `${value < 0 ? "−" : "+"}${size.toFixed(3)}`;
}

/**
 * A text with the code points of characters that are invisible or change direction.
 *
 * @param {string} text
 */
export function revealHidden(text) {
  return text.replace(HIDDEN, (hidden, at) => {
    if (hidden === "\n" || hidden === "\t") return hidden;
    if (JOINERS.includes(hidden) && at > 0 && at < text.length - 1) return hidden;
    return `[U+${(hidden.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}]`;
  });
}

/**
 * The label of a token, never empty: outer spaces, tabs, line breaks and starts of words are shown as symbols.
 *
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
 * A label inside a sentence, isolated so that right-to-left text does not reorder what follows.
 *
 * @param {string} label
 */
export function isolate(label) {
  return RIGHT_TO_LEFT.test(label) ? `${ISOLATE[0]}${label}${ISOLATE[1]}` : label;
}

/**
 * The part of a label that fits, with an ellipsis if it is shortened.
 *
 * @param {string} label
 * @param {number} room
 * @param {(text: string) => number} widthOf in the unit of `room`
 */
export function fitLabel(label, room, widthOf) {
  if (widthOf(label) <= room) return label;
  const letters = [...label];
  let [low, high] = [1, letters.length - 1]; // at least one character remains
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (widthOf(`${letters.slice(0, middle).join("")}…`) <= room) low = middle;
    else high = middle - 1;
  }
  return `${letters.slice(0, low).join("")}…`;
}

/**
 * Indices of at most `most` of `count` items around one of them.
 *
 * @param {number} count
 * @param {number} at
 */
export function nearbyIndices(count, at, limit = SHOWN) {
  const first = Math.max(0, Math.min(at - Math.floor(limit / 2), count - limit));
  return Array.from({ length: Math.min(count, limit) }, (_, index) => first + index);
}

// Colours of weights and differences, on light and dark pages.

import { clamp } from "./arithmetic.js";
import { canvasContext, node } from "./dom.js";

/** @typedef {number[]} Colour red, green and blue, 0 to 255 */

/**
 * @typedef {object} Palette
 * @property {boolean} dark
 * @property {Colour} paper
 * @property {string} ink
 * @property {string} line
 * @property {string} mark
 * @property {string} quiet of titles
 * @property {Colour} broken the colour of a weight that is not finite
 * @property {(share: number) => Colour} at the colour of a share from 0 to 1
 * @property {(share: number) => Colour} change the colour of a difference from -1 to 1
 * @property {Uint32Array} table `at` in 256 steps as pixels, then `broken`
 * @property {Uint32Array} changes `change` in 256 steps as pixels, then `broken`
 */

const LIGHT = ["#ffffff", "#eceefc", "#dadef9", "#bdc3f4", "#9ba0ec", "#7b7ae2", "#6056d2", "#4b39bc", "#38249b"];
const DARK = ["#13151f", "#1f2143", "#2d2d69", "#413d94", "#5b55bf", "#7c78db", "#a4a2ec", "#cac9f6", "#ecebfe"];
// Decrease and increase: brown and blue-green differ for colour-blind readers too.
const DECREASE = [166, 97, 26];
const INCREASE = [1, 133, 113];

/** @type {Map<boolean, Palette>} */
const palettes = new Map();

/** The palette for light or dark pages. @param {boolean} light */
export function palette(light) {
  const colours = palettes.get(light) ?? makePalette(light);
  palettes.set(light, colours);
  return colours;
}

/** @param {boolean} light @returns {Palette} */
function makePalette(light) {
  const stops = (light ? LIGHT : DARK).map(parseColour);
  const paper = stops[0];
  const broken = parseColour(light ? "#c2185b" : "#ff6fae");
  /** @param {number} share */
  const at = (share) => {
    if (Number.isNaN(share)) return broken;
    const place = clamp(share, 0, 1) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return blend(stops[low], stops[low + 1], place - low);
  };
  /** @param {number} share */
  const change = (share) =>
    Number.isNaN(share) ? broken : blend(paper, share < 0 ? DECREASE : INCREASE, clamp(Math.abs(share), 0, 1));
  return {
    dark: !light,
    paper,
    ink: light ? "#111111" : "#eeeeee",
    line: light ? "#4b39bc" : "#a4a2ec",
    mark: light ? "#c2410c" : "#fbbf24",
    quiet: light ? "#5f6b7b" : "#aab4c0",
    broken,
    at,
    change,
    table: Uint32Array.from({ length: 257 }, (_, index) => packPixel(at(index < 256 ? index / 255 : NaN))),
    changes: Uint32Array.from({ length: 257 }, (_, index) => packPixel(change(index < 256 ? index / 127.5 - 1 : NaN))),
  };
}

/**
 * The index of a share in a palette's tables, 256 for NaN; `signed`: of a difference from -1 to 1 in `changes`.
 * @param {number} share
 */
export function shade(share, signed = false) {
  return Number.isNaN(share) ? 256 : clamp(Math.round(255 * (signed ? (share + 1) / 2 : share)), 0, 255);
}

/** @param {Colour} colour */
export function cssColour([red, green, blue]) {
  return `rgb(${red}, ${green}, ${blue})`;
}

/** The luminance of a colour, from 0 to 1. @param {Colour} colour */
export function luminance([red, green, blue]) {
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
}

/** Black or white, whichever has more contrast on a colour (WCAG 2.2, relative luminance). @param {Colour} colour */
export function inkOn(colour) {
  const linear = colour.map((value) => (value <= 10 ? value / 3295 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return luminance(linear) * 255 > 0.179 ? "#000" : "#fff";
}

/** @type {Map<string, boolean>} reading a canvas costs 2 ms, and each picture asks three times */
const lightInks = new Map();

/**
 * Whether the page is dark: text is light, in any notebook theme and any notation of colours.
 * @param {Element} element
 */
export function isDark(element) {
  const ink = getComputedStyle(element)?.color ?? ""; // some browsers compute no style in a hidden frame
  let light = lightInks.get(ink);
  if (light === undefined) {
    const context = canvasContext(node("canvas", { width: 1, height: 1 }));
    context.fillStyle = ink;
    context.fillRect(0, 0, 1, 1);
    light = luminance([...context.getImageData(0, 0, 1, 1).data]) > 0.5;
    lightInks.set(ink, light);
  }
  return light;
}

/** @param {Colour} from @param {Colour} to @param {number} share from 0 to 1 */
function blend(from, to, share) {
  return from.map((channel, index) => Math.round(channel + share * (to[index] - channel)));
}

/** A colour as a canvas pixel: alpha, blue, green, red from the highest byte. @param {Colour} colour */
function packPixel([red, green, blue]) {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** @param {string} hex */
function parseColour(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

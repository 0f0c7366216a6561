// The style of the view and its design tokens: the type scale, spacing and colours, in one place.

import STYLE from "./view.css";

/** @type {Record<string, [light: string, dark: string]>} */
const COLOURS = {
  ink: ["#28313c", "#dfe5ec"],
  quiet: ["#5f6b7b", "#aab4c0"],
  edge: ["#868f9b", "#76818e"],
  line: ["#e2e3ee", "#2c3040"],
  paper: ["#ffffff", "#13151f"],
  panel: ["#f6f6fc", "#1a1d2a"],
  down: ["#eeedfc", "#2a2a52"],
  accent: ["#4f43c7", "#a9a6f5"], // selection and the model's weights
  focus: ["#c2410c", "#fbbf24"], // the chosen row, the focus and changes
  error: ["#9f1239", "#fda4af"],
};
// A screen of more than 1,600 pixels has larger text, so that 3,840 pixels are read from the same distance.
const PLAIN = 1600;
const GROWTH = 0.0035; // pixels of text for each further pixel of the screen
const TEXT = 14; // pixels
const SIZES = `--text: calc(${TEXT}px + max(0px, 100vw - ${PLAIN}px) * ${GROWTH}); --small: calc(var(--text) * 0.9);
  --large: calc(var(--text) * 1.14); --gap1: calc(var(--text) * 0.29); --gap2: calc(var(--text) * 0.57);
  --gap3: calc(var(--text) * 0.86); --round: calc(var(--text) * 0.36); --target: max(26px, calc(var(--text) * 1.8));
  --family: system-ui, sans-serif; --mono: ui-monospace, monospace;`;

/** The factor of the text on a large screen. */
export function textFactor() {
  return 1 + (Math.max(0, innerWidth - PLAIN) * GROWTH) / TEXT;
}

/** @param {0 | 1} scheme light or dark */
function colours(scheme) {
  return Object.entries(COLOURS)
    .map(([name, values]) => `--${name}: ${values[scheme]};`)
    .join(" ");
}

/** The tokens as CSS: of a page by the system's scheme, of a view by its own, which a notebook sets. */
const TOKEN_CSS = `:root { ${SIZES} ${colours(0)} }
@media screen and (prefers-color-scheme: dark) { :root { ${colours(1)} } }
.regard-view { ${SIZES} ${colours(0)} }
.regard-view.dark { ${colours(1)} }
`;

/** @type {WeakSet<Document | ShadowRoot>} */
const styled = new WeakSet();

/** Adds the style and the tokens to the document or shadow root of an element. @param {Element} element */
export function addStyle(element) {
  const root = element.getRootNode();
  const home = root instanceof ShadowRoot ? root : document;
  if (styled.has(home)) return;
  styled.add(home);
  const sheets = [TOKEN_CSS, STYLE].map((text) => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(text);
    return sheet;
  });
  home.adoptedStyleSheets = [...home.adoptedStyleSheets, ...sheets];
}

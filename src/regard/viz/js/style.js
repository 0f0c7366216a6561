// CSS of the view and its design tokens, except for colours of weights.

const STYLE = `
.regard-view { font: var(--text)/1.45 var(--family); color: inherit; container: view / inline-size; position: relative; }
.regard-view * { box-sizing: border-box; }
.regard-view.fits { height: 100%; }
.regard-view .probe { position: absolute; width: 0; height: 0; transition: color 1ms; }
.regard-view .unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.regard-view .icon { display: inline-flex; width: 1.05em; height: 1.05em; flex: none; }
.regard-view .icon svg { width: 100%; height: 100%; fill: none; stroke: currentColor; stroke-width: 1.5; stroke-linejoin: round; stroke-linecap: round; }
.regard-view .tabs { display: none; position: sticky; top: 0; z-index: 2; background: var(--paper); border-bottom: 1px solid var(--line); }
.regard-view .tabs button { flex: 1; justify-content: center; border: 0; border-radius: 0; border-bottom: 3px solid transparent; min-height: 40px; }
.regard-view .tabs [aria-selected="true"] { border-bottom-color: var(--accent); font-weight: 600; }
.regard-view .panes { display: grid; grid-template-columns: var(--heads, 14rem) minmax(0, 1fr) clamp(16rem, 24cqw, 30rem); gap: var(--gap4); align-items: start; }
.regard-view.explaining .panes { grid-template-columns: var(--heads, 14rem) minmax(0, 1fr) clamp(24rem, 38cqw, 60rem); }
.regard-view.fits .panes { height: 100%; align-items: stretch; }
.regard-view .pane { min-width: 0; }
.regard-view .pane:is(.heads, .inspector) { background: var(--panel); border-radius: calc(3 * var(--round)); padding: var(--gap3);
  overflow: auto; max-height: 52rem; scrollbar-width: thin; }
.regard-view.fits .pane { max-height: none; overflow: auto; scrollbar-width: thin; }
.regard-view .pane.inspector { container: inspector / inline-size; }
.regard-view .pane.picture { display: flex; flex-direction: column; gap: var(--gap1); }
.regard-view.fits .stage { flex: 1 1 0; min-height: 15rem; overflow: auto; scrollbar-gutter: stable; scrollbar-width: thin; }
.regard-view .stage { min-width: 0; padding: 2px; }
.regard-view h2 { font-size: var(--small); margin: 0 0 var(--gap1); color: var(--quiet); font-weight: 500; }
.regard-view .bar, .regard-view .playback { display: flex; flex-wrap: wrap; gap: var(--gap1) var(--gap3); align-items: center; }
.regard-view .toolbar { display: flex; flex-wrap: wrap; gap: var(--gap1) var(--gap3); align-items: center; }
.regard-view .foot { display: flex; flex-wrap: wrap; gap: var(--gap2); align-items: center; justify-content: space-between; }
.regard-view .foot .bar { gap: var(--gap1) var(--gap2); }
.regard-view .foot button { font-size: var(--small); }
.regard-view .foot .quiet { display: inline-flex; gap: var(--gap1); align-items: center; }
.regard-view label { display: inline-flex; gap: var(--gap1); align-items: center; max-width: 100%; min-height: var(--target); }
.regard-view select { max-width: min(18rem, 60cqw); min-width: 0; text-overflow: ellipsis; }
.regard-view select, .regard-view button, .regard-view input { font: inherit; color: inherit; }
.regard-view button, .regard-view select { background: var(--paper); border: 1px solid var(--line); border-radius: var(--round);
  padding: 0.1em var(--gap2); min-height: var(--target); min-width: var(--target); }
.regard-view button { display: inline-flex; gap: var(--gap1); align-items: center; cursor: pointer; }
.regard-view button:hover { border-color: var(--accent); }
.regard-view option { color: black; background: white; }
.regard-view input[type="range"] { min-height: var(--target); min-width: 0; accent-color: var(--focus); }
.regard-view [aria-pressed="true"]:not(.token), .regard-view [aria-checked="true"] { background: var(--down); color: var(--accent); font-weight: 600; border-color: var(--accent); }
.regard-view :focus-visible { outline: 2px solid var(--focus); outline-offset: 1px; }
.regard-view .choice { display: inline-flex; flex-wrap: wrap; }
.regard-view .choice { background: var(--panel); border-radius: var(--round); }
.regard-view .choice button { border-color: transparent; background: none; padding-inline: 0.4em; }
.regard-view .toolbar .choice { font-size: var(--small); }
.regard-view .panels { display: grid; gap: var(--gap3); align-items: start; }
.regard-view figure { margin: 0; max-width: 100%; display: grid; grid-template-columns: 20px minmax(0, 1fr); align-content: start; }
.regard-view figcaption { font-size: var(--small); display: flex; gap: 0.1rem var(--gap2); align-items: center; flex-wrap: wrap; grid-column: 1 / -1; }
.regard-view .axis { font-size: var(--tiny); white-space: pre-wrap; color: var(--quiet); fill: var(--quiet); }
.regard-view .axis.across { grid-column: 2; }
.regard-view .axis.down { writing-mode: vertical-rl; height: 0; white-space: nowrap; }
.regard-view [role="grid"] { position: relative; width: max-content; max-width: 100%; }
.regard-view .seen { display: block; }
.regard-view .seen > div { width: max-content; cursor: pointer; }
.regard-view .seen svg { display: block; }
.regard-view .seen button { min-height: 24px; padding: 0 0.4rem; }
.regard-view .hint { grid-column: 1 / -1; margin: 0; }
.regard-view .zoom { grid-column: 2; display: flex; gap: var(--gap1); margin-top: 0.2rem; }
.regard-view .zoom button { justify-content: center; }
.regard-view canvas { display: block; max-width: 100%; height: auto; }
.regard-view .said p { margin: 0.1rem 0; max-width: 90ch; }
.regard-view .sentence { font-size: calc(var(--text) * 1.05); line-height: 1.35; }
.regard-view .poster { display: grid; gap: 3px; align-items: start; width: max-content; font-size: var(--tiny); }
.regard-view .poster.sorted { display: flex; flex-wrap: wrap; width: auto; gap: 6px; }
.regard-view .poster .axes { grid-column: 1 / -1; color: var(--quiet); }
.regard-view .poster .kind { grid-column: 1 / -1; color: var(--quiet); margin-top: var(--gap1); }
.regard-view .poster .layer { color: var(--quiet); text-align: end; padding-inline-end: 2px; align-self: center; min-width: 1.4em; max-width: 5em; overflow-wrap: anywhere; }
.regard-view .poster.upright .layer { text-align: center; width: 0; min-width: 100%; padding: 0; }
.regard-view .poster.upright .number { text-align: end; width: auto; min-width: 1.4em; align-self: center; padding-inline-end: 2px; }
.regard-view .poster .number { color: var(--quiet); text-align: center; width: 0; min-width: 100%; }
.regard-view :is(.thumb, .tile) { position: relative; border: 0; padding: 0; min-width: 0; min-height: 0; display: inline-grid; gap: 1px; justify-items: start;
  background: none; border-radius: 4px; text-align: start; font-weight: normal; }
.regard-view .seat { display: block; min-height: 6px; width: 100%; }
.regard-view .seat canvas { border-radius: 4px; }
.regard-view :is(.seat, .before-after canvas) { border-radius: 4px; }
.regard-view .top .seat { outline: 2px solid var(--accent); outline-offset: 0; }
.regard-view .top::before { content: attr(data-rank); position: absolute; top: -3px; right: -3px; min-width: 14px; height: 14px; border-radius: 7px; background: var(--accent); color: var(--paper);
  font-size: 10px; line-height: 14px; font-weight: 700; text-align: center; z-index: 1; }
.regard-view .ranking { grid-column: 1 / -1; width: 0; min-width: 100%; margin: 0 0 var(--gap1); font-size: var(--small); line-height: 1.7; }
.regard-view .ranking button { display: inline; border: 0; padding: 0 2px; background: none; color: var(--accent); font-weight: 600; text-decoration: underline; }
.regard-view .mark { display: flex; gap: var(--gap2); align-items: center; padding: var(--gap1) var(--gap2); border-radius: var(--round); background: light-dark(#fff1e6, #33270a); color: var(--focus); }
.regard-view .pair { display: grid; grid-template-columns: minmax(2em, 6em) minmax(0, 1fr) max-content; gap: var(--gap2); align-items: center; font-size: var(--small); }
.regard-view .pairs p { margin: var(--gap1) 0; }
.regard-view .changes p { font-size: var(--small); }
.regard-view :is(.thumb, .tile):hover .seat { outline: 2px solid var(--accent); }
.regard-view :is(.thumb, .tile).on .seat { outline: 2px solid var(--focus); outline-offset: 0; }
.regard-view :is(.thumb, .tile).changed .seat { opacity: 0.35; }
.regard-view :is(.thumb, .tile).changed::after { content: attr(data-change); position: absolute; inset: 0 auto auto 1px; color: var(--focus); font-weight: 700; line-height: 1; }
.regard-view .measure { display: block; width: 100%; height: 3px; background: var(--line); }
.regard-view .measure i { display: block; height: 100%; background: var(--edge); forced-color-adjust: none; print-color-adjust: exact; }
.regard-view .measure i.unsure { opacity: 0.45; }
.regard-view .thumb canvas { max-width: none; }
.regard-view .thumb .role { text-align: start; white-space: normal; overflow-wrap: anywhere; }
.regard-view .heads .unit { margin: 0; font-size: var(--tiny); }
.regard-view .heads .choice-of-rank { display: flex; flex-wrap: wrap; gap: 0 var(--gap2); align-items: center; }
.regard-view .heads label { font-size: var(--small); white-space: nowrap; }
.regard-view .heads select { max-width: 11rem; }
.regard-view .overview .bar { margin-bottom: var(--gap2); }
.regard-view .overview .poster { gap: 6px; }
.regard-view .chart { overflow-x: auto; }
.regard-view .tokens { display: grid; grid-template-columns: minmax(4em, max-content) minmax(0, 1fr); gap: 0.1rem var(--gap2); font-size: var(--small); }
.regard-view .tokens > .quiet { font-size: var(--tiny); max-width: 7em; line-height: 1.25; padding-top: 0.3em; }
.regard-view .tokens > div { position: relative; max-height: 55px; overflow: auto; scrollbar-width: thin; }
.regard-view.fits .tokens.long > div { max-height: 26px; line-height: 26px; scroll-snap-type: y mandatory; }
.regard-view.fits .tokens.long .token { line-height: 22px; vertical-align: top; scroll-snap-align: start; scroll-margin: 1px; }
.regard-view .token { display: inline-block; padding: 0 3px; margin: 1px 0; border-radius: 3px; border: 1px solid transparent;
  min-width: 24px; min-height: 24px; text-align: center; white-space: pre; unicode-bidi: isolate; print-color-adjust: exact; forced-color-adjust: none; }
.regard-view .tokens > div:nth-of-type(1) .token, .regard-view .answer .token { forced-color-adjust: auto; }
.regard-view .token.aside { background: repeating-linear-gradient(45deg, var(--paper) 0 3px, var(--edge) 3px 4px) !important; color: var(--ink) !important; }
.regard-view .answer .token { min-height: 0; }
.regard-view .step { display: inline-block; print-color-adjust: exact; padding: 0 var(--gap1) 2px; margin: 2px 2px 0 0; background: linear-gradient(var(--accent), var(--accent)) left bottom / var(--share) 3px no-repeat, var(--panel); }
.regard-view .token.on { border-color: currentColor; font-weight: 600; }
.regard-view .token[tabindex] { cursor: pointer; user-select: none; }
.regard-view .card:not(:empty) { margin-bottom: var(--gap4); }
.regard-view output { display: block; min-height: 1.5em; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.regard-view.explaining .row-box { display: none; }
.regard-view .row-box { margin-top: var(--gap2); font-size: var(--small); }
.regard-view .row-list { list-style: none; margin: var(--gap1) 0; padding: 0; }
.regard-view .row-list button { display: grid; grid-template-columns: minmax(0, 7em) minmax(0, 1fr) max-content; gap: var(--gap2); width: 100%; border: 0; background: none;
  text-align: start; padding: 0 var(--gap1); font-variant-numeric: tabular-nums; border-radius: 3px; }
.regard-view .row-list button[aria-pressed="true"] { background: var(--down); }
.regard-view .key-name { overflow: hidden; text-overflow: ellipsis; white-space: pre; unicode-bidi: isolate; }
.regard-view .track i { display: block; height: 0.75em; min-width: 1px; border-radius: 2px; background: var(--accent); forced-color-adjust: none; print-color-adjust: exact; }
.regard-view .track:has(.before) i { height: 0.45em; }
.regard-view .track .before { background: var(--edge); }
.regard-view .answer > code { display: block; max-height: 8em; overflow: auto; scrollbar-width: thin; }
.regard-view .answer { overflow-wrap: anywhere; }
.regard-view .answer code { white-space: pre-wrap; unicode-bidi: isolate; font-family: var(--mono); }
.regard-view .answer .prediction { font-size: var(--large); }
.regard-view .note { font-weight: 600; border-left: 4px solid var(--focus); padding-left: 0.6rem; margin: 0.3rem 0; }
.regard-view .quiet { color: var(--quiet); }
.regard-view .below { position: sticky; bottom: 0; background: var(--paper); padding: 0.1rem 0; z-index: 1; }
.regard-view .legend { display: flex; gap: var(--gap1); align-items: center; font-size: var(--small); margin: 0; white-space: nowrap; }
.regard-view .legend canvas { forced-color-adjust: none; outline: 1px solid var(--line); }
.regard-view .legend .of { overflow: hidden; text-overflow: ellipsis; min-width: 0; }
.regard-view .under { display: flex; flex-wrap: wrap; gap: 0 var(--gap3); align-items: center; font-size: var(--tiny); color: var(--quiet); }
.regard-view .under select { max-width: 11rem; border-color: transparent; background: none; padding-inline: 0; }
.regard-view .under select:hover { border-color: var(--accent); }
.regard-view .choices { display: contents; }
.regard-view .effect { display: flex; gap: var(--gap3); align-items: start; }
.regard-view .effect > figure { flex: none; }
.regard-view .effect.narrow { flex-wrap: wrap; }
.regard-view .before-after { display: flex; flex-wrap: wrap; gap: var(--gap2); }
.regard-view .effect:not(.narrow) .before-after { max-width: 140px; }
.regard-view .before-after figure { display: block; }
.regard-view .together { white-space: nowrap; }
.regard-view :is(figure, .lines, .poster, [role="grid"], .token, button) { scroll-margin-bottom: 2.5rem; }
.regard-view .lines { overflow-x: auto; }
.regard-view .lines > svg { display: block; max-width: 100%; height: auto; }
.regard-view .lines > p { margin: 0.2rem 0; font-size: var(--small); }
.regard-view .key { display: flex; flex-wrap: wrap; gap: 0.2rem var(--gap2); list-style: none; margin: 0 0 0.3rem; padding: 0; font-size: var(--small); }
.regard-view svg text { fill: currentColor; font-size: 12px; }
.regard-view svg text.axis { fill: var(--quiet); font-size: 11px; }
.regard-view .lines > svg text { font-size: calc(var(--text) * 0.86); }
.regard-view svg text.chosen { fill: var(--focus); font-weight: 700; }
.regard-view svg text.on { font-weight: 700; }
.regard-view svg text[tabindex] { cursor: pointer; }
.regard-view .scrolling { overflow-x: auto; }
.regard-view table { border-collapse: collapse; font-size: var(--small); font-variant-numeric: tabular-nums; }
.regard-view caption { text-align: start; }
.regard-view th, .regard-view td { padding: 1px 5px; text-align: end; border-bottom: 1px solid var(--line); font-weight: inherit; }
.regard-view th[scope="col"] { white-space: pre; unicode-bidi: isolate; }
.regard-view .changed { text-decoration: underline 2px; font-weight: 600; }
.regard-view :is(.thumb, .tile).changed { text-decoration: none; }
.regard-view .sum { border-left: 3px solid var(--focus); padding-left: var(--gap3); margin: var(--gap2) 0; }
.regard-view .sum h2 { font-size: var(--large); margin: 0.3rem 0; color: inherit; }
.regard-view .sum h3 { font-size: var(--text); margin: var(--gap3) 0 0.2rem; }
.regard-view .sum h3 .quiet { font-weight: normal; font-size: var(--small); }
.regard-view .columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 0 2rem; }
.regard-view .sum p { margin: 0.2rem 0; }
.regard-view th.part { text-align: start; overflow-wrap: anywhere; }
.regard-view .hinted { font-size: var(--small); }
.regard-view .number { font-variant-numeric: tabular-nums; }
.regard-view .strips { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0.2rem 0.8rem; margin: 0.2rem 0; align-items: center; }
.regard-view .strips dd { margin: 0; display: flex; flex-wrap: wrap; gap: 0 0.8rem; align-items: center; white-space: pre-wrap; font-size: var(--small); }
.regard-view .strips svg { max-width: 100%; }
.regard-view tr.on { font-weight: 700; background: var(--down); }
.regard-view td.bars { min-width: 84px; text-align: start; }
.regard-view td.bars span { display: block; height: 12px; max-width: 100%; forced-color-adjust: none; }
.regard-view dialog { color: var(--ink); background: var(--paper); border: 1px solid var(--edge); border-radius: var(--round); max-width: 34rem; padding: var(--gap4); }
.regard-view dialog::backdrop { background: rgb(0 0 0 / 40%); }
.regard-view dialog h2 { font-size: var(--title); color: inherit; }
.regard-view dialog dl { display: grid; grid-template-columns: max-content 1fr; gap: var(--gap1) var(--gap3); margin: var(--gap2) 0 var(--gap3); }
.regard-view dialog dt { font-family: var(--mono); font-weight: 600; }
.regard-view dialog dd { margin: 0; }
@container inspector (max-width: 500px) {
  .regard-view .strips { grid-template-columns: 1fr; }
}
@container view (max-width: 900px) {
  .regard-view .tabs { display: flex; }
  .regard-view .panes, .regard-view.fits .panes { display: block; height: auto; }
  .regard-view .pane:is(.heads, .inspector) { border: 0; background: none; padding: var(--gap2) 0; max-height: none; }
  .regard-view.fits .pane { overflow: visible; }
  .regard-view.fits .stage { overflow: visible; min-height: 0; flex: none; }
  .regard-view .pane { padding-top: var(--gap1); }
  .regard-view .said { order: 1; }
  .regard-view .under { display: contents; }
  .regard-view .choices { display: flex; flex-wrap: wrap; gap: 0 var(--gap3); align-items: center; font-size: var(--small); }
  .regard-view :is(.below, .choices, .strip, .foot) { order: 2; }
  .regard-view .legend canvas { width: 64px; }
}
@container view (max-width: 480px) {
  .regard-view .toolbar { font-size: var(--small); }
  .regard-view .toolbar .choice .icon { display: none; }
  .regard-view .toolbar select { max-width: 9.5em; }
}
@media print {
  .regard-view { color: black; }
  .regard-view .panes { display: block !important; }
  .regard-view :is(.heads, .tabs, .bar, .zoom, .foot, .row-box, .choices label, .playback :is(button, input), [data-name="Explain this weight"]) { display: none !important; }
  .regard-view .pane { overflow: visible !important; max-height: none !important; border: 0 !important; background: none !important; }
  .regard-view .stage { overflow: visible !important; }
  .regard-view .card:has(.touch, .invitation) { display: none; }
  .regard-view .tokens > div { max-height: none; overflow: visible; }
  .regard-view .below { position: static; }
  .regard-view figure, .regard-view .legend { break-inside: avoid; }
  .regard-view .scrolling { overflow: visible; }
}
@media not print {
  @container view (max-width: 900px) {
    .regard-view:not([data-pane="heads"]) .pane.heads, .regard-view:not([data-pane="picture"]) .pane.picture,
    .regard-view:not([data-pane="inspector"]) .pane.inspector { display: none; }
  }
}
@media (forced-colors: active) {
  .regard-view [aria-pressed="true"], .regard-view [aria-checked="true"], .regard-view .tabs [aria-selected="true"] { outline: 2px solid Highlight; outline-offset: -2px; }
  .regard-view :is(.thumb, .tile).on .seat { outline: 3px solid Highlight; }
  .regard-view .token.on { outline: 2px solid Highlight; }
  .regard-view .measure i { background: Highlight; }
  .regard-view .track i, .regard-view td.bars span { border: 1px solid CanvasText; }
}
`;

/** @type {WeakMap<Document | ShadowRoot, Set<string>>} */
const styledRoots = new WeakMap();

/** @param {Document | ShadowRoot} home @param {string} style */
function addSheet(home, style) {
  const known = styledRoots.get(home) ?? new Set();
  styledRoots.set(home, known);
  if (known.has(style)) return;
  known.add(style);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(style);
  home.adoptedStyleSheets = [...home.adoptedStyleSheets, sheet];
}

/** Adds the design tokens to a page. @param {Document | ShadowRoot} home */
export function addTokens(home) {
  addSheet(home, TOKEN_CSS);
}

/** Adds the style to the document or shadow root of an element. @param {Element} element */
export function addStyle(element) {
  const root = element.getRootNode();
  const home = root instanceof ShadowRoot ? root : document;
  addTokens(home);
  addSheet(home, STYLE);
}

// Design tokens: the type scale, spacing and colours of the view and of the pages around it, in one place.

/** @type {Record<string, [light: string, dark: string]>} */
const COLOURS = {
  ink: ["#28313c", "#dfe5ec"],
  quiet: ["#5f6b7b", "#aab4c0"],
  edge: ["#868f9b", "#76818e"],
  line: ["#e6eaf1", "#2b3540"],
  paper: ["#ffffff", "#12171d"],
  panel: ["#f7f9fc", "#181f27"],
  down: ["#eaf1fb", "#22354a"],
  accent: ["#2a66b0", "#85baf2"], // selection and the model's weights
  focus: ["#c2410c", "#fbbf24"], // the chosen row, the focus and changes
  error: ["#9f1239", "#fda4af"],
};
// A screen of more than 1,600 pixels has larger text, so that 3,840 pixels are read from the same distance.
const PLAIN = 1600;
const GROWTH = 0.0035; // pixels of text for each further pixel of the screen
const TEXT = 14; // pixels
const SIZES = `--text: calc(${TEXT}px + max(0px, 100vw - ${PLAIN}px) * ${GROWTH}); --tiny: calc(var(--text) * 0.79);
  --small: calc(var(--text) * 0.86); --large: calc(var(--text) * 1.14); --title: calc(var(--text) * 1.3);
  --gap1: calc(var(--text) * 0.29); --gap2: calc(var(--text) * 0.57); --gap3: calc(var(--text) * 0.86);
  --gap4: calc(var(--text) * 1.43); --round: calc(var(--text) * 0.36); --target: max(24px, calc(var(--text) * 1.8));
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

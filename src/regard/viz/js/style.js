// CSS of the view, except for colours of weights.

const STYLE = `
.regard-view { --quiet: #4d5560; --edge: #7b838d; --down: #dbe4ee; --paper: #ffffff; --focus: #c2410c;
  font: 14px/1.45 system-ui, sans-serif; container-type: inline-size; position: relative; }
.regard-view.dark { --quiet: #b9c1cb; --edge: #7f8894; --down: #2b3a4b; --paper: #101418; --focus: #fbbf24; }
.regard-view * { box-sizing: border-box; }
.regard-view .probe { position: absolute; width: 0; height: 0; transition: color 1ms; }
.regard-view .unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.regard-view .bar, .regard-view .playback { display: flex; flex-wrap: wrap; gap: 0.4rem 1rem; align-items: center; margin: 0.4rem 0; }
.regard-view label { display: inline-flex; gap: 0.35rem; align-items: center; max-width: 100%; min-height: 24px; }
.regard-view select { max-width: min(24rem, 60cqw); }
.regard-view select, .regard-view button, .regard-view input { font: inherit; color: inherit; }
.regard-view button, .regard-view select { background: transparent; border: 1px solid var(--edge); border-radius: 4px;
  padding: 0.1rem 0.5rem; min-height: 26px; min-width: 26px; }
.regard-view option { color: black; background: white; }
.regard-view input[type="range"] { min-height: 24px; min-width: 0; accent-color: var(--focus); }
.regard-view [aria-pressed="true"]:not(.token), .regard-view [aria-checked="true"] { background: var(--down); font-weight: 600; }
.regard-view :focus-visible { outline: 2px solid var(--focus); outline-offset: 1px; }
.regard-view .choice { display: inline-flex; }
.regard-view .choice button { border-radius: 0; margin-left: -1px; }
.regard-view .choice button:first-child { border-radius: 4px 0 0 4px; margin-left: 0; }
.regard-view .choice button:last-child { border-radius: 0 4px 4px 0; }
.regard-view .panels { display: grid; gap: 1rem; align-items: start; }
.regard-view figure { margin: 0; max-width: 100%; display: grid; grid-template-columns: 20px minmax(0, 1fr); align-content: start; }
.regard-view figcaption { font-size: 12px; display: flex; gap: 0.6rem; align-items: center; flex-wrap: wrap; grid-column: 1 / -1; }
.regard-view .axis { font-size: 11px; white-space: pre-wrap; color: var(--quiet); fill: var(--quiet); }
.regard-view .axis.across { grid-column: 2; }
.regard-view .axis.down { writing-mode: vertical-rl; height: 0; white-space: nowrap; }
.regard-view [role="grid"] { position: relative; width: max-content; max-width: 100%; }
.regard-view .seen { display: block; }
.regard-view .seen > div { width: max-content; cursor: pointer; }
.regard-view .seen svg { display: block; }
.regard-view .seen button { min-height: 24px; padding: 0 0.4rem; }
.regard-view .hint { grid-column: 1 / -1; margin: 0; }
.regard-view .zoom { grid-column: 2; display: flex; gap: 0.3rem; margin-top: 0.3rem; }
.regard-view canvas { display: block; max-width: 100%; height: auto; }
.regard-view .sentence { margin: 0.5rem 0; font-size: 1.1em; max-width: 72ch; }
.regard-view .sentence + .quiet { margin: 0.3rem 0; max-width: 90ch; }
.regard-view .thumb { position: relative; border: 0; padding: 2px; display: inline-grid; gap: 1px; justify-items: start; font-size: 11px; }
.regard-view .thumb canvas { max-width: none; }
.regard-view .thumb .role { max-width: 8.5rem; text-align: start; white-space: normal; overflow-wrap: anywhere; }
.regard-view .grid { display: grid; gap: 0.3rem; }
.regard-view .grid .row { display: flex; flex-wrap: wrap; gap: 0.4rem; align-items: start; }
.regard-view .grid .row > span:first-child { flex: 0 0 min(9.5rem, 100%); font-size: 12px; }
.regard-view .tokens { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0.2rem 0.6rem; margin: 0.5rem 0; font-size: 13px; }
.regard-view .token { display: inline-block; padding: 1px 4px; margin: 1px; border-radius: 3px; border: 1px solid transparent;
  min-width: 24px; min-height: 24px; text-align: center; white-space: pre; unicode-bidi: isolate; print-color-adjust: exact; }
.regard-view .answer .token { min-height: 0; }
.regard-view .token.on { border-color: currentColor; font-weight: 600; }
.regard-view .token[tabindex] { cursor: pointer; user-select: none; }
.regard-view output { display: block; min-height: 1.5em; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.regard-view .answer { overflow-wrap: anywhere; margin: 0.3rem 0; }
.regard-view .answer code { white-space: pre-wrap; font-size: 1.05em; unicode-bidi: isolate; }
.regard-view .note { font-weight: 600; border-left: 4px solid var(--focus); padding-left: 0.6rem; margin: 0.3rem 0; }
.regard-view .quiet { color: var(--quiet); }
.regard-view .below { position: sticky; bottom: 0; background: var(--paper); margin: 0.3rem 0 0; padding: 0.1rem 0; z-index: 1;
  border-top: 1px solid var(--down); }
.regard-view .legend { display: flex; gap: 0.4rem; align-items: center; font-size: 12px; margin: 0; white-space: nowrap; }
.regard-view .legend .of { overflow: hidden; text-overflow: ellipsis; min-width: 0; }
.regard-view .choices { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; align-items: center; margin-bottom: 0.3rem; }
.regard-view .choices > * { font-size: 12px; }
.regard-view .choices :is(label, select) { font-size: 13px; }
.regard-view :is(figure, .lines, .grid, [role="grid"], .token, button) { scroll-margin-bottom: 2.5rem; }
.regard-view .lines { overflow-x: auto; }
.regard-view .lines > svg { display: block; max-width: 100%; height: auto; }
.regard-view .key { display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; list-style: none; margin: 0.3rem 0; padding: 0; font-size: 12px; }
.regard-view svg text { fill: currentColor; font-size: 12px; }
.regard-view svg text.axis { fill: var(--quiet); font-size: 11px; }
.regard-view svg text.on { font-weight: 700; }
.regard-view svg text[tabindex] { cursor: pointer; }
.regard-view .scrolling { overflow-x: auto; margin: 0.4rem 0; }
.regard-view table { border-collapse: collapse; font-size: 12px; font-variant-numeric: tabular-nums; }
.regard-view caption { text-align: start; }
.regard-view th, .regard-view td { padding: 1px 5px; text-align: end; border-bottom: 1px solid var(--down); font-weight: inherit; }
.regard-view th[scope="col"] { white-space: pre; unicode-bidi: isolate; }
.regard-view .changed { text-decoration: underline 2px; font-weight: 600; }
.regard-view .touch { border-left: 3px solid var(--edge); padding-left: 0.6rem; }
.regard-view .sum { border-left: 3px solid var(--focus); padding-left: 0.8rem; margin: 0.5rem 0; }
.regard-view .sum h2 { font-size: 1.1rem; margin: 0.3rem 0; }
.regard-view .sum h3 { font-size: 1rem; margin: 0.9rem 0 0.2rem; }
.regard-view .sum h3 .quiet { font-weight: normal; font-size: 12px; }
.regard-view .columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 0 2rem; }
.regard-view .sum p { margin: 0.2rem 0; }
.regard-view .number { font-variant-numeric: tabular-nums; }
.regard-view .strips { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0.2rem 0.8rem; margin: 0.2rem 0; align-items: center; }
.regard-view .strips dd { margin: 0; display: flex; flex-wrap: wrap; gap: 0 0.8rem; align-items: center; white-space: pre-wrap; font-size: 12px; }
.regard-view .strips svg { max-width: 100%; }
.regard-view tr.on { font-weight: 700; background: var(--down); }
.regard-view td.bars { min-width: 124px; text-align: start; }
.regard-view td.bars span { display: block; height: 12px; }
@container (max-width: 500px) {
  .regard-view .strips { grid-template-columns: 1fr; }
  .regard-view .legend canvas { width: 64px; }
}
@media print {
  .regard-view { color: black; }
  .regard-view .bar, .regard-view .touch, .regard-view .zoom, .regard-view .save, .regard-view .playback :is(button, input) { display: none; }
  .regard-view .below { position: static; }
  .regard-view .choices label { display: none; }
  .regard-view figure, .regard-view .legend { break-inside: avoid; }
  .regard-view .scrolling { overflow: visible; }
}
`;

/** @type {WeakSet<Document | ShadowRoot>} */
const styledRoots = new WeakSet();

/**
 * Adds the style to the document or shadow root of an element.
 *
 * @param {Element} element
 */
export function addStyle(element) {
  const root = element.getRootNode();
  const home = root instanceof ShadowRoot ? root : document;
  if (styledRoots.has(home)) return;
  styledRoots.add(home);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  home.adoptedStyleSheets = [...home.adoptedStyleSheets, sheet];
}

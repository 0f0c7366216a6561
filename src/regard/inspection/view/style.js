// How the view looks, but for colours of weights.

const STYLE = `
.regard-view { font: 14px/1.45 system-ui, sans-serif; container-type: inline-size; }
.regard-view * { box-sizing: border-box; }
.regard-view .bar { display: flex; flex-wrap: wrap; gap: 0.4rem 1rem; align-items: center; margin: 0.4rem 0; }
.regard-view label { display: inline-flex; gap: 0.35rem; align-items: center; max-width: 100%; }
.regard-view select { max-width: min(24rem, 60cqw); }
.regard-view select, .regard-view button, .regard-view input { font: inherit; color: inherit; }
.regard-view button, .regard-view select { background: transparent; border: 1px solid color-mix(in srgb, currentColor 35%, transparent);
  border-radius: 4px; padding: 0.1rem 0.5rem; }
.regard-view option { color: black; background: white; }
.regard-view button[aria-pressed="true"] { background: color-mix(in srgb, currentColor 18%, transparent); font-weight: 600; }
.regard-view :focus-visible { outline: 2px solid #d97706; outline-offset: 1px; }
.regard-view .panels { display: flex; flex-wrap: wrap; gap: 0.75rem; }
.regard-view figure { margin: 0; max-width: 100%; }
.regard-view figcaption { font-size: 12px; display: flex; gap: 0.6rem; align-items: center; flex-wrap: wrap; }
.regard-view canvas { display: block; max-width: 100%; }
.regard-view .thumb { border: 0; padding: 2px; display: inline-grid; gap: 1px; justify-items: start; font-size: 11px; }
.regard-view .grid { display: grid; gap: 0.3rem; overflow-x: auto; }
.regard-view .grid .row { display: flex; gap: 0.2rem; align-items: end; }
.regard-view .grid .row > span:first-child { flex: 0 0 9.5rem; font-size: 12px; }
.regard-view .tokens { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 0.6rem; margin: 0.5rem 0; font-size: 13px; }
.regard-view .tokens > div { max-height: 7.5rem; overflow-y: auto; }
.regard-view .token { display: inline-block; padding: 0 3px; margin: 1px; border-radius: 3px; border: 1px solid transparent;
  min-width: 1.1em; text-align: center; white-space: pre; }
.regard-view .token.on { border-color: currentColor; font-weight: 600; }
.regard-view .token[tabindex] { cursor: pointer; }
.regard-view output { display: block; min-height: 1.5em; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.regard-view .answer { overflow-wrap: anywhere; margin: 0.3rem 0; }
.regard-view .answer code { white-space: pre-wrap; font-size: 1.05em; }
.regard-view .quiet { opacity: 0.75; }
.regard-view .legend { display: inline-flex; gap: 0.4rem; align-items: center; font-size: 12px; }
.regard-view .lines { overflow: auto; max-height: 640px; }
.regard-view svg text { fill: currentColor; font-size: 12px; }
.regard-view svg text.on { font-weight: 700; }
.regard-view svg text[tabindex] { cursor: pointer; }
.regard-view .changed { text-decoration: underline 2px; font-weight: 600; }
.regard-view .touch { border-left: 3px solid color-mix(in srgb, currentColor 35%, transparent); padding-left: 0.6rem; }
@media print { .regard-view { color: black; } .regard-view .bar, .regard-view .touch { display: none; } }
`;

/** @type {WeakSet<Document | ShadowRoot>} */
const styled = new WeakSet();

/**
 * Put the style where the element lives, which may be a shadow root.
 *
 * @param {Element} element
 */
export function adopt(element) {
  const root = element.getRootNode();
  const home = root instanceof ShadowRoot ? root : document;
  if (styled.has(home)) return;
  styled.add(home);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  home.adoptedStyleSheets = [...home.adoptedStyleSheets, sheet];
}

// CSS of the view in narrow rooms, on paper and with forced colours.

export const MEDIA_STYLE = `
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

// Pointer, wheel and keyboard control of a heatmap.

import { clamp } from "./arithmetic.js";

/** @import { Place, Viewport } from "./viewport.js" */

/**
 * The target of gestures.
 *
 * @typedef {object} Target
 * @property {HTMLElement} element receives keyboard events
 * @property {HTMLCanvasElement} canvas
 * @property {Viewport} viewport
 * @property {() => { query: number, key: number | null }} chosen
 * @property {(query: number, key: number | null) => void} onPoint
 * @property {() => void} onLeave
 * @property {(query: number, key: number) => void} onChoose
 * @property {(by: number) => void} onHead selects the next or previous head
 * @property {() => void} draw
 */

const STEPS = new Map([
  ["ArrowUp", [-1, 0]],
  ["ArrowDown", [1, 0]],
  ["ArrowLeft", [0, -1]],
  ["ArrowRight", [0, 1]],
  ["Home", [0, Number.NEGATIVE_INFINITY]],
  ["End", [0, Number.POSITIVE_INFINITY]],
]);

/** @param {Target} target */
export function listen(target) {
  listenToPointer(target);
  listenToWheel(target);
  target.element.addEventListener("keydown", (event) => {
    if (handleKey(event.key, target)) event.preventDefault();
  });
}

/** @param {Target} target */
function listenToPointer(target) {
  const { canvas, viewport } = target;
  /** @type {{ x: number, y: number, row: number, column: number, moved: boolean } | null} */
  let drag = null;
  canvas.addEventListener("pointerdown", ({ offsetX, offsetY, pointerId }) => {
    drag = { x: offsetX, y: offsetY, row: viewport.row, column: viewport.column, moved: false };
    if (viewport.zoomed) canvas.setPointerCapture(pointerId);
  });
  canvas.addEventListener("pointermove", ({ offsetX, offsetY, buttons }) => {
    if (drag && viewport.zoomed && buttons) {
      const { cell, rowCell } = viewport;
      viewport.move(drag.row - (offsetY - drag.y) / rowCell, drag.column - (offsetX - drag.x) / cell);
      drag.moved = true;
      target.draw();
      return;
    }
    const place = viewport.under(offsetX, offsetY);
    if (place) target.onPoint(place.query, place.key);
  });
  canvas.addEventListener("pointerup", ({ offsetX, offsetY }) => {
    const place = viewport.under(offsetX, offsetY);
    const moveSelection = drag?.moved ?? true;
    drag = null;
    if (place && !moveSelection) target.onChoose(place.query, place.key);
  });
  canvas.addEventListener("pointercancel", () => {
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => target.onLeave());
}

/** @param {Target} target */
function listenToWheel({ canvas, viewport, draw }) {
  /**
   * @param {MouseEvent} event
   * @param {number} factor
   */
  const zoom = ({ offsetX, offsetY }, factor) => {
    viewport.zoom(factor, viewport.under(offsetX, offsetY));
    draw();
  };
  canvas.addEventListener("dblclick", (event) => {
    if (viewport.zoomable) zoom(event, 2);
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!viewport.zoomable || !(event.ctrlKey || event.metaKey)) return; // otherwise the page scrolls
      event.preventDefault();
      zoom(event, event.deltaY < 0 ? 1.3 : 1 / 1.3);
    },
    { passive: false },
  );
}

/**
 * Handles a key; returns whether it has a meaning.
 *
 * @param {string} key
 * @param {Target} target
 */
function handleKey(key, { viewport, chosen, onChoose, onHead, draw }) {
  const at = chosen();
  const next = moved(key, at, viewport);
  const place = { query: at.query, key: at.key ?? 0 };
  if (next) onChoose(next.query, next.key);
  else if (key === "[" || key === "]") onHead(key === "[" ? -1 : 1);
  else if (key === "+" || key === "-") viewport.zoom(key === "+" ? 2 : 0.5, place);
  else if (key === "0") viewport.fit();
  else return false;
  draw();
  return true;
}

/**
 * The cell that an arrow key selects, or null. Without a selected key, the first key of the query counts as
 * selected.
 *
 * @param {string} key
 * @param {{ query: number, key: number | null }} from
 * @param {{ rows: number, columns: number }} matrix
 * @returns {Place | null}
 */
export function moved(key, from, { rows, columns }) {
  const step = STEPS.get(key);
  if (!step) return null;
  const [down, right] = from.key === null ? [0, 0] : step;
  const query = clamp(from.query + down, 0, rows - 1);
  return { query, key: clamp((from.key ?? 0) + right, 0, columns - 1) };
}

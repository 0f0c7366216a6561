// A small curve of the loss over training.

import { svg } from "./dom.js";

const CURVE_WIDTH = 180;
const CURVE_HEIGHT = 36;

/**
 * The curve with a mark at a step; the axis is logarithmic, since the loss changes most in early steps.
 *
 * @param {number[][]} losses pairs of step and loss
 * @param {number} step
 */
export function curve(losses, step) {
  const size = { width: CURVE_WIDTH, height: CURVE_HEIGHT };
  const picture = svg("svg", { ...size, role: "img", "aria-label": "loss during training" });
  if (!losses.length) return picture;
  const last = losses[losses.length - 1][0];
  const largest = Math.max(...losses.map(([, loss]) => loss), 1e-9);
  /** @param {number} at */
  const x = (at) => 2 + ((CURVE_WIDTH - 4) * Math.log1p(at)) / Math.log1p(last);
  /** @param {number} loss */
  const y = (loss) => CURVE_HEIGHT - 3 - ((CURVE_HEIGHT - 6) * loss) / largest;
  const points = losses.map(([at, loss]) => `${x(at).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
  picture.append(
    svg("polyline", { points, fill: "none", stroke: "currentColor", "stroke-opacity": 0.7 }),
    svg("line", { x1: x(step), x2: x(step), y1: 0, y2: CURVE_HEIGHT, stroke: "#d97706", "stroke-width": 2 }),
  );
  return picture;
}

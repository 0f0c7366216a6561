// Playback of training: a frame for each snapshot, with a play button and a slider.

import { button, node, svg } from "./dom.js";

/** @import { PlaybackData } from "./data.js" */

const PAUSE = 350; // milliseconds between frames
const WIDTH = 160; // pixels of the loss curve
const HEIGHT = 32;

export class Player {
  /** @param {(frame: number) => void} go shows a frame */
  constructor(go) {
    this.go = go;
    /** @type {number | undefined} */
    this.timer = undefined;
    /** @type {(frame: number | null) => void} say which frame is shown; null: the last */
    this.tell = () => {};
  }

  /** Plays the following frames, from the start after the last one. @param {number} at @param {number} last */
  play(at, last) {
    let frame = at === last ? 0 : at;
    this.timer = window.setInterval(() => {
      if (frame === last) this.stop();
      this.go(frame);
      frame = Math.min(frame + 1, last);
    }, PAUSE);
    this.go(frame);
  }

  stop() {
    window.clearInterval(this.timer);
    this.timer = undefined;
  }

  // Button, slider and loss curve, which stay in place; `tell` updates the position.
  /** @param {PlaybackData} playback */
  bar({ steps, losses, frames }) {
    const last = frames.length - 1;
    const play = button("play", () => {
      if (this.timer === undefined) return this.play(Number(slider.value), last);
      this.stop();
      this.tell(Number(slider.value));
    });
    const named = { "aria-label": "training step", "data-name": "time" };
    const slider = node("input", { type: "range", min: 0, max: last, step: 1, ...named });
    slider.addEventListener("input", () => this.go(Number(slider.value)));
    const step = node("span", { class: "number" });
    const loss = node("span");
    const bar = node("div", { class: "playback" });
    bar.append(play, slider, step, loss);
    this.tell = (frame) => {
      const at = frame ?? last;
      play.textContent = this.timer === undefined ? "play" : "pause";
      slider.value = String(at);
      step.textContent = `after ${steps[at].toLocaleString("en")} training steps`;
      slider.setAttribute("aria-valuetext", step.textContent);
      loss.replaceChildren(curve(losses, steps[at]));
    };
    return bar;
  }
}

/**
 * The curve with a mark at a step; the axis is logarithmic, since the loss changes most in early steps.
 * @param {number[][]} losses pairs of step and loss
 * @param {number} step
 */
export function curve(losses, step) {
  const picture = svg("svg", { width: WIDTH, height: HEIGHT, role: "img", "aria-label": "loss during training" });
  if (!losses.length) return picture;
  const last = losses[losses.length - 1][0];
  const largest = Math.max(...losses.map(([, loss]) => loss), 1e-9);
  /** @param {number} at */
  const x = (at) => 2 + ((WIDTH - 4) * Math.log1p(at)) / Math.log1p(last);
  /** @param {number} loss */
  const y = (loss) => HEIGHT - 3 - ((HEIGHT - 6) * loss) / largest;
  const points = losses.map(([at, loss]) => `${x(at).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
  picture.append(
    svg("polyline", { points, fill: "none", stroke: "currentColor", "stroke-opacity": 0.7 }),
    svg("line", { x1: x(step), x2: x(step), y1: 0, y2: HEIGHT, stroke: "#d97706", "stroke-width": 2 }),
  );
  return picture;
}

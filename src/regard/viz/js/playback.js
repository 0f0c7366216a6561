// Playback of training: a frame for each snapshot, with a play button and a slider.

import { curve } from "./curve.js";
import { button, node } from "./dom.js";

/** @import { PlaybackData } from "./data.js" */

const PAUSE = 350; // milliseconds between frames

export class Player {
  /**
   * @param {(frame: number) => void} go shows a frame
   * @param {() => void} stopped
   */
  constructor(go, stopped) {
    this.go = go;
    this.stopped = stopped;
    /** @type {number | undefined} */
    this.timer = undefined;
    /** @type {(frame: number | null) => void} say which frame is shown; null: the last */
    this.tell = () => {};
  }

  /**
   * Plays the following frames, from the start after the last one.
   *
   * @param {number} at
   * @param {number} last
   */
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

  /**
   * Button, slider and loss curve, which stay in place; `tell` updates the position.
   *
   * @param {PlaybackData} playback
   */
  bar({ steps, losses, frames }) {
    const last = frames.length - 1;
    const play = button("play", () => {
      if (this.timer === undefined) return this.play(Number(slider.value), last);
      this.stop();
      this.stopped();
    });
    const slider = node("input", {
      ...{ type: "range", min: 0, max: last, step: 1 },
      "aria-label": "training step",
      "data-name": "time",
    });
    slider.addEventListener("input", () => this.go(Number(slider.value)));
    const step = node("span", { class: "step" });
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

// How attention formed during training: a frame for each snapshot, to be played or moved through.

import { curve } from "./curve.js";
import { button, node } from "./dom.js";

/** @import { PlaybackData } from "./data.js" */

const PAUSE = 350; // between frames, milliseconds

export class Player {
  /**
   * @param {(frame: number) => void} go show a frame
   * @param {() => void} stopped
   */
  constructor(go, stopped) {
    this.go = go;
    this.stopped = stopped;
    /** @type {number | undefined} */
    this.timer = undefined;
  }

  /**
   * Play the frames that follow, from the beginning where there are none.
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
   * Button, slider and loss.
   *
   * @param {PlaybackData} playback
   * @param {number | null} frame the one that is shown; null: the last
   */
  bar({ steps, losses, frames }, frame) {
    const last = frames.length - 1;
    const at = frame ?? last;
    const play = button(this.timer === undefined ? "play" : "pause", () => {
      if (this.timer === undefined) return this.play(at, last);
      this.stop();
      this.stopped();
    });
    play.dataset.name = "play";
    const slider = node("input", {
      ...{ type: "range", min: 0, max: last, step: 1, value: at },
      "aria-label": "training step",
      "data-name": "time",
    });
    slider.addEventListener("input", () => this.go(Number(slider.value)));
    const step = node("span", { class: "step" }, `after ${steps[at].toLocaleString("en")} training steps`);
    const bar = node("div", { class: "bar" });
    bar.append(play, slider, step, curve(losses, steps[at]));
    return bar;
  }
}

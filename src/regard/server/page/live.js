// The explorer in a page without a server.

import { Explorer } from "./explorer.js";
import { liveData, liveSubject } from "./live-model.js";
import { button, node } from "../../viz/js/dom.js";
import { curve } from "../../viz/js/player.js";
import { shapesOf } from "../../viz/js/live/training.js";
import { Parameters } from "../../viz/js/live/rows.js";

/** @import { QueryConfig } from "../../viz/js/live/attention-layer.js" */
/** @import { LetterTask } from "../../viz/js/live/tasks.js" */
/** @import { Recipe } from "../../viz/js/live/training.js" */
/** @import { Progress, Start } from "../../viz/js/live/worker.js" */

/** What this page computes and what it does not. */
function limits() {
  const { change, training, kind } = liveData;
  return node(
    "section",
    { id: "limits", "aria-label": "Limits of this page" },
    "This page needs no server: its own JavaScript computes the model. " +
      `Parameters are rounded, which changes logits by up to ${change.toExponential(0)}. ` +
      "It has no snapshots of training, no comparison with other runs, no head importance and roles, no weighted values, no search for " +
      `samples${kind === "query" ? "" : ", no beam search (answers are greedy)"}: regard show has them. ${
        training ? "Training here draws other random numbers than regard train." : "It trains no model of this kind."
      }`,
  );
}

const explorer = new Explorer(async (path, body, signal) => {
  signal?.throwIfAborted();
  return liveSubject.ask(path, body);
});
Object.assign(globalThis, { regardModel: liveSubject }); // for tests, and for the console
const { slot } = explorer.view.details;
if (liveData.training) slot.append(trainingPanel(liveData.training, () => explorer.attend()));
slot.append(limits());

// Training in the page: a worker trains, the page draws its loss and its attention.

/**
 * Controls of a training from new random parameters; the page shows the model while it learns.
 * @param {Recipe} recipe
 * @param {() => unknown} redraw answers the input again
 */
function trainingPanel(recipe, redraw) {
  const stored = liveSubject.parameters;
  const task = /** @type {LetterTask} */ (liveData.task);
  const { hidden } = /** @type {QueryConfig} */ (liveData.config);
  const sizes = { letters: task.vocabulary.length, outputs: task.outputs, classes: task.classes, hidden };
  const seed = node("input", { type: "number", id: "seed", min: 0, step: 1, value: 0 });
  const told = node("span", { role: "status" }, "Train this model anew, in this page, from random parameters.");
  const picture = node("span", { class: "loss" });
  const start = button("Train here", () => (worker ? stop() : begin()));
  const back = button("Stored model", restore);
  back.hidden = true;
  /** @type {Worker | null} */
  let worker = null;
  /** @type {number[][]} */
  let losses = [];

  function begin() {
    const text = document.getElementById("worker")?.textContent ?? "";
    const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    worker = new Worker(address);
    losses = [];
    worker.addEventListener("message", ({ data }) => {
      URL.revokeObjectURL(address); // not before the worker has loaded it
      report(data);
    });
    worker.addEventListener("error", () => {
      stop();
      told.textContent = "This browser does not let a page start a worker, so it cannot train.";
    });
    /** @type {Start} */
    const message = { task, hidden, recipe, seed: Math.trunc(Number(seed.value)) || 0 };
    worker.postMessage(message);
    start.textContent = "Stop";
    back.hidden = false;
  }

  /** @param {Progress} progress */
  function report({ step, loss, weights, match }) {
    losses.push([step, loss]);
    const entries = Object.entries(shapesOf(sizes)).map(([name, shape]) => {
      return /** @type {const} */ ([name, { numbers: Float32Array.from(weights[name]), shape }]);
    });
    liveSubject.parameters = new Parameters(new Map(entries));
    picture.replaceChildren(curve(losses, step));
    const tested = match === null ? "" : `, exact match ${(100 * match).toFixed(1)}% of 2,000 new samples`;
    told.textContent = `step ${step} of ${recipe.steps}, loss ${loss.toFixed(4)}${tested}`;
    if (match !== null) stop();
    redraw();
  }

  function stop() {
    worker?.terminate();
    worker = null;
    start.textContent = "Train here";
  }

  function restore() {
    stop();
    liveSubject.parameters = stored;
    back.hidden = true;
    picture.replaceChildren();
    told.textContent = "The stored model of the run.";
    redraw();
  }

  const label = node("label", { for: "seed" }, "Seed");
  const panel = node("section", { id: "training", "aria-label": "Training" });
  panel.append(start, label, seed, back, picture, told);
  return panel;
}

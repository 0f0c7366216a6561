// The run of a lesson: a button that trains it, its progress, and its results.

import { say } from "./course-commands.js";

const lesson = /** @type {HTMLElement} */ (document.querySelector("main[data-lesson]")).dataset.lesson;
const address = `api/lessons/${lesson}`;

/** @template {HTMLElement} T @param {string} name @returns {T} */
const part = (name) => /** @type {T} */ (document.getElementById(name));

const button = /** @type {HTMLButtonElement} */ (part("train"));
const bar = /** @type {HTMLProgressElement} */ (part("progress"));

/** @typedef {{step: number, steps: number, loss: number | null, words: string[] | null, busy: boolean, failed: string}} State */

/** @param {State} run */
function show(run) {
  button.disabled = run.busy;
  button.textContent = run.words ? say("Train it again") : say("Train it");
  bar.hidden = !run.busy;
  bar.value = run.steps ? run.step / run.steps : 0;
  part("state").textContent = describeRun(run);
  part("words").replaceChildren(
    ...(run.words ?? []).map((word) => {
      const item = document.createElement("li");
      item.textContent = word;
      return item;
    }),
  );
  part("explore").hidden = !run.words;
}

/** @param {State} run */
function describeRun(run) {
  if (run.failed) return say("It failed: {0}", run.failed);
  if (!run.busy || run.words) return "";
  if (!run.step) return say("starting …");
  if (run.step >= run.steps) return say("testing …");
  const loss = run.loss === null ? "" : say(", loss {0}", run.loss.toFixed(3));
  return say("step {0} of {1}", run.step, run.steps) + loss;
}

let timer = 0;
let shown = "";

/** @param {string} method */
async function ask(method) {
  clearTimeout(timer);
  const response = await fetch(address, { method }).catch(() => null);
  if (!response?.ok) {
    part("state").textContent = say("The course server has ended: start it again with regard learn");
    shown = "";
    timer = setTimeout(() => ask("GET"), 3000); // until it is started again
    return;
  }
  const text = await response.text();
  const run = /** @type {State} */ (JSON.parse(text));
  if (text !== shown) show(run);
  shown = text;
  clearTimeout(timer);
  timer = setTimeout(() => ask("GET"), run.busy ? 400 : 3000); // a terminal may train the run, too
}

button.addEventListener("click", () => ask("POST"));
ask("GET");

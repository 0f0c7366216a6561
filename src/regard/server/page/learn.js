// The run of a lesson: a button that trains it, its progress, and its results.

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
  button.textContent = run.words ? "Train it again" : "Train it";
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

/** @param {State} found */
function describeRun(found) {
  if (found.failed) return `It failed: ${found.failed}`;
  if (!found.busy || found.words) return "";
  if (!found.step) return "starting …";
  if (found.step >= found.steps) return "testing …";
  return `step ${found.step} of ${found.steps}${found.loss === null ? "" : `, loss ${found.loss.toFixed(3)}`}`;
}

/** @param {string} method */
async function ask(method) {
  const response = await fetch(address, { method }).catch(() => null);
  if (!response?.ok) {
    part("state").textContent = "The course has been ended: start it again with regard learn";
    return;
  }
  const run = /** @type {State} */ (await response.json());
  show(run);
  if (run.busy) setTimeout(() => ask("GET"), 400);
}

button.addEventListener("click", () => ask("POST"));
ask("GET");

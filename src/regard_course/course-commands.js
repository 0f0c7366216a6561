// Buttons that run the commands and the code of a lesson's text on the course's server, and check an exercise.

/** @typedef {{busy: boolean, status: number | null, output: string, picture?: string, file?: string, exists?: boolean}} Process */

/** @type {(text: string, ...values: (string | number)[]) => string} */
export const say = Reflect.get(window, "say"); // notes.js is a classic script, so that it works from a folder

/** @param {string} label @param {() => void} action */
function makeButton(label, action) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "run";
  button.textContent = label;
  button.addEventListener("click", action);
  return button;
}

/** @param {string} address @param {string} method @returns {Promise<Process>} */
async function request(address, method) {
  const response = await fetch(address, { method }).catch(() => null);
  const ended = say("The course server has ended: start it again with regard learn");
  if (!response) return { busy: false, status: 2, output: ended };
  const answer = await response.json();
  return response.ok ? answer : { busy: false, status: 2, output: answer.error };
}

// Show a process in a box with a button that ends it.
/** @param {string} address @param {HTMLElement} box @param {(process: Process) => void} finish */
async function runProcess(address, box, finish = () => {}) {
  const output = document.createElement("pre");
  const stop = makeButton(say("Stop"), () => request(address, "DELETE"));
  box.replaceChildren(stop, output);
  output.setAttribute("role", "status");
  output.textContent = say("running …");
  let process = await request(address, "POST");
  while (process.busy) {
    if (process.output) output.textContent = process.output;
    await new Promise((resolve) => setTimeout(resolve, 400));
    process = await request(address, "GET");
  }
  stop.replaceWith(say("Output"));
  output.textContent = process.output.trim() || (process.status ? say("It was stopped.") : say("It printed nothing."));
  if (process.picture) box.append(Object.assign(new Image(), { src: process.picture, className: "picture" }));
  finish(process);
}

/** @param {Element} place @param {string} address */
function addRunner(place, address) {
  const box = document.createElement("div");
  box.className = "output";
  const button = makeButton(say("Run"), async () => {
    button.disabled = true;
    await runProcess(address, box);
    button.disabled = false;
  });
  if (place.tagName === "PRE") place.after(button, box);
  else {
    place.after(" ", button);
    /** @type {Element} */ (place.closest("p, li")).append(box);
  }
}

/** @param {string} lesson */
async function startLesson(lesson) {
  const address = `api/lessons/${lesson}/commands`;
  const code = document.querySelector("main pre:has(code.language-python)");
  if (code) addRunner(code, `${address}/0`);
  const response = await fetch(address).catch(() => null);
  const commands = /** @type {string[]} */ (response?.ok ? await response.json() : []);
  for (const element of document.querySelectorAll("main p > code, main li > code")) {
    const number = commands.indexOf(element.textContent ?? "");
    if (number >= 0) addRunner(element, `${address}/${number + 1}`);
  }
}

/** @param {string} exercise */
async function startExercise(exercise) {
  const address = `api/exercises/${exercise}`;
  const place = /** @type {HTMLElement} */ (document.getElementById("check"));
  const box = document.createElement("div");
  const show = async () => {
    const { exists, file } = await request(address, "GET");
    const write = makeButton(say("Write {0}", file ?? ""), async () => {
      await request(address, "PUT");
      await show();
    });
    place.replaceChildren(exists ? check : write, box);
  };
  const check = makeButton(say("Check my file"), async () => {
    check.disabled = true;
    await runProcess(address, box, ({ status, output }) => {
      // Status 2: the file was not checked.
      const detail = status === 0 ? "right" : status === 1 && !output.includes(`: ${say("not begun")}`) ? "tried" : "";
      if (detail) document.dispatchEvent(new CustomEvent("regard-check", { detail }));
    });
    check.disabled = false;
  });
  await show();
}

// What a learner has done is also in a file, to which `regard check` in a terminal adds its results.
/** @param {string} lesson */
async function shareProgress(lesson) {
  const response = await fetch("api/progress").catch(() => null);
  if (response?.ok) {
    document.dispatchEvent(new CustomEvent("regard-progress", { detail: await response.json() }));
  }
  const verdict = /** @type {HTMLSelectElement | null} */ (document.getElementById("verdict"));
  verdict?.addEventListener("change", () => {
    if (verdict.value) request(`api/progress/${lesson}/${encodeURIComponent(verdict.value)}`, "PUT");
  });
}

const page = /** @type {HTMLElement} */ (document.querySelector("main")).dataset;
if (page.lesson) startLesson(page.lesson);
else if (page.exercise) startExercise(page.exercise);
shareProgress(page.lesson ?? "");

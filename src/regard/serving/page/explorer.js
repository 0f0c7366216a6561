// The explorer: type an input, see prediction, truth and attention; touch a head or a weight, see what changes.

import { show } from "./attention-view.js";

const TYPING = 150; // milliseconds without a key before an input is sent
const [input, message, main] = ["input", "message", "view"].map((id) => document.getElementById(id));
const state = { touched: [], importance: undefined, playback: undefined, seed: 0, view: undefined, ticket: 0 };

/** Ask the server; an answer that is no success is thrown as its error. */
async function ask(path, body) {
  let response;
  try {
    response = await fetch(path, body === undefined ? {} : {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
    });
  } catch {
    throw new Error("The explorer does not answer: is `regard show` still running?");
  }
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}

/** Do something that asks the server, and say what went wrong; of several at once, only the last one counts. */
async function doing(work) {
  const ticket = state.ticket += 1;
  main.classList.add("waiting");
  try {
    const found = await work();
    if (ticket !== state.ticket) return;
    message.textContent = "";
    found();
  } catch (error) {
    if (ticket === state.ticket) message.textContent = error.message;
  } finally {
    if (ticket === state.ticket) main.classList.remove("waiting");
  }
}

function draw(found) {
  state.found = found;
  const data = { maps: [found.map], original: found.original, importance: state.importance, playback: state.playback,
    interventions: state.touched };
  if (state.view) return state.view.update(data);
  state.view = show(main, data, { touch: (touched) => { Object.assign(state, { touched, playback: undefined }); attend(); } });
}

/** Show the input that stands there, touched as it is; `fresh`: another one, which nothing has been done to. */
function attend({ fresh = false, drawn = false } = {}) {
  if (fresh) Object.assign(state, { touched: [], playback: undefined });
  return doing(async () => {
    const body = { interventions: state.touched };
    if (drawn) body.seed = state.seed; else body.input = input.value;
    const found = await ask("api/attend", body);
    return () => {
      if (drawn) input.value = found.map.input;
      draw(found);
    };
  });
}

let timer;
input.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(() => attend({ fresh: true }), TYPING);
});
document.getElementById("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  attend({ fresh: true });
});
document.getElementById("draw").addEventListener("click", () => {
  state.seed += 1;
  attend({ fresh: true, drawn: true });
});
document.getElementById("importance").addEventListener("click", () => doing(async () => {
  state.importance = await ask("api/importance");
  return () => { if (state.found) draw(state.found); };
}));
document.getElementById("playback").addEventListener("click", () => doing(async () => {
  state.touched = [];
  const playback = await ask("api/playback", { input: input.value });
  return () => {
    state.playback = playback;
    draw({ map: playback.frames.at(-1) });
  };
}));

doing(async () => {
  const about = await ask("api/run");
  return () => {
    document.title = `Regard: ${about.task}`;
    document.getElementById("task").textContent = about.task;
    document.getElementById("about").textContent = `${about.summary}; ${about.kind} model, ${about.step.toLocaleString("en")} training steps`;
    document.getElementById("draw").hidden = !about.draws;
    document.getElementById("playback").hidden = !about.snapshots;
    if (about.draws) attend({ fresh: true, drawn: true });
  };
});

// What a learner wrote and did, kept in this browser: predictions, lessons done, states of exercises. Works
// without a server. A page of the server reports a check with the event "regard-check".

/** @typedef {{predictions: Record<string, string>, verdicts: Record<string, string>, exercises: Record<string, string>}} Notes */

const KEY = "regard-course";
/** @type {Record<string, string>} */
const WORDS = JSON.parse(document.documentElement.dataset.words ?? "{}");

// The text in the language of the page, with values for {0}, {1}, ...
/** @param {string} text @param {(string | number)[]} values @returns {string} */
function say(text, ...values) {
  return (WORDS[text] || text).replace(/\{(\d)\}/g, (_, number) => String(values[number]));
}

/** @returns {Notes} */
function readNotes() {
  const empty = { predictions: {}, verdicts: {}, exercises: {} };
  try {
    return { ...empty, ...JSON.parse(localStorage.getItem(KEY) ?? "{}") };
  } catch {
    return empty; // the browser allows no storage: the pages work without notes
  }
}

/** @param {"predictions" | "verdicts" | "exercises"} kind @param {string} name @param {string} value */
function writeNote(kind, name, value) {
  const notes = readNotes();
  notes[kind][name] = value;
  try {
    localStorage.setItem(KEY, JSON.stringify(notes));
  } catch {
    // see readNotes
  }
}

/** @param {string} id @returns {HTMLElement | null} */
const byId = (id) => document.getElementById(id);

/** @param {string} lesson */
function startLesson(lesson) {
  const area = /** @type {HTMLTextAreaElement} */ (byId("prediction"));
  const verdict = /** @type {HTMLSelectElement} */ (byId("verdict"));
  const comparison = /** @type {HTMLElement} */ (byId("comparison"));
  const words = byId("words");
  const compare = () => {
    const text = area.value.trim();
    // A lesson without a run has no list of results: the answer above is the result.
    comparison.hidden = !text || (words !== null && !words.children.length);
    /** @type {HTMLElement} */ (byId("predicted")).textContent = text;
  };
  area.value = readNotes().predictions[lesson] ?? "";
  verdict.value = readNotes().verdicts[lesson] ?? "";
  area.addEventListener("input", () => {
    writeNote("predictions", lesson, area.value);
    compare();
  });
  verdict.addEventListener("change", () => writeNote("verdicts", lesson, verdict.value));
  if (words) new MutationObserver(compare).observe(words, { childList: true });
  compare();
  for (const link of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("a[data-exercise]"))) {
    if (readNotes().exercises[link.dataset.exercise ?? ""] === "right") link.append(" ✓");
  }
}

/** @param {string} exercise */
function startExercise(exercise) {
  const state = /** @type {HTMLSelectElement} */ (byId("state"));
  const solution = /** @type {HTMLElement} */ (byId("solution"));
  const locked = /** @type {HTMLElement} */ (byId("locked"));
  const show = () => {
    const tried = state.value !== "";
    solution.hidden = !tried;
    locked.hidden = tried;
  };
  state.value = readNotes().exercises[exercise] ?? "";
  state.addEventListener("change", () => {
    writeNote("exercises", exercise, state.value);
    show();
  });
  byId("unlock")?.addEventListener("click", () => {
    solution.hidden = false;
    locked.hidden = true;
  });
  document.addEventListener("regard-check", (event) => {
    state.value = /** @type {CustomEvent<string>} */ (event).detail;
    state.dispatchEvent(new Event("change"));
  });
  show();
}

function startIndex() {
  const notes = readNotes();
  const lessons = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("li[data-lesson]")]);
  const exercises = /** @type {HTMLElement[]} */ ([...document.querySelectorAll("li[data-exercise]")]);
  for (const row of lessons) {
    const name = row.dataset.lesson ?? "";
    const names = (row.dataset.exercises ?? "").split(" ").filter(Boolean);
    const right = names.filter((exercise) => notes.exercises[exercise] === "right").length;
    const parts = [];
    if (notes.verdicts[name]) parts.push(say("✓ done, prediction {0}", say(notes.verdicts[name])));
    else if (notes.predictions[name]?.trim()) parts.push(say("begun"));
    if (right) parts.push(say("{0} of {1} exercises right", right, names.length));
    /** @type {HTMLElement} */ (row.querySelector(".progress")).textContent = parts.join(", ");
  }
  for (const row of exercises) {
    const state = notes.exercises[row.dataset.exercise ?? ""];
    const words = state === "right" ? say("✓ right") : state === "tried" ? say("tried") : "";
    /** @type {HTMLElement} */ (row.querySelector(".progress")).textContent = words;
  }
  const done = lessons.filter((row) => notes.verdicts[row.dataset.lesson ?? ""]).length;
  const right = exercises.filter((row) => notes.exercises[row.dataset.exercise ?? ""] === "right").length;
  /** @type {HTMLElement} */ (byId("progress-of-all")).textContent = say(
    "{0} of {1} lessons done (with a verdict on the prediction), {2} of {3} exercises right.",
    done,
    lessons.length,
    right,
    exercises.length,
  );
}

// What the course's server recorded, sent by course-commands.js. A page opened from a folder has only its notes.
document.addEventListener("regard-progress", (event) => {
  /** @type {{lessons: Record<string, string>, exercises: Record<string, {state: string}>}} */
  const { lessons, exercises } = /** @type {CustomEvent} */ (event).detail;
  for (const [name, verdict] of Object.entries(lessons)) {
    if (!readNotes().verdicts[name]) writeNote("verdicts", name, verdict);
  }
  for (const [name, { state }] of Object.entries(exercises)) {
    if (readNotes().exercises[name] !== "right") writeNote("exercises", name, state);
  }
  const { lesson, exercise } = main.dataset;
  const select = /** @type {HTMLSelectElement | null} */ (byId(lesson ? "verdict" : "state"));
  if (select) {
    select.value = (lesson ? readNotes().verdicts[lesson] : readNotes().exercises[exercise ?? ""]) ?? "";
    select.dispatchEvent(new Event("change"));
  } else startIndex();
});

const main = /** @type {HTMLElement} */ (document.querySelector("main"));
if (main.dataset.lesson) startLesson(main.dataset.lesson);
else if (main.dataset.exercise) startExercise(main.dataset.exercise);
else if (byId("progress-of-all")) startIndex();

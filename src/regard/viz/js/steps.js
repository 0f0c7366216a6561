// The first minute: steps that show a newcomer what can be done; they disappear for good when all are done or closed.

import { button, node } from "./dom.js";

/** @typedef {"look" | "off" | "why"} StepName */

const KEY = "regard-first-steps";
const STEPS = { look: "Click a square to read it", off: "Switch the head off", why: "Ask why it looks there" };

export class FirstSteps {
  /** @param {StepName[]} names steps that this page offers @param {(name: StepName) => void} does what a step says */
  constructor(names, does) {
    this.names = names;
    this.does = does;
    this.done = readDone();
    this.element = node("div", { class: "first", role: "group", "aria-label": "First steps" });
    this.draw();
  }

  /** @param {StepName} name */
  finish(name) {
    if (this.done.includes(name) || !this.names.includes(name)) return;
    this.finishAll([...this.done, name]);
  }

  /** @param {StepName[]} done */
  finishAll(done) {
    this.done = done;
    writeDone(done);
    this.draw();
  }

  draw() {
    const left = this.names.filter((name) => !this.done.includes(name));
    this.element.hidden = !left.length;
    if (!left.length) return this.element.replaceChildren();
    const items = this.names.map((name) => {
      const done = this.done.includes(name);
      const named = { class: done ? "done" : undefined };
      const item = done || name === "look" ? node("span", named) : button("", () => this.does(name));
      item.append(node("b", {}, done ? "✓" : ""), STEPS[name]);
      return item;
    });
    const close = button("×", () => this.finishAll(this.names));
    close.setAttribute("aria-label", "Hide the first steps");
    this.element.replaceChildren(node("strong", {}, "First steps"), close, ...items);
  }
}

/** @returns {StepName[]} */
function readDone() {
  try {
    const done = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(done) ? done : [];
  } catch {
    return []; // the browser allows no storage: the steps are shown again
  }
}

/** @param {StepName[]} done */
function writeDone(done) {
  try {
    localStorage.setItem(KEY, JSON.stringify(done));
  } catch {
    // see readDone
  }
}

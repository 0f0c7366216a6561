// The first minute: steps that show a newcomer what can be done; they disappear for good when all are done or closed.

import { button, node } from "./dom.js";

/** @typedef {"look" | "off" | "why"} StepName */

const KEY = "regard-first-steps";
const STEPS = { look: "Look: click a square", off: "Switch off the head", why: "Ask why" };

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
    this.done.push(name);
    this.draw();
    writeDone(this.done);
  }

  draw() {
    const left = this.names.filter((name) => !this.done.includes(name));
    this.element.hidden = !left.length;
    if (!left.length) return this.element.replaceChildren();
    const items = this.names.map((name, index) => {
      const done = this.done.includes(name);
      const named = { class: done ? "done" : undefined };
      const item = done || name === "look" ? node("span", named) : button("", () => this.does(name));
      item.append(node("b", {}, done ? "✓" : String(index + 1)), ` ${STEPS[name]}`);
      return item;
    });
    const close = button("×", () => {
      this.done = [...this.names];
      writeDone(this.done);
      this.draw();
    });
    close.setAttribute("aria-label", "Hide the first steps");
    this.element.replaceChildren(...items, close);
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

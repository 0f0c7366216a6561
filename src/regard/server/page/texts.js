// The inputs over which importance, roles and samples of a model without data of its own are computed.

import { button, keepFocus, node } from "./js/dom.js";
import { isolate, tokenLabel } from "./js/labels.js";

const ROLES_NEED = 2; // inputs

export class Texts {
  /**
   * @param {HTMLElement} box
   * @param {HTMLElement} opener the button that opens the list
   * @param {{ open: (text: string) => void, typed: () => string, changed: () => void }} actions
   */
  constructor(box, opener, actions) {
    /** @type {string[] | null} null: the model has unseen inputs of its own */
    this.all = null;
    this.origin = "";
    this.noun = "text";
    this.box = box;
    this.opener = opener;
    this.actions = actions;
    opener.addEventListener("click", () => {
      box.hidden = !box.hidden;
      this.draw();
      if (!box.hidden) box.querySelector("button")?.focus();
    });
  }

  /**
   * Shows the inputs of the model that the page begins with.
   *
   * @param {string[] | undefined} texts
   * @param {string} origin where they come from
   * @param {boolean} pictures whether they are images
   */
  begin(texts, origin, pictures) {
    Object.assign(this, { all: texts ?? null, origin, noun: pictures ? "image" : "text" });
    this.draw();
  }

  /** @param {string} text */
  add(text) {
    if (!this.all || !text.trim() || this.all.includes(text)) return;
    this.all.push(text);
    this.changed();
  }

  changed() {
    this.actions.changed();
    this.draw();
  }

  /** What requests send. */
  get body() {
    return { texts: this.all ?? [] };
  }

  /**
   * Why the roles of heads cannot be computed; empty if they can.
   */
  get noRoles() {
    const { all, noun } = this;
    if (!all || all.length >= ROLES_NEED) return "";
    return `Head roles needs ${ROLES_NEED} ${noun}s or more, and the list has ${all.length}: add one in ${noun === "text" ? "Texts" : "Images"}.`;
  }

  draw() {
    const { all, box, opener, noun } = this;
    opener.hidden = !all;
    if (!all) return;
    const label = opener.lastChild ?? opener;
    label.textContent = `${noun === "text" ? "Texts" : "Images"} (${all.length})`;
    opener.setAttribute("aria-expanded", String(!box.hidden));
    if (!box.hidden) keepFocus(box, () => box.replaceChildren(this.list(all)));
  }

  /** @param {string[]} all */
  list(all) {
    const section = node("section", { class: "steps", "aria-label": "Inputs of examinations" });
    const list = node("ul");
    all.forEach((text, index) => {
      const item = node("li");
      const opens = button(isolate(tokenLabel(text)), () => this.actions.open(text));
      const removes = button("Remove", () => {
        all.splice(index, 1);
        this.changed();
      });
      opens.dataset.name = `text-${index}`;
      removes.dataset.name = `remove-${index}`;
      removes.setAttribute("aria-label", `Remove ${text}`);
      item.append(opens, removes);
      list.append(item);
    });
    const bar = node("div", { class: "bar" });
    bar.append(
      ...(this.noun === "text" ? [button("Add the typed input", () => this.add(this.actions.typed()))] : []),
      button("Close", () => this.opener.click()),
    );
    const from = this.origin ? ` The first ones are examples ${this.origin}.` : "";
    const use = `Head importance, Head roles and Top inputs use these ${this.noun}s. Select one to show it.${from}`;
    section.append(node("p", { class: "quiet" }, use), list, bar);
    return section;
  }
}

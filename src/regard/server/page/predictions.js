// The likeliest next tokens, or those at a mask, and writing on: a card of the inspector.

import { cssColour } from "../../viz/js/colours.js";
import { button, checkbox, messageOf, node, oneTabStop, secondaryText, withIcon } from "../../viz/js/dom.js";
import { percent, plainToken, tokenLabel } from "../../viz/js/labels.js";
import { latest } from "../../viz/js/arithmetic.js";
import { attributionGrid, lensTable } from "./logit-pictures.js";

/** @import { InterventionData } from "../../viz/js/data.js" */
/** @import { Attribution, Lens } from "./logit-pictures.js" */
/** @import { View } from "../../viz/js/view.js" */

/**
 * @typedef {object} Token
 * @property {number} id
 * @property {string} token
 * @property {number} probability
 * @property {number} logit
 * @property {number | null} original probability without interventions
 * @property {string | null} text the input with the token written; null if it is no text
 * @property {boolean} same_tokens whether the tokenizer splits that text into the same tokens
 */

/**
 * @typedef {object} Tokens
 * @property {number} position
 * @property {string} at
 * @property {Token[]} tokens
 * @property {number} kept number of tokens that top-k and top-p keep
 * @property {number} kept_share
 * @property {Token | null} drawn
 */

/** @typedef {(path: string, body: object) => Promise<any>} Ask */
/** @typedef {{ input: string, touched: InterventionData[] }} Answered */

export class Predictions {
  /**
   * @param {"next" | "masked"} kind
   * @param {string | null} mask the text of the mask token
   * @param {Ask} ask
   * @param {(text: string, touched: InterventionData[]) => void} write shows another input, with the same changes of the model
   */
  constructor(kind, mask, ask, write) {
    this.kind = kind;
    this.mask = mask;
    this.ask = ask;
    this.write = write;
    this.options = { temperature: 1, top_k: 0, top_p: 1 };
    this.atRow = false; // whether the chosen row is the position
    this.draws = 0;
    /** @type {string[]} the inputs before each written token */
    this.before = [];
    this.written = "";
    /** @type {number | null} token of the attribution; null: closed */
    this.token = null;
    /** @type {Answered | null} */
    this.answered = null;
    /** @type {View | null} */
    this.view = null;
    this.refresh = latest(() => this.request());
    this.list = node("div", { "aria-live": "polite" });
    this.parts = node("div");
    this.lens = node("dialog", { class: "lens", "aria-label": "Logit lens" });
    this.element = node("div", { class: "card predictions" });
    this.element.append(node("h2", {}, kind === "next" ? "Next tokens" : "Tokens at the mask"), this.controls());
    this.element.append(this.list, this.parts, this.lens);
  }

  controls() {
    const bar = node("div", { class: "bar" });
    /** @type {[keyof Predictions["options"], string, Record<string, number>][]} */
    const numbers = [
      ["temperature", "Temperature", { min: 0.1, max: 10, step: 0.1 }],
      ["top_k", "Top-k", { min: 0, step: 1 }],
      ["top_p", "Top-p", { min: 0.05, max: 1, step: 0.05 }],
    ];
    for (const [name, label, limits] of numbers) {
      const field = node("input", { type: "number", "data-name": label, value: this.options[name], ...limits });
      if (name === "top_k") field.title = "0: all tokens";
      field.addEventListener("change", () => {
        if (!field.checkValidity()) return field.reportValidity();
        this.options[name] = field.valueAsNumber;
        this.refresh(undefined);
      });
      const wrapper = node("label", {}, label);
      wrapper.append(field);
      bar.append(wrapper);
    }
    const row = checkbox(this.kind === "next" ? "after the chosen row" : "at the chosen row", false, (on) => {
      this.atRow = on;
      this.refresh(undefined);
    });
    bar.append(row);
    const box = node("details");
    box.append(node("summary", {}, "Sampling"), bar);
    return box;
  }

  /** @param {Answered} answered @param {View} view */
  show(answered, view) {
    this.view = view;
    if (answered.input !== this.written) this.before = [];
    this.written = answered.input;
    const same = this.answered?.input === answered.input && this.answered.touched === answered.touched;
    this.answered = answered;
    view.details.slot.append(this.element);
    if (!same) this.refresh(undefined);
  }

  /** The row that was chosen has changed. */
  rowChanged() {
    if (this.answered && this.position() !== this.asked) this.refresh(undefined);
  }

  /** The position of the chosen row; null: the end or the first mask. */
  position() {
    const scene = this.view?.scene;
    if (!(this.atRow || this.unmasked) || !scene || scene.state.words || scene.layer.square > 1) return null;
    return scene.state.query;
  }

  /** Whether a masked model reads a text without a mask: then the chosen row is the position. */
  get unmasked() {
    return this.kind === "masked" && !(this.mask && this.answered?.input.includes(this.mask));
  }

  /** @param {object} [more] */
  body(more = {}) {
    const { temperature, top_k: topK, top_p: topP } = this.options;
    const limits = { temperature, top_k: topK || null, top_p: topP === 1 ? null : topP };
    return { ...this.question(), position: this.position(), ...limits, ...more };
  }

  question() {
    return { input: this.answered?.input, interventions: this.answered?.touched };
  }

  async request() {
    this.asked = this.position();
    try {
      /** @type {Tokens} */
      const tokens = await this.ask("api/next_tokens", this.body());
      this.list.replaceChildren(...this.rows(tokens));
      await this.showParts(tokens);
    } catch (error) {
      this.list.replaceChildren(node("p", { class: "quiet" }, messageOf(error)));
      this.parts.replaceChildren();
    }
  }

  /** @param {Tokens} found */
  rows(found) {
    const { colours } = /** @type {View} */ (this.view).surface();
    const list = node("ol", { class: "tokens-next" });
    const most = Math.max(...found.tokens.flatMap((token) => [token.probability, token.original ?? 0]), 1e-9);
    for (const token of found.tokens) {
      const item = node("li");
      const now = bar(token.probability / most, cssColour(colours.at(0.65)));
      const bars = node("span", { class: "shares", "aria-hidden": "true" });
      bars.append(now);
      const { original } = token;
      if (original !== null) bars.append(bar(original / most, cssColour(colours.change(-0.6))));
      const changed = original !== null && percent(original) !== percent(token.probability);
      const share = node("span", { class: "share" }, percent(token.probability));
      if (changed) share.append(node("span", { class: "changed" }, ` was ${percent(original)}`));
      item.append(this.writeButton(token), bars, share);
      list.append(item);
    }
    oneTabStop([...list.querySelectorAll("button")], 0);
    const where = this.kind === "next" ? "After" : "At";
    const limited = found.kept_share < 0.99995;
    const kept = `${found.kept.toLocaleString("en")} tokens kept, ${percent(found.kept_share)} together; shares are divided by that.`;
    const lines = [
      secondaryText(`${where} “${plainToken(found.at)}”, position ${found.position}. ${limited ? kept : ""}`),
    ];
    if (this.unmasked) {
      lines.push(
        secondaryText(` No ${this.mask} is in the input: at the chosen row, whose own token the model reads.`),
      );
    }
    if (found.tokens[0]?.original !== null) {
      lines.push(secondaryText("Second bar: without the changes of the model."));
    }
    return [...lines, list, this.actions(found)];
  }

  /** @param {Token} token */
  writeButton(token) {
    const label = this.view?.selection.chosen.spaces ? tokenLabel(token.token) : plainToken(token.token);
    const writing = button(label, () => this.writeOn(token));
    writing.disabled = token.text === null;
    const same = token.same_tokens ? "" : "; the tokenizer splits the longer text into other tokens";
    const verb = this.kind === "next" ? "Write this token and attend again" : "Fill in this token and attend again";
    writing.title = token.text === null ? "This token cannot be written as text here" : `${verb}${same}`;
    return writing;
  }

  /** @param {Token} token */
  writeOn(token) {
    if (token.text === null || !this.answered) return;
    this.before.push(this.answered.input);
    this.written = token.text;
    this.write(token.text, this.answered.touched);
  }

  /** @param {Tokens} found */
  actions(found) {
    const row = node("div", { class: "bar" });
    const draw = withIcon(
      button("Draw one", async () => {
        this.draws += 1;
        /** @type {Tokens} */
        const { drawn } = await this.ask("api/next_tokens", this.body({ count: 1, draw: this.draws }));
        if (drawn?.text) this.writeOn(drawn);
        else draw.title = "The drawn token cannot be written as text here";
      }),
      "dice",
    );
    draw.title = `Draw a token by its probability (seed ${this.draws + 1}) and write it`;
    const undo = withIcon(
      button("Undo writing", () => {
        const text = this.before.pop();
        if (text === undefined || !this.answered) return;
        this.written = text;
        this.write(text, this.answered.touched);
      }),
      "undo",
    );
    undo.disabled = !this.before.length;
    const shown = this.token !== null;
    const parts = button("Logit by head", () => this.choose(shown ? null : found.tokens[0].id, found), shown);
    parts.title = "What each head adds to the logit of a token";
    const lens = button("Logit lens", () => this.openLens());
    lens.title = "What the state after each layer says about the next token";
    row.append(draw, undo, parts, lens);
    return row;
  }

  /** @param {number | null} token @param {Tokens} found */
  choose(token, found) {
    this.token = token;
    this.list.replaceChildren(...this.rows(found));
    return this.showParts(found);
  }

  /** @param {Tokens} found */
  async showParts(found) {
    const { view } = this;
    if (this.token === null || !view) return this.parts.replaceChildren();
    const chosen = found.tokens.find((token) => token.id === this.token) ?? found.tokens[0];
    this.token = chosen.id;
    try {
      const body = { ...this.question(), token: chosen.id, position: found.position };
      /** @type {Attribution} */
      const parts = await this.ask("api/logit_attribution", body);
      const grid = attributionGrid(parts, found.tokens, view, (id) => this.choose(id, found));
      if (this.token === chosen.id) this.parts.replaceChildren(...grid);
    } catch (error) {
      this.parts.replaceChildren(node("p", { class: "quiet" }, messageOf(error)));
    }
  }

  async openLens() {
    const { view, lens } = this;
    if (!view) return;
    const close = button("Close", () => lens.close());
    lens.replaceChildren(node("h2", {}, "Logit lens"), secondaryText("The model is computing …"), close);
    lens.showModal();
    try {
      /** @type {Lens} */
      const found = await this.ask("api/logit_lens", this.question());
      lens.replaceChildren(...lensTable(found, view.surface().colours), close);
    } catch (error) {
      lens.replaceChildren(node("h2", {}, "Logit lens"), node("p", {}, messageOf(error)), close);
    }
    close.focus();
  }
}

/** @param {number} share @param {string} colour */
function bar(share, colour) {
  const element = node("span");
  element.style.width = `${100 * share}%`;
  element.style.background = colour;
  return element;
}

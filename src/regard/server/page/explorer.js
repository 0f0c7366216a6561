// The explorer: type an input, see prediction, truth and attention; change a head or a weight and see the effect.

import { Predictions } from "./predictions.js";
import { searchTree } from "./tree.js";
import { COMPUTATIONS, formatAddress, readAddress, replaceAddress } from "../../viz/js/state.js";
import { button, checkbox, keepFocus, messageOf, node, scrollBox, select, table } from "../../viz/js/dom.js";
import { isolate, revealHidden, tokenLabel } from "../../viz/js/labels.js";
import { latest } from "../../viz/js/arithmetic.js";
import { View } from "../../viz/js/view.js";
import { unpack } from "../../viz/js/matrix.js";

/** @import { Asked, Written } from "../../viz/js/state.js" */
/** @import { BesideData, InterventionData, LayerData, MapData, PlaybackData, RoleData, WorthData } from "../../viz/js/data.js" */
/** @import { Item } from "../../viz/js/dom.js" */
/** @import { Searched } from "./tree.js" */
/** @import { Scene } from "../../viz/js/scene.js" */

/** @typedef {(path: string, body?: object, signal?: AbortSignal) => Promise<any>} Ask a request to the server, or to a model in the page */
/** @typedef {{ map: MapData, original?: MapData, beside?: BesideData[], left_out?: string[], touched?: InterventionData[], values?: boolean, weighed?: { map: MapData, original?: MapData } }} Found the answer to an input, that before it was touched, why some others are not beside it, how it was touched, whether its values were asked for, and its maps with weighted values */

/**
 * The explored model.
 * @typedef {object} About
 * @property {string} task
 * @property {string} title name of the model
 * @property {string} summary
 * @property {string} kind
 * @property {number | null} step null for a model that was not trained here
 * @property {boolean} draws whether it can draw inputs
 * @property {boolean} writes whether it generates its answer token by token
 * @property {"next" | "masked" | null} predicts which tokens a language model predicts
 * @property {string | null} mask the text of its mask token
 * @property {boolean} [pictures] whether its inputs are images
 * @property {boolean} snapshots whether it has snapshots of its training
 * @property {string | null} [history] the run that it started from, and its earlier schedules
 * @property {string} [accepts] description of accepted inputs, if they are limited
 * @property {string[]} [without] buttons of what cannot be computed
 * @property {string[]} [texts] inputs of a model that has no unseen ones
 * @property {string} [origin_of_texts] where they come from, if they are examples
 * @property {[string, string] | null} [back] title and address of the page that links here
 * @property {Record<string, string[]>} [examined] findings of the examination of each head
 * @property {Record<string, WorthData[]> | null} [importance] importance of each head from the examination
 * @property {Record<string, RoleData[]>} [roles] role of each head from the examination
 */

const WORK = 300; // milliseconds after which the page says that the model is computing
const TYPING = 150; // milliseconds without a keystroke before an input is sent
const AHEAD = 90_000; // weights of a head; layers of more are requested when they are needed
const PROGRESS = 400; // milliseconds between progress requests
const LARGEST_IMAGE = 8_000_000; // bytes of an image
const CHUNK = 8192; // bytes converted to characters at once
const ROLES_NEED = 2; // inputs
const EMPTY =
  "Type an input above and press Enter. This page then shows the model's output and what each head attends to.";
const TOO_LONG = "the input is too long";

/** @param {string} id */
function element(id) {
  const item = document.getElementById(id);
  if (!item) throw new Error(`the page has no element ${id}`);
  return item;
}

/** The page of a model. */
export class Explorer {
  /** @param {Ask} ask */
  constructor(ask) {
    this.ask = ask;
    this.input = /** @type {HTMLInputElement} */ (element("input"));
    this.message = element("message");
    this.main = element("view");
    /** @type {About | null} */
    this.about = null;
    /** @type {InterventionData[]} */
    this.touched = [];
    /** @type {Partial<Record<Asked, { control: AbortController, text: string }>>} running computations */
    this.working = {};
    /** @type {Record<string, WorthData[]> | undefined} */
    this.importance = undefined;
    /** @type {Record<string, RoleData[]> | undefined} */
    this.roles = undefined;
    /** @type {PlaybackData | undefined} */
    this.playback = undefined;
    /** @type {Found | null} */
    this.found = null;
    /** @type {Written | undefined} the displayed search */
    this.written = undefined;
    /** @type {Predictions | null} */
    this.predictions = null;
    this.weighed = false; // whether weights are multiplied by the norms of their values
    this.noValues = ""; // why that cannot be done
    this.fetching = false; // whether the weights of layers were requested
    this.seed = 0;
    this.ticket = 0; // identifies the latest request
    /** @type {string | null} the typed input that is answered or asked for, without interventions */
    this.shownText = null;
    /** @type {string[] | null} inputs of a model that has no unseen ones */
    this.texts = null;
    /** While a weight is dragged, one question is under way at a time, and the last one is always answered. */
    this.answerAgain = latest(() => this.attend());
    /** @type {View} */
    this.view = new View(this.main, {
      fits: true,
      empty: EMPTY,
      state: readAddress(location.hash).state,
      tools: () => this.tools(),
      touch: (touched) => {
        Object.assign(this, { touched, playback: undefined, shownText: null });
        this.answerAgain(undefined);
      },
      row: (which) => this.ask("api/row", { ...which, ...this.question() }),
      exact: async ({ layer, head, query }) =>
        (await this.ask("api/row", { layer, head, step: query, ...this.question() })).weights,
      why: ({ layer, head, output, key }) => this.ask("api/why", { layer, head, output, key, ...this.question() }),
      explain: (which) => this.ask("api/explain", { ...which, ...this.question() }),
      chosen: () => {
        this.updateAddress();
        this.showWholeLayers();
        this.predictions?.rowChanged();
      },
    });
    this.view.slot.append(element("ask"));
    this.view.slot.parentElement?.after(element("lines"));
    this.view.details.element.append(element("about"));
    this.listen();
    // The token in the address is now in a cookie, and is removed so that nobody copies it from the screen.
    if (location.search) history.replaceState(null, "", location.pathname + location.hash);
    this.run(() => this.showSubject());
  }

  listen() {
    const { input } = this;
    let timer = 0;
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.attend({ fresh: true }), TYPING);
    });
    element("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      clearTimeout(timer);
      if (this.shownText !== input.value) this.attend({ fresh: true }); // typing has asked already
    });
    element("picture").addEventListener("change", () => this.run(() => this.sendPicture(), true));
    element("draw").addEventListener("click", () => {
      this.seed += 1;
      this.attend({ fresh: true, drawn: true });
    });
    addEventListener("hashchange", () => this.followAddress());
    document.addEventListener("keydown", (event) => {
      if (event.target === document.body) this.view.pressed(event);
    });
  }

  question() {
    return { input: this.found?.map.input, interventions: this.touched };
  }

  /**
   * Runs work that sends requests and displays its errors; of concurrent runs only the last one counts.
   * @param {() => Promise<() => void>} work resolves to a function that displays the response
   * @param {boolean} [answers] whether it answers an input: if that is rejected, the old answer is dimmed
   */
  async run(work, answers = false) {
    this.ticket += 1;
    const { ticket, message } = this;
    const slow = setTimeout(() => {
      if (ticket === this.ticket) element("work").textContent = "The model is computing …";
    }, WORK);
    try {
      const finish = await work();
      if (ticket !== this.ticket) return;
      message.textContent = "";
      if (answers) this.markRejected(false);
      finish();
    } catch (error) {
      if (ticket !== this.ticket) return;
      message.textContent = messageOf(error);
      if (!answers) return;
      this.shownText = null;
      this.markRejected(true);
      element("note").textContent = ""; // it belongs to the old input
    } finally {
      clearTimeout(slow);
      if (ticket === this.ticket) element("work").textContent = "";
    }
  }

  /** @param {boolean} on whether what is shown belongs to another input than that which stands there */
  markRejected(on) {
    const work = /** @type {HTMLElement} */ (this.view.stage.element.closest(".work"));
    work.classList.toggle("refused", on);
    work.inert = on;
    this.input.setAttribute("aria-invalid", String(on));
  }

  /** @param {Found} answered */
  draw(answered) {
    this.found = answered;
    if (this.weighed && answered.values === undefined) return this.weigh(answered);
    const { map, original } = this.weighed && answered.weighed ? answered.weighed : answered;
    const { importance, roles, playback, touched, view } = this;
    const notes = [map.note, ...(answered.left_out ?? [])].filter(Boolean);
    element("note").textContent = notes.map((note) => `Note: ${note}`).join(" ");
    this.input.title = answered.map.input; // where the field is too narrow
    document.title = `${this.about?.title}: ${revealHidden(answered.map.input)} · Regard`;
    view.update({
      ...{ maps: [map], original, importance, roles, playback, interventions: touched },
      examined: this.about?.examined,
      beside: this.weighed ? undefined : answered.beside, // their values are not known
      behind: answered.touched !== undefined && answered.touched !== touched,
    });
    this.predictions?.show({ input: answered.map.input, touched }, view);
  }

  /** Requests the weights that are in view, if only thumbnails of them were sent; then those of small layers one by one. */
  async showWholeLayers() {
    const { found, view } = this;
    const scene = view?.scene;
    if (!found || !scene || this.playback || this.fetching) return;
    const shown = neededLayers(scene);
    const missing = thumbnails(found.map.layers.filter(({ name }) => shown.includes(name)));
    if (shown.length && !missing.length) return this.draw(found);
    const small = found.map.layers.filter((each) => each.queries.length * each.keys.length < AHEAD);
    const layers = missing.length ? missing : thumbnails(small).slice(0, 1);
    if (!layers.length) return;
    this.fetching = true;
    const whole = await this.wholeLayers(found, layers).catch((error) => {
      this.message.textContent = messageOf(error);
    });
    this.fetching = false;
    for (const layer of whole?.map.layers ?? []) view.weights.of(layer, scene.state); // now, not during the next click
    if (this.found === found && whole) this.found = { ...found, ...whole };
    if (this.found !== found) this.showWholeLayers();
  }

  /** @param {Found} found @param {string[]} layers */
  async wholeLayers({ map, original, touched = [] }, layers) {
    const whole = await this.ask("api/layers", { input: map.input, interventions: touched, layers });
    return { map: withLayers(map, whole.map), original: original && withLayers(original, whole.original) };
  }

  /** The entries of the menu, with the reasons why some cannot be used now. @returns {Item[]} */
  tools() {
    const { about, found } = this;
    if (!about) return [];
    const map = found?.map;
    const none = map && !map.layers.length ? "this model has no attention" : "";
    const first = map ? "" : "show an input first";
    const unknown = this.texts || about.draws ? "" : "no unseen inputs are known: the text of this run is not here";
    const few =
      this.texts && this.texts.length < ROLES_NEED ? `needs ${ROLES_NEED} inputs or more: add one in “Inputs”` : "";
    const long = map && isLong(map) ? TOO_LONG : this.noValues;
    const lacking = none || unknown;
    const untold = lacking || (this.texts?.length === 0 ? first : "");
    const inputs = this.texts && `Inputs (${this.texts.length})`;
    const valued = "weights times norms of values (Kobayashi et al. 2020)";
    const best = "inputs with the largest weights of this head";
    /** @param {string | false | null} label @param {string} hint @param {string} reason @param {() => unknown} does @param {boolean} [on] @returns {Item | false} */
    const tool = (label, hint, reason, does, on) => !!label && { label, hint, reason, does, on };
    /** @type {Record<string, Item | false>} */
    const items = {
      importance: this.computation("importance", "Head importance", "the loss increase without each head", untold),
      roles: this.computation("roles", "Head roles", "what each head attends to over many inputs", lacking || few),
      search: tool("Top inputs", best, lacking || first, () => this.findSamples()),
      texts: tool(inputs, "over which these are computed", "", () => this.showTexts()),
      tree: tool(about.writes && "Step by step", "the search for the output, token by token", first, () =>
        this.run(() => this.showSearch()),
      ),
      playback: tool(about.snapshots && "Play training", "the attention at each stored training step", first, () =>
        this.run(() => this.showPlayback()),
      ),
      values: tool("Value-weighted", valued, none || first || long, () => this.toggleWeighed(), this.weighed),
    };
    return Object.entries(items).flatMap(([name, item]) => (item && !about.without?.includes(name) ? [item] : []));
  }

  /** @param {Asked} name @param {string} label @param {string} hint @param {string} reason @returns {Item} */
  computation(name, label, hint, reason) {
    const working = this.working[name];
    if (working) return { label: `Stop: ${label}`, hint: working.text, does: () => working.control.abort() };
    return { label, hint, reason, does: () => this.compute(name) };
  }

  /** @param {string} text */
  showInput(text) {
    this.input.value = text;
    return this.attend({ fresh: true });
  }

  toggleWeighed() {
    this.weighed = !this.weighed;
    if (this.found) this.draw(this.found);
  }

  // Shows an answer with weighted values; if they are not known, the page says why.
  /** @param {Found} answered */
  weigh(answered) {
    const { input: text } = answered.map;
    const interventions = answered.touched ?? [];
    return this.run(async () => {
      let reason = "";
      try {
        if (isLong(answered.map)) throw new Error(`Value-weighted: ${TOO_LONG}.`);
        const layers = thumbnails(answered.map.layers);
        if (layers.length) Object.assign(answered, await this.wholeLayers(answered, layers));
        const { map, original } = answered;
        /** @type {ValueNorms[]} */
        const [norms, norms0] = [
          await this.ask("api/value_norms", { input: text, interventions }),
          original && (await this.ask("api/value_norms", { input: text })),
        ];
        reason = missingValues(map, norms);
        if (!reason)
          answered.weighed = {
            map: weighValues(map, norms),
            original: original && norms0 && weighValues(original, norms0),
          };
      } catch (error) {
        reason = messageOf(error);
      }
      return () => {
        answered.values = true;
        this.noValues = reason;
        if (reason) this.weighed = false;
        if (answered === this.found) this.draw(answered);
        this.message.textContent = reason;
      };
    });
  }

  /** Keep in the address what is shown: of which input, and what was done to it. */
  updateAddress() {
    const { found, view, touched, written } = this;
    if (!found || !view) return;
    const asked = COMPUTATIONS.filter((name) => this.isComputed(name) || this.working[name]);
    const hash = formatAddress(view.selection.chosen, { input: found.map.input, touched, written, asked });
    const other = readAddress(location.hash).input;
    if (other !== null && other !== found.map.input) history.pushState(null, "", hash);
    else replaceAddress(hash);
  }

  /** @param {Asked} name */
  isComputed(name) {
    return Object.keys(this[name] ?? {}).length > 0;
  }

  /** Show the input that stands there, touched as it is; `fresh`: another one, which nothing has been done to. */
  attend({ fresh = false, drawn = false } = {}) {
    if (fresh) Object.assign(this, { touched: [], playback: undefined });
    this.shownText = fresh && !drawn ? this.input.value : null;
    if (this.written) this.view.details.closeTool(); // it belongs to another answer
    this.written = undefined;
    return this.run(async () => {
      const asked = drawn ? { seed: this.seed } : { input: this.input.value };
      const { touched } = this;
      /** @type {Found} */
      const response = await this.ask("api/attend", { interventions: touched, ...asked });
      response.touched = touched;
      return () => {
        if (drawn) this.input.value = response.map.input;
        this.draw(response);
      };
    }, true);
  }

  /** Show what the address says: another part of the answer that is there, or another input. */
  async followAddress() {
    const { input: text, state: chosen, touched, written, asked } = readAddress(location.hash);
    const { found, touched: before } = this;
    const shown = text === found?.map.input && !touched?.length && !before.length && (written || !this.written);
    if (text !== null && !shown) {
      this.input.value = text;
      Object.assign(this, { touched: touched ?? [], playback: undefined });
      await this.attend();
    }
    if (chosen.frame !== undefined && !this.playback) await this.run(() => this.showPlayback());
    if (written) await this.run(() => this.showSearch(written.beam, written.branch));
    this.view.choose({ key: null, ...chosen });
    for (const name of asked) if (!this.isComputed(name) && !this.working[name]) this.compute(name);
  }

  /** What the page says of the subject, and what can be done with it. */
  async showSubject() {
    /** @type {About} */
    const about = await this.ask("api/run");
    return async () => {
      this.about = about;
      if (about.step === null) this.view.details.sum = undefined; // the steps of a model not trained here are not known
      Object.assign(this, {
        importance: about.importance ?? undefined,
        roles: about.roles,
        texts: about.texts ?? null,
      });
      element("task").textContent = about.title;
      element("task").title = about.title;
      element("kind").textContent = about.step === null ? about.kind : about.summary.split(" (")[0];
      element("kind").title = element("kind").textContent ?? "";
      const past = about.history ? ` (${about.history})` : "";
      const summary =
        about.step === null
          ? `${about.kind}: ${about.summary.replace(/^an? /, "")}`
          : `${about.summary}; ${about.kind} model, ${about.step.toLocaleString("en")} training steps${past}`;
      const accepts = about.accepts && about.accepts !== "a text" ? ` Accepts ${about.accepts}.` : "";
      const examples = about.origin_of_texts
        ? ` Example texts ${about.origin_of_texts.replace("of Regard's own", "by Regard")}.`
        : "";
      element("about").textContent = `${summary}.${accepts}${examples}`;
      const back = /** @type {HTMLAnchorElement} */ (element("back"));
      back.hidden = !about.back;
      [back.textContent, back.href] = about.back ?? ["", ""];
      element("draw").hidden = !about.draws;
      element("file").hidden = !about.pictures;
      this.input.readOnly = about.pictures ?? false;
      if (about.predicts) {
        this.predictions = new Predictions(about.predicts, about.mask, this.ask, async (text, touched) => {
          this.input.value = text;
          this.touched = touched;
          await this.attend();
          if (about.predicts === "next") this.view.choose({ query: Number.MAX_SAFE_INTEGER, key: null });
        });
      }
      if (readAddress(location.hash).input !== null) await this.followAddress();
      else if (about.draws) await this.attend({ fresh: true, drawn: true });
      else if (about.texts?.length) await this.showInput(about.texts[0]);
      if (document.activeElement === document.body) {
        this.input.focus({ preventScroll: true });
        this.input.setSelectionRange(this.input.value.length, this.input.value.length);
      }
    };
  }

  /** Runs a long computation beside other requests; the menu can stop it. @param {Asked} name */
  async compute(name) {
    const control = new AbortController();
    const working = { control, text: "running" };
    this.working[name] = working;
    const said = name === "importance" ? "Head importance" : "Head roles";
    element("work").textContent = `${said} …`;
    const watch = setInterval(async () => {
      const progress = (await this.ask("api/progress").catch(() => ({})))[name];
      if (this.working[name] !== working || !progress) return;
      working.text = `${progress[0]} of ${progress[1]}`;
      element("work").textContent = `${said}: ${working.text}`;
      this.view.analyse?.refresh();
    }, PROGRESS);
    try {
      this[name] = await this.ask(`api/${name}`, { texts: this.texts ?? [] }, control.signal);
      if (this.found) this.draw(this.found);
      this.view.choose({ measure: name === "roles" ? "role" : "importance" });
    } catch (error) {
      if (!control.signal.aborted) this.message.textContent = messageOf(error);
    } finally {
      clearInterval(watch);
      this.working[name] = undefined;
      element("work").textContent = "";
      this.updateAddress();
    }
  }

  // Shows the search for the answer; `beam`: its width, `first`: the selected branch.
  /** @param {number} [beam] @param {number} [first] */
  async showSearch(beam, first) {
    /** @type {Searched} */
    const response = await this.ask("api/tree", {
      input: this.input.value,
      interventions: this.touched,
      beam: beam ?? null,
    });
    return () => {
      /** @param {number} branch */
      const choose = (branch) => {
        this.written = { beam: response.tree.beam, branch };
        this.draw({ map: response.maps[response.shown[branch]] });
        this.view.choose({ query: response.tree.branches[branch].step, key: null });
      };
      const closed = () => this.attend();
      const content = searchTree(response, first, choose, (width) => this.run(() => this.showSearch(width)));
      this.view.openTool("Search for the answer", content, { wide: true, closed });
    };
  }

  /** Find unseen inputs which the head in view weighs most. */
  findSamples() {
    const { scene } = this.view;
    if (!scene) return;
    const { layer, state } = scene;
    const token = state.key === null ? null : (layer.keys[state.key] ?? null);
    const tokens = [...new Set(layer.keys)].sort();
    /** @param {Wanted} wanted */
    const search = (wanted) =>
      this.run(async () => {
        const found = await this.ask("api/samples", { ...wanted, texts: this.texts ?? [] });
        /** @param {Sample} sample */
        const open = async ({ input: text, query, key }) => {
          await this.showInput(text);
          this.view.choose({ layer: wanted.layer, head: wanted.head, all: false, query, key, words: false });
        };
        return () => {
          const title = `Inputs with the largest weights of head ${found.head} of ${found.layer}`;
          this.view.openTool(title, sampleList(found, wanted, tokens, open, search), { wide: true });
        };
      });
    return search({ layer: layer.name, head: state.head, token, wrong_first: false });
  }

  /** The inputs over which examinations of a model without data of its own are computed. */
  showTexts() {
    const all = this.texts ?? [];
    const box = node("div", { class: "texts" });
    const changed = () => {
      Object.assign(this, { importance: undefined, roles: undefined }); // they were of other inputs
      keepFocus(box, fill);
      if (this.found) this.draw(this.found);
    };
    const fill = () => {
      const list = node("ul");
      all.forEach((text, index) => {
        const item = node("li");
        const opens = button(isolate(tokenLabel(text)), () => this.showInput(text));
        const removes = button("Remove", () => {
          all.splice(index, 1);
          changed();
        });
        opens.dataset.name = `text-${index}`;
        removes.dataset.name = `remove-${index}`;
        removes.setAttribute("aria-label", `Remove ${text}`);
        item.append(opens, removes);
        list.append(item);
      });
      const use = "Head importance, Head roles and Top inputs use these. Select one to show it.";
      const add = button("Add the typed input", () => {
        if (this.addText(this.input.value)) changed();
      });
      box.replaceChildren(node("p", { class: "quiet" }, use), list, ...(this.about?.pictures ? [] : [add]));
    };
    fill();
    this.view.openTool("Inputs", box, { wide: true });
  }

  /** Whether a text was added to the inputs. @param {string} text */
  addText(text) {
    if (!this.texts || !text.trim() || this.texts.includes(text)) return false;
    this.texts.push(text);
    return true;
  }

  /** Send the picture that was chosen, and show it. */
  async sendPicture() {
    const picture = /** @type {HTMLInputElement} */ (element("picture"));
    const file = picture.files?.[0];
    if (!file) return () => {};
    picture.value = ""; // so that the same file can be selected again
    if (file.size > LARGEST_IMAGE) throw new Error(`${file.name} has more than 8 MB: choose a smaller image`);
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = "";
    for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
    const response = await this.ask("api/picture", { name: file.name, content: btoa(text) });
    return () => {
      this.addText(response.input);
      this.showInput(response.input);
    };
  }

  async showPlayback() {
    this.touched = [];
    /** @type {PlaybackData} */
    const playback = await this.ask("api/playback", { input: this.input.value });
    return () => {
      this.playback = playback;
      this.draw({ map: playback.frames[playback.frames.length - 1] });
    };
  }
}

// Whole weights of layers of which only thumbnails were sent, since the others of many weights come when needed.

/** The layers that a view shows as thumbnails though it needs all weights. @param {Pick<Scene, "map" | "layer" | "state">} scene */
function neededLayers({ map, layer, state }) {
  const all = state.mode === "flow" || state.words;
  return thumbnails(all ? map.layers : map.layers.filter(({ name }) => name === layer.name));
}

/** The names of the thumbnails among layers. @param {LayerData[]} layers */
export function thumbnails(layers) {
  return layers.filter(({ weights }) => !Array.isArray(weights) && weights.side > 1).map(({ name }) => name);
}

// A map with some layers in place of their thumbnails.
/** @param {MapData} map @param {LayerData[]} whole @returns {MapData} */
function withLayers(map, whole) {
  const byName = new Map(whole.map((layer) => [layer.name, layer]));
  return { ...map, layers: map.layers.map((layer) => byName.get(layer.name) ?? layer) };
}

// Weights times the norms of the values that they weigh (Kobayashi et al. 2020), as a picture instead of weights.

/** @typedef {{ norms: Record<string, number[][]>, left_out: Record<string, string> }} ValueNorms norms by layer, head and key */

const SAID =
  "Weights are multiplied by the norms of their values, and rows are divided by their sums (Kobayashi et al. 2020).";

// The reason why weights cannot be multiplied by the norms of values; empty if they can.
/** @param {MapData} map @param {ValueNorms} values */
function missingValues(map, { norms, left_out: reasons }) {
  const missing = map.layers.filter((layer) => !norms[layer.name]);
  if (!missing.length) return "";
  const [{ name }] = missing;
  const more = missing.length > 1 ? ` and ${missing.length - 1} more` : "";
  return `Value-weighted: the values of ${name}${more} are not known: ${reasons[name] ?? "they are not recorded"}.`;
}

/** Whether the input is so long that the map holds the largest weights of squares. @param {MapData} map */
function isLong(map) {
  return map.layers.some((layer) => layer.square > 1);
}

/** The map with weighted values. @param {MapData} map @param {ValueNorms} values @returns {MapData} */
function weighValues(map, { norms }) {
  const layers = map.layers.map((layer) => ({ ...layer, weights: weighed(layer, norms[layer.name]) }));
  return { ...map, layers, note: [map.note, SAID].filter(Boolean).join(" "), sums: undefined };
}

/** @param {LayerData} layer @param {number[][]} norms by head and key */
function weighed(layer, norms) {
  const matrix = unpack(layer);
  return matrix.slices.map((slice, head) =>
    layer.queries.map((_, query) => {
      const row = Array.from(matrix.row(slice, query), (weight, key) => weight * norms[head][key]);
      const sum = row.reduce((before, value) => before + value, 0);
      return sum > 0 ? row.map((value) => value / sum) : row;
    }),
  );
}

// Samples of a head: unseen inputs with its largest weights, which open at these weights.

/** @typedef {{ layer: string, head: number, token: string | null, wrong_first: boolean }} Wanted */
/** @typedef {{ input: string, weight: number, query: number, key: number, query_label: string, key_label: string, right: boolean | null }} Sample */
/** @typedef {{ layer: string, head: number, token: string | null, looked_at: number, wrong: number | null, samples: Sample[] }} Samples */

const ANY = "anything";

/**
 * A list of samples, and the choices for another search.
 * @param {Samples} data @param {Wanted} wanted
 * @param {string[]} tokens choices for the search
 * @param {(sample: Sample) => void} open @param {(wanted: Wanted) => void} search
 */
function sampleList(data, wanted, tokens, open, search) {
  const box = node("div", { class: "samples" });
  const bar = node("div", { class: "bar" });
  const known = [...new Set([...(wanted.token === null ? [] : [wanted.token]), ...tokens])];
  const options = [ANY, ...known.map((token) => tokenLabel(token))];
  const at = wanted.token === null ? 0 : known.indexOf(wanted.token) + 1;
  bar.append(
    select("attends to", options, at, (index) => search({ ...wanted, token: index ? known[index - 1] : null })),
    checkbox("wrong answers first", wanted.wrong_first, (on) => search({ ...wanted, wrong_first: on })),
  );
  box.append(bar, node("p", { class: "quiet" }, describeSearch(data)), listSamples(data, open));
  return box;
}

/** @param {Samples} found */
function describeSearch({ looked_at, wrong, token, samples }) {
  const place = token === null ? "" : ` at ${isolate(tokenLabel(token))}`;
  const errors = wrong === null ? "" : `, ${wrong} of them answered wrongly`;
  return `${looked_at} unseen inputs${errors}; ${samples.length} shown, by their largest weight${place}. Select one to open it.`;
}

/** @param {Samples} found @param {(sample: Sample) => void} open */
function listSamples({ samples }, open) {
  const rows = samples.map((sample, index) => {
    const answer = sample.right === null ? "" : sample.right ? "right" : "wrong";
    const from = `${isolate(tokenLabel(sample.query_label))} (${sample.query})`;
    const to = `${isolate(tokenLabel(sample.key_label))} (${sample.key})`;
    const cell = node("td", { class: "input" });
    const opens = button(tokenLabel(sample.input), () => open(sample));
    opens.dataset.name = `sample-${index}`;
    cell.append(opens);
    return [sample.weight.toFixed(4), from, to, answer, cell];
  });
  return scrollBox(table(["weight", "from", "to", "answer", "input"], rows), "samples");
}

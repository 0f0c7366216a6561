// DOM elements. Text is only added as text nodes, so that no input is parsed as HTML.

/** @typedef {Record<string, string | number | boolean | undefined>} Attributes */

/**
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Attributes} [attributes]
 * @param {string} [text]
 */
export function node(name, attributes, text) {
  return filled(document.createElement(name), attributes, text);
}

/**
 * @template {keyof SVGElementTagNameMap} Name
 * @param {Name} name
 * @param {Attributes} [attributes]
 * @param {string} [text]
 */
export function svg(name, attributes, text) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, text);
}

/**
 * @template {Element} Kind
 * @param {Kind} element
 * @param {Attributes} [attributes]
 * @param {string} [text]
 */
function filled(element, attributes = {}, text = undefined) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined) element.setAttribute(key, String(value));
  }
  if (text !== undefined) element.textContent = text;
  return element;
}

/**
 * Secondary text.
 *
 * @param {string} text
 */
export function secondaryText(text) {
  return node("span", { class: "quiet" }, text);
}

/**
 * A selection list; `onChange` receives the index of the selected option.
 *
 * @param {string} label
 * @param {string[]} options
 * @param {number} chosen
 * @param {(index: number) => void} onChange
 */
export function select(label, options, chosen, onChange) {
  const list = node("select", { "data-name": label });
  options.forEach((option, index) => {
    const element = node("option", { value: index }, option);
    element.selected = index === chosen;
    list.append(element);
  });
  list.addEventListener("change", () => onChange(list.selectedIndex));
  const wrapper = node("label", {}, label);
  wrapper.append(list);
  return wrapper;
}

/**
 * @param {string} label
 * @param {boolean} on
 * @param {(on: boolean) => void} onChange
 */
export function checkbox(label, on, onChange) {
  const box = node("input", { type: "checkbox", "data-name": label });
  box.checked = on;
  box.addEventListener("change", () => onChange(box.checked));
  const wrapper = node("label");
  wrapper.append(box, label);
  return wrapper;
}

/**
 * @param {string} label
 * @param {() => void} onClick
 * @param {boolean} [pressed] state of a toggle button
 */
export function button(label, onClick, pressed) {
  const element = node("button", { type: "button", "data-name": label, "aria-pressed": pressed }, label);
  element.addEventListener("click", onClick);
  return element;
}

/**
 * The 2D context of a canvas.
 *
 * @param {HTMLCanvasElement} canvas
 */
export function canvasContext(canvas) {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser does not draw on a canvas");
  return context;
}

/**
 * Redraws an element; the focus moves to the new element with the same name.
 *
 * @param {HTMLElement} root
 * @param {() => void} draw
 */
export function keepFocus(root, draw) {
  const before = focusedIn(root);
  const name = before?.dataset.name;
  draw();
  if (name === undefined || focusedIn(root) === before) return;
  const again = root.querySelector(`[data-name="${CSS.escape(name)}"]`);
  if (again instanceof HTMLElement || again instanceof SVGElement) again.focus({ preventScroll: true });
}

/** @param {HTMLElement} root */
function focusedIn(root) {
  const home = root.getRootNode();
  const element = home instanceof ShadowRoot ? home.activeElement : document.activeElement;
  if (!element || !root.contains(element)) return null;
  return element instanceof HTMLElement || element instanceof SVGElement ? element : null;
}

/** A part of the page that is made anew only when what it shows has changed. */
export class Part {
  /** @param {string} name CSS class */
  constructor(name = "") {
    this.element = node("div", { class: name || undefined });
    /** @type {unknown[] | null} */
    this.shown = null;
  }

  /**
   * @param {unknown[]} inputs everything that the content depends on
   * @param {() => (Node | string)[]} make
   */
  show(inputs, make) {
    const { shown } = this;
    if (shown?.length === inputs.length && inputs.every((value, index) => value === shown[index])) return;
    this.shown = inputs;
    this.element.replaceChildren(...make());
  }
}

const STRIDES = new Map([
  ["ArrowRight", 1],
  ["ArrowDown", 1],
  ["ArrowLeft", -1],
  ["ArrowUp", -1],
  ["Home", Number.NEGATIVE_INFINITY],
  ["End", Number.POSITIVE_INFINITY],
]);

/**
 * Makes many elements a single tab stop: arrow keys move between them.
 *
 * @param {(HTMLElement | SVGElement)[]} items
 * @param {number} at index of the element that the tab key reaches
 * @param {number} [columns] of a grid: up and down move by a row
 */
export function oneTabStop(items, at, columns = 1) {
  /** @param {number} chosen */
  const stop = (chosen) =>
    items.forEach((item, index) => item.setAttribute("tabindex", index === chosen ? "0" : "-1"));
  stop(Math.max(0, Math.min(at, items.length - 1)));
  items.forEach((item, index) => {
    item.addEventListener("focus", () => stop(index));
    /** @param {Event} event */
    const pressed = (event) => {
      const stride = event instanceof KeyboardEvent ? STRIDES.get(event.key) : undefined;
      if (stride === undefined || !(event instanceof KeyboardEvent)) return;
      event.preventDefault();
      const by = /^Arrow(Up|Down)$/.test(event.key) ? stride * columns : stride;
      items[Math.max(0, Math.min(index + by, items.length - 1))].focus();
    };
    item.addEventListener("keydown", pressed);
  });
}

/**
 * Buttons that select one option; `onChange` receives its index.
 *
 * @param {string} label
 * @param {string[]} options
 * @param {number} chosen
 * @param {(index: number) => void} onChange
 */
export function buttonGroup(label, options, chosen, onChange) {
  const group = node("span", { role: "radiogroup", "aria-label": label, class: "choice" });
  const buttons = options.map((option, index) => {
    const element = button(option, () => onChange(index));
    element.setAttribute("role", "radio");
    element.setAttribute("aria-checked", String(index === chosen));
    return element;
  });
  oneTabStop(buttons, chosen);
  group.append(...buttons);
  return group;
}

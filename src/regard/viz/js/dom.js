// DOM elements. Text is only added as text nodes, so that no input is parsed as HTML.

/** @typedef {Record<string, string | number | boolean | undefined>} Attributes */

/**
 * @template {keyof HTMLElementTagNameMap} Name @param {Name} name @param {Attributes} [attributes]
 * @param {string} [text]
 */
export function node(name, attributes, text) {
  return filled(document.createElement(name), attributes, text);
}

/**
 * @template {keyof SVGElementTagNameMap} Name @param {Name} name @param {Attributes} [attributes]
 * @param {string} [text]
 */
export function svg(name, attributes, text) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, text);
}

/** @template {Element} Kind @param {Kind} element @param {Attributes} [attributes] @param {string} [text] */
function filled(element, attributes = {}, text = undefined) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined) element.setAttribute(key, String(value));
  }
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Secondary text. @param {string} text */
export function secondaryText(text) {
  return node("span", { class: "quiet" }, text);
}

/**
 * A selection list; `onChange` receives the index of the selected option.
 * @param {string} label @param {string[]} options @param {number} chosen
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

/** @param {string} label @param {boolean} on @param {(on: boolean) => void} onChange */
export function checkbox(label, on, onChange) {
  const box = node("input", { type: "checkbox", "data-name": label });
  box.checked = on;
  box.addEventListener("change", () => onChange(box.checked));
  const wrapper = node("label");
  wrapper.append(box, label);
  return wrapper;
}

/** @param {string} label @param {() => void} onClick @param {boolean} [pressed] state of a toggle button */
export function button(label, onClick, pressed) {
  const element = node("button", { type: "button", "data-name": label, "aria-pressed": pressed }, label);
  element.addEventListener("click", onClick);
  return element;
}

/** The 2D context of a canvas. @param {HTMLCanvasElement} canvas */
export function canvasContext(canvas) {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser does not draw on a canvas");
  return context;
}

/**
 * Redraws an element; the focus moves to the new element with the same name.
 * @param {HTMLElement} root @param {() => void} draw
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

/**
 * A table, in which a cell can also be a whole cell element.
 * @param {string[]} names of the columns @param {(Node | string)[][]} rows their first cells are headers
 * @param {number} [on] index of the selected row
 */
export function table(names, rows, on = -1) {
  const [element, head, body, top] = [node("table"), node("thead"), node("tbody"), node("tr")];
  top.append(...names.map((name) => (name ? node("th", { scope: "col" }, name) : node("td"))));
  if (names.length) head.append(top);
  rows.forEach((cells, index) => {
    const row = node("tr", { class: index === on ? "on" : undefined });
    cells.forEach((cell, place) => {
      const box = place ? node("td") : node("th", { scope: "row" });
      box.append(cell);
      row.append(cell instanceof HTMLTableCellElement ? cell : box);
    });
    body.append(row);
  });
  element.append(head, body);
  return element;
}

/** A cell with a bar. @param {number} pixels @param {string} [colour] */
export function barCell(pixels, colour = "") {
  const [cell, bar] = [node("td", { class: "bars" }), node("span", { "aria-hidden": "true" })];
  Object.assign(bar.style, { width: `${Math.max(0, pixels)}px`, background: colour });
  cell.append(bar);
  return cell;
}

/** Content that scrolls if it is wider than the page. @param {Node} content @param {string} name */
export function scrollBox(content, name) {
  const box = node("div", { class: "scrolling", role: "region", tabindex: 0, "aria-label": name });
  box.append(content);
  return box;
}

/** A part of the page that is made anew only when what it shows has changed. */
export class Part {
  /** @param {string} name CSS class */
  constructor(name = "") {
    this.element = node("div", { class: name || undefined });
    /** @type {unknown[] | null} */
    this.shown = null;
  }

  /** @param {unknown[]} inputs everything that the content depends on @param {() => (Node | string)[]} make */
  show(inputs, make) {
    const { shown } = this;
    if (shown?.length === inputs.length && inputs.every((value, index) => value === shown[index])) return;
    this.shown = inputs;
    this.element.replaceChildren(...make());
  }
}

/** @type {Record<string, number>} */
const STRIDES = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };

/**
 * Makes many elements a single tab stop: arrow keys move between them.
 * @param {(HTMLElement | SVGElement)[]} items
 * @param {number} at index of the element that the tab key reaches
 * @param {number} [columns] of a grid: up and down move by a row
 */
export function oneTabStop(items, at, columns = 1) {
  /** @param {number} chosen */
  const stop = (chosen) => items.forEach((item, index) => item.setAttribute("tabindex", index === chosen ? "0" : "-1"));
  stop(Math.max(0, Math.min(at, items.length - 1)));
  items.forEach((item, index) => {
    item.addEventListener("focus", () => stop(index));
    /** @type {HTMLElement} */ (item).addEventListener("keydown", (event) => {
      const stride = STRIDES[event.key];
      if (stride === undefined) return;
      event.preventDefault();
      const by = /^Arrow(Up|Down)$/.test(event.key) ? stride * columns : stride;
      items[Math.max(0, Math.min(index + by, items.length - 1))].focus();
    });
  });
}

/**
 * Buttons that select one option; `onChange` receives its index.
 * @param {string} label @param {string[]} options @param {number} chosen
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

// Small drawings beside the labels of buttons; none replaces a label.

/** @type {Record<string, string>} */
const ICONS = {
  picture: "M2 3h12v10H2zM2 11l4-4 3 3 2-2 3 3",
  heatmap: "M2 2h12v12H2zM2 6h12M2 10h12M6 2v12M10 2v12",
  lines: "M3 3l10 10M3 8h10M3 13L13 3",
  flow: "M2 4c6 0 6 8 12 8M2 12c6 0 6-8 12-8M11 9l3 3-3 2",
  off: "M8 2v6M4.5 4a5.5 5.5 0 1 0 7 0",
  uniform: "M3 5h10M3 8h10M3 11h10",
  undo: "M6 3L2 7l4 4M2 7h8a4 4 0 0 1 0 8H7",
  dice: "M2 2h12v12H2zM5 5h.1M11 5h.1M8 8h.1M5 11h.1M11 11h.1",
};

/**
 * Puts a small drawing before the label of a button.
 * @template {HTMLElement} Kind @param {Kind} element @param {string} name
 */
export function withIcon(element, name) {
  const box = node("span", { class: "icon", "aria-hidden": "true" });
  const picture = svg("svg", { viewBox: "0 0 16 16" });
  picture.append(svg("path", { d: ICONS[name] }));
  box.append(picture);
  element.prepend(box);
  return element;
}

// Lists that open below a button.

/**
 * An entry of a menu.
 * @typedef {object} Item
 * @property {string} label
 * @property {() => void} does
 * @property {string} [hint]
 * @property {string} [reason] why it cannot be used now
 * @property {boolean} [on] state of an entry that can be switched on and off
 */

/**
 * A button and the box that it opens; the box closes on Escape, on a click elsewhere, and when the focus leaves.
 * @param {string} label @param {() => (Node | string)[]} fill makes the content whenever the box opens
 */
export function dropdown(label, fill, role = "group") {
  const name = label.toLowerCase();
  const box = node("div", { class: "drop", role, "aria-label": label, hidden: true });
  const opener = node("button", { type: "button", "data-name": name, "aria-expanded": "false" }, label);
  if (role === "menu") opener.setAttribute("aria-haspopup", "menu");
  const element = node("div", { class: "dropdown" });
  element.append(opener, box);
  /** @param {Event} event */
  const elsewhere = (event) => {
    if (!event.composedPath().includes(element)) show(false);
  };
  /** @param {boolean} open */
  const show = (open) => {
    if (open) box.replaceChildren(...fill());
    box.hidden = !open;
    if (open) document.addEventListener("pointerdown", elsewhere);
    else document.removeEventListener("pointerdown", elsewhere);
    opener.setAttribute("aria-expanded", String(open));
    if (open) /** @type {HTMLElement | null} */ (box.querySelector("button, input, select"))?.focus();
  };
  opener.addEventListener("click", () => show(box.hidden));
  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !box.hidden) {
      event.stopPropagation();
      show(false);
      opener.focus();
    } else if (event.key === "ArrowDown" && event.target === opener) {
      event.preventDefault();
      show(true);
    }
  });
  element.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget instanceof Node && !element.contains(relatedTarget)) show(false);
  });
  const refresh = () => {
    if (!box.hidden) keepFocus(box, () => box.replaceChildren(...fill()));
  };
  return { element, refresh, close: () => show(false) };
}

/** @param {string} label @param {() => Item[]} items */
export function menu(label, items) {
  const list = dropdown(
    label,
    () => {
      const buttons = items().map(({ label: text, does, hint, reason, on }) => {
        const entry = button(text, () => {
          if (reason) return;
          list.close();
          does();
        });
        entry.setAttribute("role", on === undefined ? "menuitem" : "menuitemcheckbox");
        if (on !== undefined) entry.setAttribute("aria-checked", String(on));
        if (reason) entry.setAttribute("aria-disabled", "true");
        if (reason || hint) entry.append(node("span", { class: "quiet" }, reason || hint));
        return entry;
      });
      oneTabStop(buttons, 0);
      return buttons;
    },
    "menu",
  );
  return list;
}

// Widths of texts on the screen, measured in the font of the labels.

export const FAMILY = "system-ui, sans-serif";
const SIZE = 13; // pixels
const MOST_KEPT = 20_000; // cached widths

let scale = 1;

/** @type {Map<string, number>} */
const widths = new Map();
/** @type {CanvasRenderingContext2D | undefined} */
let context;

/** Sets the factor of labels on a large screen; saved pictures have the factor 1. @param {number} factor */
export function setTextScale(factor) {
  scale = factor;
}

export function textScale() {
  return scale;
}

/** The font of labels, as CSS. */
export function font(bold = false, size = SIZE * scale) {
  return `${bold ? "bold " : ""}${size}px ${FAMILY}`;
}

/** The width of a label in pixels, in bold, since any label may be marked. @param {string} text */
export function textWidth(text) {
  const known = widths.get(text);
  if (known !== undefined) return known * scale;
  if (widths.size > MOST_KEPT) widths.clear();
  if (!context) {
    context = canvasContext(node("canvas"));
    context.font = `bold ${SIZE}px ${FAMILY}`;
  }
  const width = context.measureText(text).width;
  widths.set(text, width);
  return width * scale;
}

/** The width of the widest label. @param {string[]} labels */
export function widestText(labels) {
  return labels.reduce((width, label) => Math.max(width, textWidth(label)), 0);
}

/** The text of anything that was thrown. @param {unknown} error */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

// Elements of a page. Text only ever becomes text nodes, so that no label of an input is read as HTML.

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
 * A choice among options; `onChange` is given the number of the one that is taken.
 *
 * @param {string} label
 * @param {string[]} options
 * @param {number} chosen
 * @param {(index: number) => void} onChange
 */
export function select(label, options, chosen, onChange) {
  const found = node("select", { "data-name": label });
  options.forEach((option, index) => {
    const each = node("option", { value: index }, option);
    each.selected = index === chosen;
    found.append(each);
  });
  found.addEventListener("change", () => onChange(found.selectedIndex));
  const wrapper = node("label", {}, label);
  wrapper.append(found);
  return wrapper;
}

/**
 * @param {string} label
 * @param {boolean} on
 * @param {(on: boolean) => void} onChange
 */
export function check(label, on, onChange) {
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
 * @param {boolean} [pressed] of a button that stays down
 */
export function button(label, onClick, pressed) {
  const found = node("button", { type: "button", "data-name": label, "aria-pressed": pressed }, label);
  found.addEventListener("click", onClick);
  return found;
}

/**
 * What draws on a canvas.
 *
 * @param {HTMLCanvasElement} canvas
 */
export function brush(canvas) {
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser does not draw on a canvas");
  return context;
}

/**
 * Draw something anew; what has the same name as what had the focus gets it back.
 *
 * @param {HTMLElement} root
 * @param {() => void} draw
 */
export function keepFocus(root, draw) {
  const focused = root.contains(document.activeElement) ? document.activeElement : null;
  const name = focused instanceof HTMLElement ? focused.dataset.name : undefined;
  draw();
  const again = name === undefined ? null : root.querySelector(`[data-name="${CSS.escape(name)}"]`);
  if (again instanceof HTMLElement && again !== document.activeElement) again.focus({ preventScroll: true });
}

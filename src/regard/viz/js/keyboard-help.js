// The keys of the view, shown on "?".

import { button, node } from "./dom.js";
import { withIcon } from "./icons.js";

/** @type {[keys: string, meaning: string][]} */
const KEYS = [
  ["Tab", "next control; a grid, a list of tokens or a heatmap is one stop"],
  ["← ↑ → ↓", "move between heads, weights or tokens"],
  ["Enter", "choose the head or token"],
  ["[  ]", "previous and next head, on a heatmap"],
  ["+  −  0", "zoom in, out, and show all, on a heatmap"],
  ["Shift + Enter", "add the row of a token"],
  ["Ctrl + Z", "undo the last change of the model"],
  ["?", "this list"],
  ["Esc", "close it"],
];

/**
 * A button that shows the keys, and the list itself.
 *
 * @param {HTMLElement} root receives the keys "?" and Ctrl + Z
 * @param {() => void} undo
 */
export function keyboardHelp(root, undo) {
  const dialog = node("dialog", { "aria-label": "Keys" });
  const list = node("dl");
  for (const [keys, meaning] of KEYS) list.append(node("dt", {}, keys), node("dd", {}, meaning));
  dialog.append(
    node("h2", {}, "Keys"),
    list,
    button("Close", () => dialog.close()),
  );
  const show = withIcon(
    button("Keys", () => dialog.showModal()),
    "keys",
  );
  show.title = "Keys of this page (?)";
  show.setAttribute("aria-keyshortcuts", "?");
  /** @param {KeyboardEvent} event */
  const pressed = (event) => {
    if (isTyped(event)) return;
    if (event.key === "?") {
      if (!dialog.open) dialog.showModal();
    } else if (event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey) undo();
    else return;
    event.preventDefault();
  };
  root.addEventListener("keydown", pressed);
  return { show, dialog, pressed };
}

/**
 * Whether a key belongs to a text field.
 *
 * @param {KeyboardEvent} event
 */
function isTyped({ target }) {
  return (
    target instanceof HTMLElement && target.matches("textarea, input:not([type=range]):not([type=checkbox])")
  );
}

// The three panes of the view: heads, picture, inspector. In a narrow view they are tabs.

import { node, oneTabStop } from "./dom.js";
import { withIcon } from "./icons.js";

const PANES = /** @type {const} */ ([
  { name: "heads", title: "Heads", icon: "overview" },
  { name: "picture", title: "Picture", icon: "heatmap" },
  { name: "inspector", title: "Inspector", icon: "search" },
]);

/** @typedef {(typeof PANES)[number]["name"]} PaneName */

let views = 0; // number of views so far, for unique element names

/**
 * The panes in `root`, with the tabs that choose one of them where there is no room for all.
 *
 * @param {HTMLElement} root
 * @returns {{ panes: Record<PaneName, HTMLElement>, showPane: (name: PaneName) => void }}
 */
export function makePanes(root) {
  views += 1;
  const tabs = node("div", { class: "tabs", role: "tablist", "aria-label": "Panes" });
  const box = node("div", { class: "panes" });
  /** @param {string} chosen */
  const choose = (chosen) => {
    root.dataset.pane = chosen;
    for (const { name } of PANES) buttons[name].setAttribute("aria-selected", String(name === chosen));
  };
  /** @type {Record<string, HTMLButtonElement>} */
  const buttons = {};
  /** @type {Partial<Record<PaneName, HTMLElement>>} */
  const panes = {};
  for (const { name, title, icon } of PANES) {
    const id = `regard-${views}-${name}`;
    const tab = node("button", { type: "button", role: "tab", id: `${id}-tab`, "aria-controls": id }, title);
    tab.addEventListener("click", () => choose(name));
    tab.addEventListener("focus", () => choose(name));
    buttons[name] = withIcon(tab, icon);
    panes[name] = node("section", { class: `pane ${name}`, id, "aria-label": title });
  }
  oneTabStop(Object.values(buttons), 1);
  tabs.append(...Object.values(buttons));
  box.append(...Object.values(panes));
  root.append(tabs, box);
  choose("picture");
  return { panes: /** @type {Record<PaneName, HTMLElement>} */ (panes), showPane: choose };
}

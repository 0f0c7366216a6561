// Events around a view: resizing, colour scheme, printing.

import { node } from "./dom.js";

/**
 * @typedef {object} Listeners
 * @property {() => void} resized
 * @property {() => void} recoloured
 * @property {(onPaper: boolean) => void} printing
 */

/**
 * Calls the listeners on events; returns a function that removes them. Changes of the text colour by a notebook
 * theme or the system are detected by the CSS transition of a probe element.
 *
 * @param {Element} element
 * @param {Element} stage its drawing, which also changes its size
 * @param {Listeners} listeners
 */
export function observe(element, stage, { resized, recoloured, printing }) {
  const size = new ResizeObserver(resized);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const probe = node("span", { class: "probe", "aria-hidden": "true" });
  const before = () => printing(true);
  const after = () => printing(false);
  size.observe(element);
  size.observe(stage);
  probe.addEventListener("transitionend", recoloured);
  element.append(probe);
  scheme.addEventListener("change", recoloured);
  addEventListener("beforeprint", before);
  addEventListener("afterprint", after);
  return () => {
    size.disconnect();
    probe.remove();
    scheme.removeEventListener("change", recoloured);
    removeEventListener("beforeprint", before);
    removeEventListener("afterprint", after);
  };
}

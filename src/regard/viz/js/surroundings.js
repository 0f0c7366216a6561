// What happens around a view: it becomes wider or narrower, the page turns dark or light, it is printed.

import { node } from "./dom.js";

/**
 * @typedef {object} Listeners
 * @property {() => void} resized
 * @property {() => void} recoloured
 * @property {(onPaper: boolean) => void} printing
 */

/**
 * Tell the listeners; returns what makes an end of it. Whatever gives text another colour, a notebook's theme as well
 * as the system's, is seen by a probe in `element`, whose colour the style sheet lets fade.
 *
 * @param {Element} element
 * @param {Listeners} listeners
 */
export function observe(element, { resized, recoloured, printing }) {
  const size = new ResizeObserver(resized);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const probe = node("span", { class: "probe", "aria-hidden": "true" });
  const before = () => printing(true);
  const after = () => printing(false);
  size.observe(element);
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

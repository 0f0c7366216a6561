// What happens around a view: it becomes wider or narrower, the page turns dark or light, it is printed.

/**
 * @typedef {object} Listeners
 * @property {() => void} resized
 * @property {() => void} recoloured
 * @property {(onPaper: boolean) => void} printing
 */

/**
 * Tell the listeners; returns what makes an end of it.
 *
 * @param {Element} element
 * @param {Listeners} listeners
 */
export function observe(element, { resized, recoloured, printing }) {
  const size = new ResizeObserver(resized);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const before = () => printing(true);
  const after = () => printing(false);
  size.observe(element);
  scheme.addEventListener("change", recoloured);
  addEventListener("beforeprint", before);
  addEventListener("afterprint", after);
  return () => {
    size.disconnect();
    scheme.removeEventListener("change", recoloured);
    removeEventListener("beforeprint", before);
    removeEventListener("afterprint", after);
  };
}

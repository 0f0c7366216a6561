// Values cached for the lifetime of an object.

/** @type {WeakMap<object, Map<string, unknown>>} */
const caches = new WeakMap();

/**
 * The result of `make`, computed once for each object and name.
 *
 * @template Made
 * @param {object} owner
 * @param {string} name
 * @param {() => Made} make
 * @returns {Made}
 */
export function cached(owner, name, make) {
  const found = caches.get(owner) ?? new Map();
  caches.set(owner, found);
  if (!found.has(name)) found.set(name, make());
  return found.get(name);
}

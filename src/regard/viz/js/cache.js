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
  const values = caches.get(owner) ?? new Map();
  caches.set(owner, values);
  if (!values.has(name)) values.set(name, make());
  return values.get(name);
}

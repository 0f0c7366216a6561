// What is worked out once for an object, and kept as long as that is there.

/** @type {WeakMap<object, Map<string, unknown>>} */
const known = new WeakMap();

/**
 * What `make` returns, made once for each name of an object.
 *
 * @template Made
 * @param {object} owner
 * @param {string} name
 * @param {() => Made} make
 * @returns {Made}
 */
export function once(owner, name, make) {
  const found = known.get(owner) ?? new Map();
  known.set(owner, found);
  if (!found.has(name)) found.set(name, make());
  return found.get(name);
}

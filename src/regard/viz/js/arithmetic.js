// Arithmetic.

/** Limits a value to a range. @param {number} value @param {number} low @param {number} high */
export function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

/** The largest value, at least 0; `bySize`: the largest absolute value. @param {Float32Array} values */
export function largestValue(values, bySize = false) {
  let largest = 0;
  for (let index = 0; index < values.length; index += 1) {
    const value = bySize ? Math.abs(values[index]) : values[index];
    if (value > largest) largest = value;
  }
  return largest;
}

// Values cached for the lifetime of an object.

/** @type {WeakMap<object, Map<string, unknown>>} */
const caches = new WeakMap();

/**
 * The result of `make`, computed once for each object and name.
 * @template Made @param {object} owner @param {string} name @param {() => Made} make @returns {Made}
 */
export function cached(owner, name, make) {
  const values = caches.get(owner) ?? new Map();
  caches.set(owner, values);
  if (!values.has(name)) values.set(name, make());
  return values.get(name);
}

// Asynchronous work with frequent requests: the last request counts, outdated ones are skipped.

/**
 * Returns a function that calls `work` once at a time, and of the requests during a call only with the last.
 * @template Given
 * @param {(given: Given) => Promise<void>} work never fails
 * @returns {(given: Given) => Promise<void>}
 */
export function latest(work) {
  let busy = false;
  /** @type {{ given: Given } | null} */
  let waiting = null;
  return async (argument) => {
    waiting = { given: argument };
    if (busy) return;
    busy = true;
    while (waiting) {
      const next = waiting.given;
      waiting = null;
      await work(next);
    }
    busy = false;
  };
}

/** @param {number[]} scores @param {boolean[]} maySee @param {number} temperature */
export function softmax(scores, maySee, temperature) {
  const largest = Math.max(...scores.filter((_, key) => maySee[key]));
  const grown = scores.map((score, key) => (maySee[key] ? Math.exp((score - largest) / temperature) : 0));
  const total = grown.reduce((sum, exponential) => sum + exponential, 0);
  return grown.map((exponential) => (total ? exponential / total : 0)); // 0 if the query may attend to no key
}

// Work that takes a while and is asked for faster than it is done: what is asked last counts, the rest is skipped.

/**
 * Return a function that does `work` with what it is given: one after the other, and of what came meanwhile only the
 * last.
 *
 * @template Given
 * @param {(given: Given) => Promise<void>} work that never fails
 * @returns {(given: Given) => Promise<void>}
 */
export function latest(work) {
  let busy = false;
  /** @type {{ given: Given } | null} */
  let waiting = null;
  return async (given) => {
    waiting = { given };
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

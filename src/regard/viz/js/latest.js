// Asynchronous work with frequent requests: the last request counts, outdated ones are skipped.

/**
 * Returns a function that calls `work` once at a time, and of the requests during a call only with the last.
 *
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

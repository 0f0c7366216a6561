// The requests of the explorer, answered by the model in this page instead of a server.

import { liveSubject } from "./live-model.js";

/**
 * As `ask` of the served page.
 * @param {string} path @param {object} [body] @param {AbortSignal} [signal] @returns {Promise<any>}
 */
export async function ask(path, body, signal) {
  signal?.throwIfAborted();
  return liveSubject.ask(path, body);
}

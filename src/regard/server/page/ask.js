// Requests to the explorer's server.

import { unpackWeights } from "../../viz/js/matrix.js";

/**
 * Sends a request; an unsuccessful response is thrown as an error.
 * @param {string} path @param {object} [body] @param {AbortSignal} [signal]
 */
export async function ask(path, body, signal) {
  const headers = { "content-type": "application/json" };
  const request = body && { method: "POST", headers, body: JSON.stringify(body) };
  const response = await fetch(path, { ...request, signal }).catch(() => {
    throw new Error("The explorer does not answer: is `regard show` still running?");
  });
  const data = await response.json();
  if (!response.ok) throw new Error(data.error);
  return unpackWeights(data);
}

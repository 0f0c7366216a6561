// Requests to the explorer's server.

import { readAnswer, unpackWeights } from "../../viz/js/matrix.js";

const BINARY = "application/octet-stream";

/**
 * Sends a request; an unsuccessful response is thrown as an error.
 * @param {string} path @param {object} [body] @param {AbortSignal} [signal]
 */
export async function ask(path, body, signal) {
  const headers = { "content-type": "application/json", accept: `${BINARY}, application/json` };
  const request = body && { method: "POST", headers, body: JSON.stringify(body) };
  const response = await fetch(path, { ...request, signal }).catch(() => {
    throw new Error("The explorer does not answer: is `regard show` still running?");
  });
  if (response.headers.get("content-type") === BINARY) return readAnswer(await response.arrayBuffer());
  const data = await response.json();
  if (!response.ok) throw new Error(data.error);
  return unpackWeights(data);
}

// Samples of a head: unseen inputs with its largest weights, which open at these weights.

import { button, checkbox, keepFocus, node, select } from "./js/dom.js";
import { isolate, tokenLabel } from "./js/labels.js";

/** @typedef {{ layer: string, head: number, token: string | null, wrong_first: boolean }} Wanted */
/** @typedef {{ input: string, weight: number, query: number, key: number, query_label: string, key_label: string, right: boolean | null }} Sample */
/** @typedef {{ layer: string, head: number, token: string | null, looked_at: number, wrong: number | null, samples: Sample[] }} Samples */

const ANY = "anything";

/**
 * Shows samples in `box` until it is closed.
 *
 * @param {HTMLElement} box
 * @param {{ found: Samples, asked: Wanted }} answer
 * @param {string[]} tokens choices for the search
 * @param {(sample: Sample, wanted: Wanted) => void} open
 * @param {(wanted: Wanted) => void} search
 * @param {() => void} closed
 */
export function showSamples(box, { found, asked }, tokens, open, search, closed) {
  const close = () => {
    box.hidden = true;
    box.replaceChildren();
    closed();
  };
  box.hidden = false;
  keepFocus(box, () =>
    box.replaceChildren(sampleList(found, asked, tokens, (sample) => open(sample, asked), search, close)),
  );
}

/**
 * A list of samples, and the choices for another search.
 *
 * @param {Samples} data
 * @param {Wanted} wanted
 * @param {string[]} tokens choices for the search
 * @param {(sample: Sample) => void} open
 * @param {(wanted: Wanted) => void} search
 * @param {() => void} close
 */
function sampleList(data, wanted, tokens, open, search, close) {
  const box = node("section", { class: "steps", "aria-label": "Samples of a head" });
  const bar = node("div", { class: "bar" });
  const known = [...new Set([...(wanted.token === null ? [] : [wanted.token]), ...tokens])];
  const options = [ANY, ...known.map((token) => tokenLabel(token))];
  const at = wanted.token === null ? 0 : known.indexOf(wanted.token) + 1;
  bar.append(
    select("attends to", options, at, (index) => search({ ...wanted, token: index ? known[index - 1] : null })),
    checkbox("wrong answers first", wanted.wrong_first, (on) => search({ ...wanted, wrong_first: on })),
    button("Close", close),
  );
  const title = `Inputs on which head ${data.head} of ${data.layer} has its largest weights`;
  box.append(
    node("h2", {}, title),
    bar,
    node("p", { class: "quiet" }, describeSearch(data)),
    listSamples(data, open),
  );
  return box;
}

/** @param {Samples} found */
function describeSearch({ looked_at, wrong, token, samples }) {
  const place = token === null ? "" : ` at ${isolate(tokenLabel(token))}`;
  const errors = wrong === null ? "" : `, ${wrong} of them answered wrongly`;
  return `${looked_at} unseen inputs${errors}; ${samples.length} shown, by their largest weight${place}. Select one to open it.`;
}

/**
 * @param {Samples} found
 * @param {(sample: Sample) => void} open
 */
function listSamples({ samples }, open) {
  const table = node("table");
  const head = node("tr");
  for (const name of ["weight", "from", "to", "answer", "input"]) head.append(node("th", { scope: "col" }, name));
  const [top, body] = [node("thead"), node("tbody")];
  top.append(head);
  samples.forEach((sample, index) => {
    const row = node("tr");
    const answer = sample.right === null ? "" : sample.right ? "right" : "wrong";
    const from = `${isolate(tokenLabel(sample.query_label))} (${sample.query})`;
    const to = `${isolate(tokenLabel(sample.key_label))} (${sample.key})`;
    for (const text of [sample.weight.toFixed(4), from, to, answer]) row.append(node("td", {}, text));
    const cell = node("td", { class: "input" });
    const opens = button(tokenLabel(sample.input), () => open(sample));
    opens.dataset.name = `sample-${index}`;
    cell.append(opens);
    row.append(cell);
    body.append(row);
  });
  table.append(top, body);
  const region = node("div", { class: "scrolling", role: "region", tabindex: 0, "aria-label": "samples" });
  region.append(table);
  return region;
}

// The search for an answer: alternatives at each step, and the beam as a tree.

import { barCell, button, node, oneTabStop, scrollBox, svg, table, textWidth } from "../../viz/js/dom.js";
import { tokenLabel } from "../../viz/js/labels.js";

/** @import { MapData } from "../../viz/js/data.js" */

/** @typedef {{ label: string, probability: number }} Follower */
/** @typedef {{ parent: number | null, step: number, label: string, probability: number, log_probability: number, ended: boolean, followers: Follower[] }} Branch */
/** @typedef {{ begin: Follower[], branches: Branch[], best: number[], beam: number }} Tree */
/** @typedef {{ tree: Tree, shown: number[], maps: MapData[] }} Searched */

const LARGER = 13 / 12; // font size of the tree relative to measured labels
const GAP = 30; // pixels between the words of consecutive steps
const HIGH = 22; // pixels between branches
const SHARE_BAR = 120; // pixels of the likeliest token

/**
 * The tree and the alternatives; `choose` receives the selected branch.
 * @param {Searched} data
 * @param {number | undefined} first the branch selected at first; by default the start of the answer
 * @param {(branch: number) => void} choose
 * @param {(beam: number) => void} widen requests another beam width
 */
export function searchTree(data, first, choose, widen) {
  const { tree } = data;
  const rows = branchRows(tree);
  const places = stepPositions(tree);
  const box = node("div", { class: "search" });
  const panel = node("div", { class: "followers", "aria-live": "polite" });
  const texts = tree.branches.map((branch, number) => branchText(tree, branch, number, rows, places));
  let at = first !== undefined && first < tree.branches.length ? first : (tree.best[0] ?? 0);
  /** @param {number} number */
  const go = (number) => {
    at = number;
    texts.forEach((text, index) => text.classList.toggle("on", index === number));
    panel.replaceChildren(...listFollowers(tree, number));
    choose(number);
  };
  texts.forEach((text, number) => {
    text.addEventListener("click", () => go(number));
    text.addEventListener("keydown", ({ key }) => {
      if (key === "Enter" || key === " ") go(number);
    });
  });
  oneTabStop(texts, at);
  /** @param {number} by */
  const move = (by) => {
    const place = tree.best.indexOf(at);
    go(tree.best[Math.max(0, Math.min(place + by, tree.best.length - 1))] ?? at);
  };
  const bar = node("div", { class: "bar" });
  const width = node("select", { id: "beam" });
  for (const each of new Set([1, 2, 3, 5, 8, tree.beam])) {
    const option = node("option", { value: each }, String(each));
    option.selected = each === tree.beam;
    width.append(option);
  }
  width.addEventListener("change", () => widen(Number(width.value)));
  bar.append(node("label", { for: "beam" }, "Beam"), width);
  const [back, on] = [button("◀ step", () => move(-1)), button("step ▶", () => move(1))];
  bar.append(back, on);
  const beside = node("div", { class: "beside" });
  beside.append(drawTree(tree, rows, places, texts), panel);
  box.append(bar, beside);
  go(at);
  return box;
}

/** The row of each branch: the answer on top, below it abandoned and worse hypotheses. @param {Tree} tree */
function branchRows({ branches, best }) {
  /** @type {number[]} */
  const rows = [];
  let last = -1;
  /** @param {number | null} parent @param {number | undefined} row */
  const place = (parent, row) => {
    const children = branches.map((_, number) => number).filter((number) => branches[number].parent === parent);
    children.sort((child, sibling) => Number(best.includes(sibling)) - Number(best.includes(child)));
    children.forEach((child, order) => {
      if (order > 0 || row === undefined) last += 1;
      rows[child] = order === 0 && row !== undefined ? row : last;
      place(child, rows[child]);
    });
  };
  place(null, undefined);
  return rows;
}

// The position of each step, and of the end of the tree, with room for the widest words of each step.
/** @param {Tree} tree */
function stepPositions({ branches }) {
  const places = [4];
  for (const branch of branches) {
    const step = branch.step + 1;
    places[step] = Math.max(places[step] ?? 0, branchWidth(branch));
  }
  for (let step = 1; step < places.length; step += 1) places[step] = places[step - 1] + (places[step] ?? 0) + GAP;
  return places;
}

/** The width of a branch's label. @param {Branch} branch */
function branchWidth({ label, probability, ended }) {
  return LARGER * textWidth(`${ended ? "end" : shortLabel(tokenLabel(label))} ${branchPercent(probability)}`);
}

/**
 * @param {Tree} tree @param {Branch} branch @param {number} number @param {number[]} rows
 * @param {number[]} places of the steps
 */
function branchText({ best }, { label, step, probability, log_probability, ended }, number, rows, places) {
  const kind = best.includes(number) ? "best" : "other";
  const full = tokenLabel(label);
  const shown = ended ? "end" : shortLabel(full);
  const share = branchPercent(probability);
  const name = `${shown} ${share}, step ${step}, ${full}, log-probability ${log_probability.toFixed(3)}`;
  const place = { x: places[step], y: HIGH * rows[number] + 16, class: `branch ${kind}` };
  const text = svg("text", { ...place, role: "button", "aria-label": name, "data-name": `branch-${number}` });
  text.append(svg("title", {}, name), svg("tspan", {}, `${shown} `), svg("tspan", { class: "share" }, share));
  return text;
}

/** @param {string} label */
function shortLabel(label) {
  return label.length > 8 ? `${label.slice(0, 7)}…` : label;
}

/** @param {number} share */
function branchPercent(share) {
  return `${Math.round(100 * share)}%`;
}

/**
 * @param {Tree} tree @param {number[]} rows
 * @param {number[]} places of the steps
 * @param {SVGTextElement[]} texts
 */
function drawTree({ branches, best }, rows, places, texts) {
  const size = { width: places[places.length - 1], height: HIGH * (Math.max(...rows, 0) + 1) + 8 };
  const picture = svg("svg", { ...size, role: "group", "aria-label": "All hypotheses of the search" });
  branches.forEach(({ parent, step }, number) => {
    if (parent === null) return;
    const [x, y, from] = [places[step] - 4, HIGH * rows[number] + 12, HIGH * rows[parent] + 12];
    const begin = places[step - 1] + branchWidth(branches[parent]) + 4;
    const bend = x - GAP + 8; // where the words of the previous step end
    const d = `M ${begin} ${from} H ${bend} C ${bend + 12} ${from}, ${x - 12} ${y}, ${x} ${y}`;
    picture.append(svg("path", { d, class: best.includes(number) ? "best" : "other", fill: "none" }));
  });
  picture.append(...texts);
  return scrollBox(picture, "Search tree");
}

/** The alternatives to a branch, with their probabilities. @param {Tree} tree @param {number} number */
function listFollowers({ branches, begin }, number) {
  const { parent, label, step, log_probability } = branches[number];
  const before = [];
  for (let at = parent; at !== null; at = branches[at].parent) before.unshift(tokenLabel(branches[at].label));
  const title = before.length ? `After “${before.join(" ")}”, step ${step}` : "At the beginning, step 0";
  const followers = parent === null ? begin : branches[parent].followers;
  const rows = followers.map((follower) => [
    tokenLabel(follower.label),
    `${(100 * follower.probability).toFixed(1)}%`,
    barCell(follower.probability * SHARE_BAR),
  ]);
  const made = table([], rows, followers.map((follower) => follower.label).indexOf(label));
  made.prepend(node("caption", {}, `${title}; log-probability so far ${log_probability.toFixed(3)}`));
  return [made];
}

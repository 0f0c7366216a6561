// Lines from queries on the left to keys on the right; larger weights give stronger lines.

import { cached } from "./arithmetic.js";
import { textScale, textWidth } from "./dom.js";
import { labelledIndices, widestLabel } from "./heatmap.js";
import { axisTitles, fitLabel } from "./labels.js";
import { shareOf } from "./scale.js";

/** @import { Matrix } from "./matrix.js" */
/** @import { Panel } from "./panel.js" */
/** @import { Pen } from "./pen.js" */

const GAP = 6; // pixels between a label and its lines
const MOST_ROWS = 400; // of more queries or keys, only the lines of the selected row are drawn
const MOST_LINES = 1500; // the strongest lines are drawn
const INVISIBLE = 0.01; // share of the largest weight below which a line would be invisible
const FAINT = 0.22; // opacity of the lines of other rows
const LABELLED = 4; // keys of the selected row that always have a label

/** @typedef {{ weight: number, query: number, key: number }} Line */

export const lines = {
  /** @param {Panel} panel */
  fit(panel) {
    const { matrix } = panel.scene;
    const most = Math.min(200 * textScale(), panel.width * 0.3);
    const [left, right] = [matrix.queries, matrix.keys].map((labels) => Math.min(widestLabel(labels) + 2 * GAP, most));
    panel.margins = { left, top: 22 * textScale(), upright: false };
    panel.right = panel.width - right;
    panel.viewport.fitInto(panel.margins, panel.width, panel.height);
  },

  /** @param {Pen} pen @param {Panel} panel */
  paint(pen, panel) {
    const { scene, head, colours, mark, viewport, right } = panel;
    const { matrix, scale, state } = scene;
    const { left } = viewport;
    const drawn = strongest(matrix, head, mark.query, { top: state.top, aside: scale.aside });
    const largest = scale.top(matrix, head);
    for (const { weight, query, key } of [...drawn.lines].reverse()) {
      const own = query === mark.query;
      const strength = Math.max(0.08, Math.min(shareOf(weight, largest), 1));
      const marked = own && key === mark.key;
      const ink = { stroke: marked ? colours.mark : colours.line, width: marked ? 3 : 2 };
      const opacity = marked ? 1 : own ? strength : FAINT * strength;
      pen.line([left, sideY(panel, matrix.rows, query)], [right, sideY(panel, matrix.columns, key)], {
        ...ink,
        opacity,
      });
    }
    const [down, across] = axisTitles(scene);
    const third = panel.width / 3;
    pen.text(0, 9, fitLabel(down, third, textWidth), { fill: colours.quiet });
    pen.text(panel.width, 9, fitLabel(across, third, textWidth), { fill: colours.quiet, align: "end" });
    const note = omittedLines(drawn);
    if (note)
      pen.text((left + right) / 2, 9, fitLabel(note, third, textWidth), { fill: colours.quiet, align: "middle" });
    const own = drawn.lines.filter(({ query }) => query === mark.query).slice(0, LABELLED);
    paintSide(pen, panel, matrix.queries, [mark.query], mark.query, { x: left - GAP, align: "end", room: left - GAP });
    const keys = [...(mark.key === null ? [] : [mark.key]), ...own.map(({ key }) => key)];
    paintSide(pen, panel, matrix.keys, keys, mark.key, {
      x: right + GAP,
      align: "start",
      room: panel.width - right - GAP,
    });
  },

  /** @param {Panel} panel @param {number} x @param {number} y */
  under({ viewport, right, scene: { matrix } }, x, y) {
    const share = (y - viewport.top) / viewport.height;
    if (share < 0 || share >= 1) return null;
    if (x < (viewport.left + right) / 2) return { query: Math.floor(share * matrix.rows) };
    return { key: Math.floor(share * matrix.columns) };
  },
};

/** @param {Panel} panel @param {number} count tokens of a side @param {number} index */
function sideY({ viewport }, count, index) {
  return viewport.top + ((index + 0.5) / count) * viewport.height;
}

/**
 * @param {Pen} pen @param {Panel} panel @param {string[]} labels @param {number[]} marked @param {number | null} bold
 * @param {{ x: number, align: "start" | "end", room: number }} place
 */
function paintSide(pen, panel, labels, marked, bold, { x, align, room }) {
  const { height } = panel.viewport;
  for (const index of labelledIndices(0, labels.length, height + 1, height / labels.length, marked)) {
    const text = fitLabel(labels[index], room, textWidth);
    pen.text(x, sideY(panel, labels.length, index), text, { fill: panel.colours.ink, align, bold: index === bold });
  }
}

/**
 * The selected lines, the largest first: those of one row, and the `top` largest of every other row.
 * @param {Matrix} matrix @param {number} head @param {number} row
 * @param {{ top: number, aside: boolean }} wanted `top` 0: all; `aside`: without the first key
 */
export function strongest(matrix, head, row, { top, aside }, limit = MOST_LINES) {
  const many = Math.max(matrix.rows, matrix.columns) > MOST_ROWS;
  const others = many
    ? []
    : cached(matrix, `lines ${head} ${top} ${aside}`, () =>
        matrix.queries.flatMap((_, query) => largestOf(matrix, head, query, top, aside)),
      );
  const all = [...largestOf(matrix, head, row, 0, aside), ...others.filter(({ query }) => query !== row)];
  all.sort(
    (first, second) => Number(second.query === row) - Number(first.query === row) || second.weight - first.weight,
  );
  return { lines: all.slice(0, limit), omitted: Math.max(0, all.length - limit), rows: many ? matrix.rows - 1 : 0 };
}

/** @param {Matrix} matrix @param {number} head @param {number} query @param {number} top @param {boolean} aside @returns {Line[]} */
function largestOf(matrix, head, query, top, aside) {
  /** @type {Line[]} */
  const seen = [];
  matrix.row(matrix.slices[head], query).forEach((weight, key) => {
    if (weight > INVISIBLE * matrix.largest && !(aside && key === 0)) seen.push({ weight, query, key });
  });
  if (top) seen.sort((first, second) => second.weight - first.weight);
  return top ? seen.slice(0, top) : seen;
}

/** What is left out, in a few words. @param {{ omitted: number, rows: number }} selection */
export function omittedLines({ omitted, rows }) {
  if (rows) return `the selected row only, of ${(rows + 1).toLocaleString("en")}`;
  return omitted ? `${omitted.toLocaleString("en")} weaker lines are left out` : "";
}

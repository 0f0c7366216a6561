// Places of many tokens in little room: those around the chosen ones are far apart, the others close together.

const FEW_TOKENS = 40; // up to this number, all tokens are equally far apart
const LEAST_APART = 2; // pixels between tokens
const READABLE = 12; // pixels between labels
const AROUND_CHOSEN = 2; // tokens before and after a chosen one that are far apart too

/**
 * @typedef {object} Places
 * @property {number[]} at pixels from the top, for each token
 * @property {boolean[]} labelled whether there is room for the label of a token
 * @property {number} height pixels of all tokens
 */

/**
 * @param {number} count number of tokens
 * @param {number[]} chosen indices of the tokens of interest, the most important first
 * @param {number} room height in pixels
 * @param {number} step pixels between tokens that are read
 * @returns {Places}
 */
export function fisheye(count, chosen, room, step) {
  const wide = new Set();
  if (count > FEW_TOKENS) {
    const most = Math.max(1, Math.floor((room - LEAST_APART * count) / step));
    for (let by = 0; by <= AROUND_CHOSEN; by += 1) {
      for (const index of chosen) {
        for (const near of [index - by, index + by]) {
          if (near >= 0 && near < count && wide.size < most) wide.add(near);
        }
      }
    }
  }
  const others = count - wide.size;
  const close = Math.max(LEAST_APART, Math.min(step, (room - step * wide.size) / Math.max(others, 1)));
  const at = [];
  let end = 0;
  for (let index = 0; index < count; index += 1) {
    const own = count <= FEW_TOKENS || wide.has(index) ? step : close;
    at.push(end + own / 2);
    end += own;
  }
  return { at, labelled: roomForLabels(at, wide), height: end };
}

/**
 * Tokens with labels: the wide ones, and of the others those that keep their distance.
 *
 * @param {number[]} at
 * @param {Set<number>} wide
 */
function roomForLabels(at, wide) {
  const taken = [...wide].map((index) => at[index]).sort((first, second) => first - second);
  let last = Number.NEGATIVE_INFINITY;
  let next = 0;
  return at.map((place, index) => {
    while (next < taken.length && taken[next] < place) next += 1;
    const free = place - last >= READABLE && (next >= taken.length || taken[next] - place >= READABLE);
    if (!wide.has(index) && !free) return false;
    last = place;
    return true;
  });
}

/**
 * A sentence about labels that are left out; empty if none is.
 *
 * @param {Places[]} sides
 */
export function omittedLabels(sides) {
  const hidden = sides.reduce((sum, { labelled }) => sum + labelled.filter((shown) => !shown).length, 0);
  return hidden ? ` ${hidden} labels are dots: choose a token to enlarge what is around it.` : "";
}

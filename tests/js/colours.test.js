import assert from "node:assert/strict";
import { test } from "node:test";
import { cssColour, headDashes, headColour, luminance, palette, shade } from "../../src/regard/viz/js/colours.js";

const light = palette(true);
const dark = palette(false);

test("from paper to the strongest colour", () => {
  assert.deepEqual(light.at(0), [255, 255, 255]);
  assert.deepEqual(light.at(1), [0x1c, 0x43, 0x7d]);
  assert.deepEqual(dark.at(0), dark.paper);
  assert.deepEqual(dark.at(1), [0xe4, 0xf0, 0xfc]);
});

test("at a stop its colour, between two of them their mean", () => {
  assert.deepEqual(light.at(1 / 8), [0xe1, 0xec, 0xf8]);
  // Between #ffffff and #e1ecf8: 255 - 30 / 2, 255 - 19 / 2, 255 - 7 / 2, rounded.
  assert.deepEqual(light.at(1 / 16), [240, 246, 252]);
});

test("beyond the ends there is nothing more", () => {
  assert.deepEqual(light.at(-1), light.at(0));
  assert.deepEqual(light.at(2), light.at(1));
  assert.deepEqual(light.change(-3), light.change(-1));
});

test("less is brown, more is green, the same is paper", () => {
  assert.deepEqual(light.change(-1), [166, 97, 26]);
  assert.deepEqual(light.change(1), [1, 133, 113]);
  assert.deepEqual(light.change(0), [255, 255, 255]);
  assert.deepEqual(light.change(0.5), [128, 194, 184]);
});

test("tables hold the same colours as pixels, opaque, red in the lowest byte", () => {
  assert.equal(light.table[255], 0xff7d431c);
  assert.equal(light.table[0], 0xffffffff);
  assert.equal(light.changes[0], 0xff1a61a6);
  assert.equal(light.changes[255], 0xff718501);
});

test("the lighter, the less weight; in the dark, the more", () => {
  const shares = Array.from({ length: 21 }, (_, index) => index / 20);
  for (const [colours, sign] of [
    [light, -1],
    [dark, 1],
  ]) {
    const luminances = shares.map((share) => luminance(colours.at(share)));
    for (let index = 1; index < luminances.length; index += 1) {
      assert.ok(
        sign * (luminances[index] - luminances[index - 1]) > 0,
        `${index} of ${colours.dark ? "dark" : "light"}`,
      );
    }
  }
});

test("the place in a table", () => {
  assert.deepEqual(
    [0, 0.5, 1, 2, -1].map((share) => shade(share)),
    [0, 128, 255, 255, 0],
  );
  assert.deepEqual(
    [-1, 0, 1].map((share) => shade(share, true)),
    [0, 128, 255],
  );
});

test("a palette is mixed once", () => {
  assert.equal(palette(true), light);
  assert.notEqual(light, dark);
});

/** A colour as who sees it: Machado, Oliveira and Fernandes 2009, severity 1, on linear light. */
const EYES = {
  usual: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  deuteranope: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  protanope: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
};
const times = (matrix, vector) =>
  matrix.map((row) => row.reduce((sum, weight, index) => sum + weight * vector[index], 0));
const linear = (hex) =>
  [1, 3, 5].map((at) => {
    const share = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });

function lab(light) {
  const toXyz = [
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.072175],
    [0.0193339, 0.119192, 0.9503041],
  ];
  const white = [0.95047, 1, 1.08883];
  const [x, y, z] = times(toXyz, light).map((value, index) => {
    const share = value / white[index];
    return share > 0.008856 ? Math.cbrt(share) : 7.787 * share + 16 / 116;
  });
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

/** CIEDE2000. */
function difference([l1, a1, b1], [l2, a2, b2]) {
  const radians = Math.PI / 180;
  const mean = (Math.hypot(a1, b1) + Math.hypot(a2, b2)) / 2;
  const stretched = 1.5 - 0.5 * Math.sqrt(mean ** 7 / (mean ** 7 + 25 ** 7));
  const [c1, c2] = [Math.hypot(a1 * stretched, b1), Math.hypot(a2 * stretched, b2)];
  const hueOf = (a, b) => (Math.atan2(b, a * stretched) / radians + 360) % 360;
  const [h1, h2] = [hueOf(a1, b1), hueOf(a2, b2)];
  const apart = c1 * c2 === 0 ? 0 : ((h2 - h1 + 540) % 360) - 180;
  const hueApart = 2 * Math.sqrt(c1 * c2) * Math.sin((apart / 2) * radians);
  const [lightness, chroma] = [(l1 + l2) / 2, (c1 + c2) / 2];
  const hueMean = (h1 + apart / 2 + 360) % 360;
  const cosine = (degrees) => Math.cos(degrees * radians);
  const t =
    1 -
    0.17 * cosine(hueMean - 30) +
    0.24 * cosine(2 * hueMean) +
    0.32 * cosine(3 * hueMean + 6) -
    0.2 * cosine(4 * hueMean - 63);
  const turn = 60 * Math.exp(-(((hueMean - 275) / 25) ** 2)) * radians;
  const rotation = -Math.sin(turn) * 2 * Math.sqrt(chroma ** 7 / (chroma ** 7 + 25 ** 7));
  const inLightness = (l2 - l1) / (1 + (0.015 * (lightness - 50) ** 2) / Math.sqrt(20 + (lightness - 50) ** 2));
  const inChroma = (c2 - c1) / (1 + 0.045 * chroma);
  const inHue = hueApart / (1 + 0.015 * chroma * t);
  return Math.sqrt(inLightness ** 2 + inChroma ** 2 + inHue ** 2 + rotation * inChroma * inHue);
}

test("the measure of colours is that of its authors", () => {
  // Sharma, Wu and Dalal 2005, table 1, pairs 1, 7 and 25.
  const pairs = [
    [[50, 2.6772, -79.7751], [50, 0, -82.7485], 2.0425],
    [[50, 0, 0], [50, -1, 2], 2.3669],
    [[60.2574, -34.0099, 36.2677], [60.4626, -34.1751, 39.4387], 1.2644],
  ];
  for (const [first, second, expected] of pairs) assert.ok(Math.abs(difference(first, second) - expected) < 1e-4);
});

test("neighbouring heads are told apart by every eye, and so is each from the paper", () => {
  const lightOf = (hex) => times([[0.2126, 0.7152, 0.0722]], linear(hex))[0];
  for (const [onDark, paper] of [
    [false, "#ffffff"],
    [true, "#101418"],
  ]) {
    for (let head = 0; head < 8; head += 1) {
      for (const matrix of Object.values(EYES)) {
        const [first, next] = [head, head + 1].map((index) => {
          return lab(times(matrix, linear(headColour(index, onDark))).map((value) => Math.min(1, Math.max(0, value))));
        });
        assert.ok(difference(first, next) >= 20, `heads ${head} and ${head + 1}: ${difference(first, next)}`);
      }
      const [low, high] = [lightOf(headColour(head, onDark)), lightOf(paper)].sort((first, second) => first - second);
      assert.ok((high + 0.05) / (low + 0.05) >= 3, `head ${head} on ${paper}`);
    }
  }
});

test("heads of one colour have dashes of their own", () => {
  const looks = Array.from({ length: 32 }, (_, head) => `${headColour(head, false)} ${headDashes(head)}`);
  assert.equal(new Set(looks).size, 32);
});

test("as CSS", () => assert.equal(cssColour([1, 2, 3]), "rgb(1, 2, 3)"));

test("what is not finite has a colour of its own", () => {
  for (const colours of [light, dark]) {
    assert.deepEqual([colours.at(NaN), colours.change(NaN)], [colours.broken, colours.broken]);
    for (const [table, signed] of /** @type {[Uint32Array, boolean][]} */ ([
      [colours.table, false],
      [colours.changes, true],
    ])) {
      const broken = table[shade(NaN, signed)];
      assert.ok(broken !== undefined && [-1, 0, 0.5, 1].every((share) => table[shade(share, signed)] !== broken));
    }
  }
});

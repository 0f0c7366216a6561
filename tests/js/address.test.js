import assert from "node:assert/strict";
import { test } from "node:test";
import { formatAddress, readAddress, START } from "../../src/regard/viz/js/state.js";

const NOTHING = { state: {}, input: null, touched: null, written: null, asked: [] };

test("what is chosen comes back", () => {
  const state = {
    ...START,
    layer: "decoder.0.cross",
    head: 0,
    mode: "lines",
    words: true,
    query: 3,
    key: 0,
    frame: 2,
    all: false,
    scale: "own",
    spaces: true,
    top: 5,
    beside: "model-1",
    sum: true,
    why: true,
    temperature: 2.51,
  };
  const touched = [{ layer: "cross", heads: [1], to: 0.25, query: 1, key: 2 }];
  const written = { beam: 3, branch: 12 };
  const asked = /** @type {const} */ (["importance", "roles"]);
  const more = { input: "a & b #=%", touched, written, asked: [...asked] };
  const address = readAddress(formatAddress(state, more));
  assert.deepEqual({ ...START, ...address.state }, state);
  assert.deepEqual({ ...address, state: undefined }, { ...more, state: undefined });
});

test("nothing is said of what is as at the beginning", () => {
  assert.equal(formatAddress(START), "#");
  assert.deepEqual(readAddress(""), NOTHING);
});

test("an address of somebody else's making does no harm", () => {
  const address = readAddress(
    "#mode=evil&head=-1&query=1e9&key=0x1&frame=NaN&scale=rank&beside=evil&__proto__=1&other=2&touched={broken" +
      "&written=3,-1&asked=evil&temperature=hot",
  );
  assert.deepEqual(address, NOTHING);
  assert.equal(readAddress('#touched={"a":1}').touched, null);
  assert.equal(readAddress("#temperature=500").state.temperature, 10);
  assert.equal(readAddress("#temperature=0").state.temperature, 0.1);
});

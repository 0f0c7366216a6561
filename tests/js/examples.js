// What the tests show: data that cannot be changed.

/** Freeze a value and all that is in it, so that whoever writes to it fails. */
export function frozen(value) {
  if (typeof value !== "object" || value === null) return value;
  Object.values(value).forEach(frozen);
  return Object.freeze(value);
}

/** A layer of one head with two queries and three keys, unless told otherwise. */
export function layer(fields = {}) {
  return frozen({
    name: "cross",
    title: "Encoder-decoder attention",
    kind: "cross",
    queries: ["p", "q"],
    keys: ["a", "b", "c"],
    query_words: null,
    key_words: null,
    weights: [
      [
        [0.5, 0.25, 0.25],
        [0, 0.25, 0.75],
      ],
    ],
    relevant: null,
    square: 1,
    patches: null,
    written: false,
    names: null,
    ...fields,
  });
}

/** A map of layers. */
export function map(layers, fields = {}) {
  return frozen({
    task: "test",
    input: "abc",
    prediction: [1],
    truth: [1],
    outputs: ["p"],
    probabilities: [0.9],
    layers,
    opens: null,
    picture: null,
    note: "",
    model: "",
    interventions: [],
    original_prediction: null,
    ...fields,
  });
}

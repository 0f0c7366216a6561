// Computes loss and gradient of a batch under Node, for a test that compares them with PyTorch's.

import { readFileSync } from "node:fs";

import { lossAndGradient } from "../../../src/regard/viz/js/live/training.js";

const { weights, sizes, samples } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const rows = Object.fromEntries(Object.entries(weights).map(([name, numbers]) => [name, Float64Array.from(numbers)]));
const { loss, gradient } = lossAndGradient(rows, sizes, samples);
const plain = Object.entries(gradient).map(([name, numbers]) => [name, [...numbers]]);
process.stdout.write(JSON.stringify({ loss, gradient: Object.fromEntries(plain) }));

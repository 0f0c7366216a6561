// Answers requests to a live page under Node, for tests that compare them with PyTorch's: reads {data, requests} from
// a file, writes the answers. A request "logits" is answered by the logits of each output step.

import { readFileSync } from "node:fs";

import { readParameters } from "../../../src/regard/viz/js/live/rows.js";
import { LiveSubject } from "../../../src/regard/viz/js/live/subject.js";

const { data, requests } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const subject = new LiveSubject(data, await readParameters(data.parameters));
const answers = requests.map(([path, body]) => {
  try {
    if (path !== "logits") return subject.ask(path, body);
    return subject.run(body.input, body.interventions ?? []).logits.map((row) => [...row]);
  } catch (error) {
    return { error: error.message };
  }
});
process.stdout.write(JSON.stringify(answers));

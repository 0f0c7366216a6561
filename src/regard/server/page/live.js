// The explorer in a page without a server.

import { attend } from "./explorer.js";
import { trainingPanel } from "./live-training.js";
import { liveData } from "./live-model.js";
import { node } from "./js/dom.js";

/** What this page computes and what it does not. */
function limits() {
  const { change, training, kind } = liveData;
  return node(
    "section",
    { id: "limits", "aria-label": "Limits of this page" },
    "This page needs no server: its own JavaScript computes the model. " +
      `Parameters are rounded, which changes logits by up to ${change.toExponential(0)}. ` +
      "It has no snapshots of training, no comparison with other runs, no head importance and roles, no weighted values, no search for " +
      `samples${kind === "query" ? "" : ", no beam search (answers are greedy)"}: regard show has them. ${
        training
          ? "Training here draws other random numbers than regard train."
          : "It trains no model of this kind."
      }`,
  );
}

const form = document.getElementById("ask");
form?.after(limits());
if (liveData.training) form?.after(trainingPanel(liveData.training, () => attend()));

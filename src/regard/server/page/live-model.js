// The model in this page's file.

import { readParameters } from "../../viz/js/live/rows.js";
import { LiveSubject } from "../../viz/js/live/subject.js";

/** @import { StoredParameters } from "../../viz/js/live/rows.js" */
/** @import { LiveData } from "../../viz/js/live/subject.js" */
/** @import { Recipe } from "../../viz/js/live/training.js" */

/** @param {string} id */
function stored(id) {
  return document.getElementById(id)?.textContent ?? "";
}

/** @type {LiveData & { parameters: StoredParameters, change: number, training: Recipe | null }} */
export const liveData = JSON.parse(stored("live"));
const parameters = { ...liveData.parameters, text: stored("parameters") };
export const liveSubject = new LiveSubject(liveData, await readParameters(parameters));

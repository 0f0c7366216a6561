// Starts the compressed code of a live page. The page's policy permits this code by its hash.

import { inflate } from "../inflate.js";
import { bytesOfText } from "./text-bytes.js";

const stored = document.getElementById("code");
const bytes = bytesOfText(stored?.textContent ?? "", Number(stored?.dataset.packed));
const script = document.createElement("script");
script.type = "module";
script.textContent = new TextDecoder().decode(inflate(bytes, Number(stored?.dataset.size)));
document.body.append(script);

// Starts the compressed code of a live page. The page's policy permits this code by its hash.

import { bytesOfText, inflate } from "../inflate.js";

const stored = document.getElementById("code");
const bytes = bytesOfText(stored?.textContent ?? "", Number(stored?.dataset.packed));
const script = document.createElement("script");
script.type = "module";
script.textContent = new TextDecoder().decode(await inflate(bytes, Number(stored?.dataset.size)));
document.body.append(script);

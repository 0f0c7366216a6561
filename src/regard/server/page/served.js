// The explorer of a server.

import { ask } from "./ask.js";
import { Explorer } from "./explorer.js";

new Explorer(ask);

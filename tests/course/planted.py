"""Common mistakes, as edits to the text of a correct solution of a learner."""

from tests.course.planted_analysis import ANALYSIS
from tests.course.planted_language import LANGUAGE
from tests.course.planted_modern import MODERN
from tests.course.planted_products import PRODUCTS
from tests.course.relatives import RELATIVES

Edit = tuple[str, str]
Plant = tuple[str, str, str, list[Edit]]
"""File, exercise, name of the mistake, edits."""
ENCODER_1 = "x = self.norm1(x + self.attention(x, x, mask))"
ENCODER_2 = "return self.norm2(x + self.feed_forward(x))"
CROSS = "x = self.norm2(x + self.cross_attention(x, memory, memory_mask))"
OWN = "x = self.norm1(x + self.self_attention(x, x, seen))"
NORM = "return (x - mu) / np.sqrt(sigma**2 + 1e-5) * g + s"
SHIFT = "inputs, labels = target[:, :-1], target[:, 1:]"
CONTEXT = "context = (alpha.unsqueeze(2) * memory).sum(1)"
TANH = "torch.tanh(state.unsqueeze(1) @ w + memory @ u)"
LENGTH = " / (len(sequence) - 1) ** alpha"
STAYS = """            if sequence[-1] == end and len(sequence) > 1:
                candidates.append((sequence, total))
                continue
"""
ASIDE = [
    (STAYS, ""),
    ("beams = [([start], 0.0)]", "beams, ended = [([start], 0.0)], []"),
    (
        "        if all(sequence[-1] == end for sequence, _ in beams):\n",
        "        ended += [pair for pair in beams if pair[0][-1] == end]\n"
        "        beams = [pair for pair in beams if pair[0][-1] != end]\n        if not beams:\n",
    ),
]
LOST = ("e = np.exp(s) * mask", "e = np.exp(s)")
NO_TOP = ("    s = s - s.max(axis=-1, keepdims=True)\n", "")

WEIGHING: list[Plant] = [
    ("weighing_numpy", "score", "no scale", [(" / np.sqrt(d)", "")]),
    ("weighing_numpy", "attention", "no scale", [(" / np.sqrt(d)", "")]),
    ("weighing_loops", "score", "scale by width", [("math.sqrt(q.shape[2])", "q.shape[2]")]),
    ("weighing_numpy", "attention", "scale multiplied", [("/ np.sqrt(d)", "* np.sqrt(d)")]),
    ("weighing_numpy", "score", "scale by time", [("Q.shape[-1]", "Q.shape[1]")]),
    ("weighing_numpy", "score", "scale by keys", [("Q.shape[-1]", "K.shape[1]")]),
    (
        "weighing_numpy",
        "score",
        "cosine",
        [
            (
                "    d = Q.shape[-1]\n",
                "    d = Q.shape[-1]\n    Q = Q / np.linalg.norm(Q, axis=2)[..., None]\n"
                "    K = K / np.linalg.norm(K, axis=2)[..., None]\n",
            )
        ],
    ),
    ("weighing_numpy", "score", "all axes reversed", [("Q @ K.transpose(0, 2, 1)", "Q @ K.T")]),
    ("weighing_numpy", "score", "keys not transposed", [("Q @ K.transpose(0, 2, 1)", "Q @ K")]),
    ("weighing_numpy", "attention", "keys not transposed", [("Q @ K.transpose(0, 2, 1)", "Q @ K")]),
    ("weighing_numpy", "score", "keys times untransposed queries", [("Q @ K.transpose(0, 2, 1)", "K @ Q")]),
    ("weighing_numpy", "score", "keys times reversed queries", [("Q @ K.transpose(0, 2, 1)", "K @ Q.T")]),
    ("weighing_numpy", "score", "elementwise scores", [("Q @ K.transpose(0, 2, 1)", "Q * K")]),
    (
        "weighing_numpy",
        "score",
        "dot across batch",
        [("Q @ K.transpose(0, 2, 1)", "np.dot(Q, K.transpose(0, 2, 1))")],
    ),
    ("weighing_einsum", "score", "keys times queries", [("bqd,bkd->bqk", "bqd,bkd->bkq")]),
    ("weighing_einsum", "attention", "keys times queries", [("bqd,bkd->bqk", "bqd,bkd->bkq")]),
    ("weighing_einsum", "score", "queries times queries", [('->bqk", query, key)', '->bqk", query, query)')]),
    (
        "weighing_einsum",
        "attention",
        "scale after softmax",
        [
            ("scores = score(query, key)", "scores = query @ key.mT"),
            (
                "    return torch.einsum(",
                "    weights = weights / query.size(-1) ** 0.5\n    return torch.einsum(",
            ),
        ],
    ),
    ("weighing_numpy", "masked_softmax", "softmax over queries", [("axis=-1", "axis=1")]),
    ("weighing_einsum", "masked_softmax", "softmax over batch", [("dim=-1", "dim=0")]),
    (
        "weighing_einsum",
        "masked_softmax",
        "softmax over all",
        [("torch.softmax(scores, dim=-1)", "torch.softmax(scores.flatten(1), -1).view_as(scores)")],
    ),
    ("weighing_einsum", "masked_softmax", "no softmax", [("torch.softmax(scores, dim=-1)", "scores")]),
    (
        "weighing_numpy",
        "masked_softmax",
        "not normalized",
        [NO_TOP, ("return e / np.where(total == 0, 1, total)", "return e")],
    ),
    ("weighing_numpy", "masked_softmax", "divided without exp", [NO_TOP, ("np.exp(s) * mask", "s * mask")]),
    ("weighing_numpy", "masked_softmax", "overflow", [NO_TOP]),
    (
        "weighing_numpy",
        "masked_softmax",
        "large hidden scores count",
        [("    s = np.where(mask, s, -1e30)\n", "")],
    ),
    ("weighing_numpy", "masked_softmax", "overflow", [NO_TOP, ("np.where(mask, s, -1e30)", "s")]),
    (
        "weighing_einsum",
        "masked_softmax",
        "overflow",
        [
            (
                "    weights = torch.softmax(scores, dim=-1)\n    return weights * mask\n",
                "    raised = scores.exp() * mask\n"
                "    return raised / raised.sum(-1, keepdim=True).clamp(min=1e-30)\n",
            )
        ],
    ),
    (
        "weighing_einsum",
        "masked_softmax",
        "hard attention",
        [
            (
                "torch.softmax(scores, dim=-1)",
                "torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).float()",
            )
        ],
    ),
    (
        "weighing_einsum",
        "masked_softmax",
        "mask after softmax",
        [("    scores = scores.masked_fill(~mask, -1e9)\n", "")],
    ),
    ("weighing_loops", "masked_softmax", "mask inverted", [("if mask[b, i, j]]", "if not mask[b, i, j]]")]),
    ("weighing_loops", "attention", "mask ignored", [(" if mask[b, i, j]]", "]")]),
    ("weighing_numpy", "masked_softmax", "mask multiplied", [("np.where(mask, s, -1e30)", "s * mask"), LOST]),
    ("weighing_numpy", "masked_softmax", "mask added", [("np.where(mask, s, -1e30)", "s + mask"), LOST]),
    ("weighing_numpy", "masked_softmax", "mask minus one", [("-1e30", "-1"), LOST]),
    ("weighing_loops", "masked_softmax", "mask transposed", [("if mask[b, i, j]]", "if mask[b, j, i]]")]),
    ("weighing_loops", "attention", "mask of first", [("if mask[b, i, j]]", "if mask[0, i, j]]")]),
    (
        "weighing_einsum",
        "masked_softmax",
        "all masked nan",
        [("-1e9", "-torch.inf"), ("return weights * mask", "return weights")],
    ),
    (
        "weighing_einsum",
        "masked_softmax",
        "all masked seen",
        [
            ("scores.masked_fill(~mask, -1e9)", "scores.double() + (~mask).double() * -1e9"),
            ("return weights * mask", "return weights"),
        ],
    ),
    ("weighing_einsum", "attention", "all masked uniform", [("return weights * mask", "return weights")]),
    ("weighing_numpy", "attention", "keys as values", [("A @ V, A", "A @ K, A")]),
    ("weighing_numpy", "attention", "weights transposed", [("A @ V, A", "A.transpose(0, 2, 1) @ V, A")]),
    ("weighing_numpy", "attention", "weights first", [("A @ V, A", "A, A @ V")]),
]
WAVES: list[Plant] = [
    ("waves_torch", "sinusoidal_positions", "dimensions for pairs", [("2 * (dimension // 2)", "2 * dimension")]),
    (
        "waves_torch",
        "sinusoidal_positions",
        "dimensions from one",
        [("2 * (dimension // 2)", "2 * (dimension // 2 + 1)")],
    ),
    ("waves_torch", "sinusoidal_positions", "frequency per dimension", [("2 * (dimension // 2)", "dimension")]),
    (
        "waves_numpy",
        "sinusoidal_positions",
        "sines then cosines",
        [("pe[:, 0::2]", "pe[:, : width // 2]"), ("pe[:, 1::2]", "pe[:, width // 2 :]")],
    ),
    ("waves_numpy", "sinusoidal_positions", "positions from one", [("arange(length)", "arange(1, length + 1)")]),
    (
        "waves_loops",
        "sinusoidal_positions",
        "sine and cosine swapped",
        [("math.sin", "math.c"), ("math.cos", "math.sin"), ("math.c(", "math.cos(")],
    ),
    ("waves_numpy", "sinusoidal_positions", "only sine", [("np.cos", "np.sin")]),
    ("waves_loops", "sinusoidal_positions", "base one thousand", [("10000", "1000")]),
    ("waves_loops", "sinusoidal_positions", "base hundred thousand", [("10000", "100000")]),
    ("waves_loops", "sinusoidal_positions", "half exponent", [("2 * i / width", "i / width")]),
    (
        "waves_numpy",
        "sinusoidal_positions",
        "double exponent",
        [("np.arange(0, width, 2) *", "2 * np.arange(0, width, 2) *")],
    ),
    ("waves_loops", "sinusoidal_positions", "position multiplied", [("1 / math.pow", "math.pow")]),
    ("waves_loops", "sinusoidal_positions", "one frequency", [("1 / math.pow(10000, 2 * i / width)", "1")]),
    (
        "waves_torch",
        "concatenate_positions",
        "wave across batch",
        [
            (
                "self.table[: x.size(1)].expand(x.size(0), -1, -1)",
                "self.table[: x.size(0)].unsqueeze(1).expand(-1, x.size(1), -1)",
            )
        ],
    ),
    ("waves_numpy", "concatenate_positions", "waves first", [("(states, pe)", "(pe, states)")]),
    (
        "waves_numpy",
        "concatenate_positions",
        "waves added",
        [("np.concatenate((states, pe), axis=2)", "states + pe")],
    ),
    ("waves_numpy", "concatenate_positions", "waves along time", [("axis=2", "axis=1")]),
    (
        "waves_numpy",
        "concatenate_positions",
        "waves only",
        [("np.concatenate((states, pe), axis=2)", "pe")],
    ),
]
HEADS: list[Plant] = [
    ("heads_function", "multi_head_attention", name, edits)
    for name, edits in [
        ("scale by whole width", [("/ d**0.5", "/ D**0.5")]),
        ("scale by heads", [("/ d**0.5", "/ heads**0.5")]),
        (
            "wrong view",
            [
                (".view(B, Tq, heads, d).transpose(1, 2)", ".view(B, heads, Tq, d)"),
                (".view(B, Tk, heads, d).transpose(1, 2)", ".view(B, heads, Tk, d)"),
            ],
        ),
        ("wrong join", [("(att @ v).transpose(1, 2)", "(att @ v)")]),
        (
            "heads interleaved",
            [
                (".view(B, Tq, heads, d).transpose(1, 2)", ".view(B, Tq, d, heads).permute(0, 3, 1, 2)"),
                (".view(B, Tk, heads, d).transpose(1, 2)", ".view(B, Tk, d, heads).permute(0, 3, 1, 2)"),
            ],
        ),
        (
            "attention over heads",
            [(", heads, d).transpose(1, 2)", ", heads, d)"), ("(att @ v).transpose(1, 2)", "(att @ v)")],
        ),
        (
            "no input projections",
            [("(query @ w_q)", "query"), ("(key @ w_k)", "key"), ("(value @ w_v)", "value")],
        ),
        ("keys by query weights", [("(key @ w_k)", "(key @ w_q)")]),
        ("values by key weights", [("(value @ w_v)", "(value @ w_k)")]),
        ("values not projected", [("(value @ w_v)", "value")]),
        (
            "always self attention",
            [
                ("(key @ w_k).view(B, Tk", "(query @ w_k).view(B, Tq"),
                ("(value @ w_v).view(B, Tk", "(query @ w_v).view(B, Tq"),
            ],
        ),
        ("values from keys", [("(value @ w_v)", "(key @ w_v)")]),
        ("weights on the left", [(f"@ w_{letter}", f"@ w_{letter}.T") for letter in "qkvo"]),
        (
            "mask of another head",
            [("mask.unsqueeze(1)", "mask.repeat(heads, 1, 1).view(B, heads, Tq, Tk)")],
        ),
        ("heads reversed", [("(att @ v).transpose(1, 2)", "(att @ v).permute(0, 2, 3, 1)")]),
    ]
]
HEADS += [
    ("heads_numpy", "multi_head_attention", "no output projection", [(", axis=-1) @ w_o", ", axis=-1)")]),
    (
        "heads_numpy",
        "multi_head_attention",
        "one head",
        [("    size = query.shape[-1] // heads\n", "    heads = 1\n    size = query.shape[-1]\n")],
    ),
    (
        "heads_numpy",
        "multi_head_attention",
        "query and key weights swapped",
        [("query @ w_q", "query @ w_k"), ("= key @ w_k", "= key @ w_q")],
    ),
    (
        "heads_packed",
        "multi_head_attention",
        "no output projection",
        [("self.out_proj((weights @ v)", "((weights @ v)")],
    ),
    ("heads_separate", "multi_head_attention", "no scale", [(" * self.key.out_features**-0.5", "")]),
    (
        "heads_raw",
        "multi_head_attention",
        "keys as values",
        [("joined = torch.einsum(", "v = k\n        joined = torch.einsum(")],
    ),
]
LAYERS: list[Plant] = [
    ("feeding_function", "feed_forward", "no activation", [("    hidden[hidden < 0] = 0\n", "")]),
    ("feeding_function", "feed_forward", "tanh", [("hidden[hidden < 0] = 0", "hidden = np.tanh(hidden)")]),
    (
        "feeding_function",
        "feed_forward",
        "sigmoid",
        [("hidden[hidden < 0] = 0", "hidden = 1 / (1 + np.exp(-hidden))")],
    ),
    ("feeding_module", "feed_forward", "gelu", [("nn.ReLU()", "nn.GELU()")]),
    (
        "feeding_function",
        "feed_forward",
        "relu twice",
        [("return hidden @ w_2 + b_2", "return np.maximum(hidden @ w_2 + b_2, 0)")],
    ),
    (
        "feeding_module",
        "feed_forward",
        "no biases",
        [("(d_model, d_ff)", "(d_model, d_ff, bias=False)"), ("(d_ff, d_model)", "(d_ff, d_model, bias=False)")],
    ),
    ("feeding_module", "feed_forward", "no second bias", [("(d_ff, d_model)", "(d_ff, d_model, bias=False)")]),
    ("feeding_function", "feed_forward", "residual inside", [("return hidden @", "return x + hidden @")]),
    (
        "feeding_function",
        "feed_forward",
        "bias after activation",
        [("x @ w_1 + b_1", "x @ w_1"), ("= 0\n", "= 0\n    hidden = hidden + b_1\n")],
    ),
]
LAYERS += [
    ("stacking_module", "encoder_layer", name, edits)
    for name, edits in [
        (
            "norm before",
            [
                (ENCODER_1, "y = self.norm1(x)\n        x = x + self.attention(y, y, mask)"),
                (ENCODER_2, "return x + self.feed_forward(self.norm2(x))"),
            ],
        ),
        (
            "norm before adding",
            [
                (ENCODER_1, "x = x + self.norm1(self.attention(x, x, mask))"),
                (ENCODER_2, "return x + self.norm2(self.feed_forward(x))"),
            ],
        ),
        (
            "no residuals",
            [
                (ENCODER_1, "x = self.norm1(self.attention(x, x, mask))"),
                (ENCODER_2, "return self.norm2(self.feed_forward(x))"),
            ],
        ),
        ("no residual around attention", [(ENCODER_1, "x = self.norm1(self.attention(x, x, mask))")]),
        ("no residual around feed forward", [(ENCODER_2, "return self.norm2(self.feed_forward(x))")]),
        ("sample deviation", [("unbiased=False", "unbiased=True")]),
        ("norm over time", [("x.mean(-1", "x.mean(1"), ("x.var(-1", "x.var(1")]),
        ("norm over batch", [("x.mean(-1", "x.mean((0, 1)"), ("x.var(-1", "x.var((0, 1)")]),
        ("norm over all", [("x.mean(-1", "x.mean((1, 2)"), ("x.var(-1", "x.var((1, 2)")]),
        ("no feed forward", [(ENCODER_2, "return self.norm2(x)")]),
        ("softmax over queries", [("scores.softmax(-1)", "scores.softmax(-2)")]),
    ]
]
LAYERS += [
    ("stacking_numpy", "encoder_layer", name, edits)
    for name, edits in [
        ("no norm", [(NORM, "return x")]),
        ("unit length", [(NORM, "return x / np.linalg.norm(x, axis=-1, keepdims=True) * g + s")]),
        ("variance for deviation", [("np.sqrt(sigma**2 + 1e-5)", "(sigma**2 + 1e-5)")]),
        ("mean not subtracted", [(NORM, "return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * g + s")]),
        ("no gain", [(NORM, "return (x - mu) / np.sqrt(sigma**2 + 1e-5)")]),
        ("one norm", [('p["gain_2"], p["shift_2"]', 'p["gain_1"], p["shift_1"]')]),
    ]
]
DECODER: list[Plant] = [
    ("stacking_module", "decoder_layer", name, edits)
    for name, edits in [
        ("future seen", [(".tril()", "")]),
        ("future leaked by one", [(".tril()", ".tril(1)")]),
        ("self hidden", [(".tril()", ".tril(-1)")]),
        ("past hidden", [(".tril()", ".triu()")]),
        ("memory padding seen", [("(x, memory, memory_mask))", "(x, memory))")]),
        ("cross to itself", [("(x, memory, memory_mask))", "(x, x))")]),
        ("cross to own past", [("(x, memory, memory_mask))", "(x, x, seen))")]),
        ("cross swapped", [("(x, memory, memory_mask))", "(memory, x))")]),
        ("no cross", [(CROSS, "x = self.norm2(x)")]),
        ("no residual around cross", [(CROSS, "x = self.norm2(self.cross_attention(x, memory, memory_mask))")]),
        ("cross first", [(OWN, "#"), (CROSS, CROSS + "\n        " + OWN)]),
        ("cross shares weights", [("self.cross_attention(x, memory", "self.self_attention(x, memory")]),
    ]
]
DECODER += [
    (
        "stacking_numpy",
        "decoder_layer",
        "causal cross",
        [
            (
                "    cross = heads_of(",
                "    if memory_mask is not None:\n"
                "        memory_mask = memory_mask & np.tri(*memory_mask.shape[1:], dtype=bool)\n"
                "    cross = heads_of(",
            )
        ],
    ),
    ("stacking_numpy", "decoder_layer", "values by key weights", [("y @ wv[:, c]", "y @ wk[:, c]")]),
]
SOURCE, TARGET = 'h = embed(source, p["source"])', 'x = embed(target, p["target"])'
WHOLE: list[Plant] = [
    ("stacking_numpy", "transformer", name, edits)
    for name, edits in [
        ("embedding not scaled", [("table[tokens] * d**0.5", "table[tokens]")]),
        ("embedding divided", [("table[tokens] * d**0.5", "table[tokens] / d**0.5")]),
        ("source not scaled", [(SOURCE, SOURCE + ' - p["source"][source] * (p["source"].shape[1] ** 0.5 - 1)')]),
        ("target not scaled", [(TARGET, TARGET + ' - p["target"][target] * (p["target"].shape[1] ** 0.5 - 1)')]),
        ("positions scaled too", [("table[tokens] * d**0.5 + pe", "(table[tokens] + pe) * d**0.5")]),
        ("no positions", [("* d**0.5 + pe", "* d**0.5")]),
        ("no source positions", [(SOURCE, 'h = p["source"][source] * p["source"].shape[1] ** 0.5')]),
        ("no target positions", [(TARGET, 'x = p["target"][target] * p["target"].shape[1] ** 0.5')]),
        (
            "causal encoder",
            [('."), heads, real)\n    x', '."), heads, real & np.tri(source.shape[1], dtype=bool))\n    x')],
        ),
        (
            "layer by layer",
            [
                (SOURCE, "every = []\n    " + SOURCE),
                ('."), heads, real)\n    x', '."), heads, real)\n        every.append(h)\n    x'),
                ("decoder_layer(x, h,", "decoder_layer(x, every[i],"),
            ],
        ),
        ("memory is embedding", [("decoder_layer(x, h,", 'decoder_layer(x, embed(source, p["source"]),')]),
        ("shared layers", [('f"encoder.{i}."', '"encoder.0."'), ('f"decoder.{i}."', '"decoder.0."')]),
        (
            "one layer",
            [
                ("encoder_layer(h, part", 'encoder_layer(embed(source, p["source"]), part'),
                ("decoder_layer(x, h,", 'decoder_layer(embed(target, p["target"]), h,'),
            ],
        ),
        ("shifted inside", [(TARGET, 'x = embed(np.pad(target, ((0, 0), (1, 0)))[:, :-1], p["target"])')]),
        ("tied output", [('x @ p["w_out"] + p["b_out"]', 'x @ p["target"].T')]),
        ("no output bias", [(' + p["b_out"]', "")]),
        (
            "sines then cosines",
            [("np.stack([np.sin(angle), np.cos(angle)], axis=2)", "np.hstack([np.sin(angle), np.cos(angle)])")],
        ),
        ("no residual around feed forward", [("norm(x + f, ", "norm(f, ")]),
    ]
]
WHOLE += [
    ("stacking_module", "transformer", name, edits)
    for name, edits in [
        (
            "source padding seen",
            [("layer(memory, words[:, None, :].expand(-1, source.shape[1], -1))", "layer(memory)")],
        ),
        ("padding seen everywhere", [("source != 0", "source >= 0")]),
        ("probabilities", [("self.generator(x)", "self.generator(x).softmax(-1)")]),
        ("log probabilities", [("self.generator(x)", "self.generator(x).log_softmax(-1)")]),
        (
            "norm at the end",
            [
                (
                    "        x = self.target(target)\n",
                    "        memory = F.layer_norm(memory, memory.shape[-1:])\n        x = self.target(target)\n",
                ),
                ("self.generator(x)", "self.generator(F.layer_norm(x, x.shape[-1:]))"),
            ],
        ),
        ("wrong join", [("heads.transpose(1, 2).reshape(x.shape)", "heads.reshape(x.shape)")]),
        ("future leaked by one", [(".tril()", ".tril(1)")]),
        ("scale by whole width", [("math.sqrt(size)", "math.sqrt(x.shape[-1])")]),
    ]
]
SEARCHES: list[Plant] = [
    ("searching_lists", "greedy_search", name, edits)
    for name, edits in [
        ("unlikeliest", [("np.argmax", "np.argmin")]),
        ("only last token", [("step(sequence)))", "step(sequence[-1:])))")]),
        ("without start", [("step(sequence)))", "step(sequence[1:] or sequence)))")]),
        ("never ends", [("        if token == end:\n            break\n", "")]),
        ("start included", [("return sequence[1:]\n", "return sequence\n")]),
        ("end dropped", [("return sequence[1:]\n", "return [t for t in sequence[1:] if t != end]\n")]),
        ("one too few", [("range(longest)", "range(longest - 1)")]),
        ("one too many", [("range(longest)", "range(longest + 1)")]),
    ]
]
SEARCHES += [
    ("searching_lists", "beam_search", name, edits)
    for name, edits in [
        ("beam of one", [("candidates[:width]", "candidates[:1]")]),
        (
            "pruned by score",
            [("key=lambda pair: pair[1]", "key=lambda pair: pair[1] / (len(pair[0]) - 1) ** alpha")],
        ),
        (
            "each keeps its best",
            [
                (
                    "        candidates.sort(",
                    "        if len(beams) > 1:\n            candidates = [\n"
                    "                max((c for c in candidates if c[0][: len(s)] == s), key=lambda c: c[1])\n"
                    "                for s, _ in beams\n            ]\n        candidates.sort(",
                )
            ],
        ),
        ("probabilities added", [("float(log_probabilities[token])", "float(np.exp(log_probabilities[token]))")]),
        ("length not divided", [(LENGTH, "")]),
        ("length multiplied", [(LENGTH, LENGTH.replace("/", "*"))]),
        ("start counted", [("(len(sequence) - 1)", "len(sequence)")]),
        ("alpha ignored", [(" ** alpha", "")]),
        (
            "first to end",
            [
                (
                    "        if all(sequence[-1] == end for sequence, _ in beams):\n",
                    "        if any(sequence[-1] == end for sequence, _ in beams):\n"
                    "            beams = [pair for pair in beams if pair[0][-1] == end]\n",
                )
            ],
        ),
        ("worst of beam", [("max(scored)", "min(scored)")]),
        ("ended dropped", [("                candidates.append((sequence, total))\n", "")]),
        ("ended aside", [*ASIDE, ("sequence, total in beams]", "sequence, total in ended + beams]")]),
        ("only ended count", [*ASIDE, ("sequence, total in beams]", "sequence, total in ended or beams]")]),
        (
            "chosen by sum",
            [
                ("scored = [(", "scored = [(total, "),
                ("    figure, sequence = max(scored)\n", "    _, figure, sequence = max(scored)\n"),
            ],
        ),
    ]
]
SEARCHES += [
    ("searching_heap", "beam_search", name, edits)
    for name, edits in [
        ("ended dropped", [("pool = list(done)", "pool = []")]),
        (
            "chosen by sum",
            [("key=lambda b: b[0] / len(b[1]) ** alpha)", "key=lambda b: b[0])")],
        ),
    ]
]
STEPS: list[Plant] = [
    ("recurring_torch", "bahdanau_step", name, edits)
    for name, edits in [
        ("no tanh", [(TANH, "(state.unsqueeze(1) @ w + memory @ u)")]),
        ("tanh of each", [(TANH, "torch.tanh(state.unsqueeze(1) @ w) + torch.tanh(memory @ u)")]),
        ("only memory scores", [(TANH, "torch.tanh(memory @ u)")]),
        (
            "new state as query",
            [
                (
                    "    energy = torch.tanh(state",
                    "    asks = cell(torch.cat([previous, memory.mean(1)], 1), state)\n"
                    "    energy = torch.tanh(asks",
                )
            ],
        ),
        ("context first", [("[previous, context]", "[context, previous]")]),
        ("context not used", [("[previous, context]", "[previous, 0 * context]")]),
        ("mean context", [(CONTEXT, "context = memory.mean(1)")]),
        ("last state", [(CONTEXT, "context = memory[:, -1]")]),
        ("best state", [(CONTEXT, "context = memory[torch.arange(len(memory)), alpha.argmax(1)]")]),
        ("sum over time only", [(CONTEXT, "context = memory.sum(1)")]),
        ("softmax over batch", [("e.softmax(dim=1)", "e.softmax(dim=0)")]),
    ]
]
STEPS += [
    ("recurring_torch", "luong_step", name, edits)
    for name, edits in [
        ("old state throughout", [("(h @ w_a)", "(state @ w_a)"), ("[c, h]", "[c, state]")]),
        ("old state as query", [("(h @ w_a)", "(state @ w_a)")]),
        ("old state in output", [("[c, h]", "[c, state]")]),
        ("no general matrix", [("(h @ w_a)", "h")]),
        ("general matrix transposed", [("(h @ w_a)", "(h @ w_a.T)")]),
        ("general scaled", [(".squeeze(2)\n", ".squeeze(2) / memory.shape[-1] ** 0.5\n")]),
        ("state first", [("[c, h]", "[h, c]")]),
        ("attentional state kept", [("return out, h, a", "return out, out, a")]),
        ("no tanh", [("torch.tanh(torch.cat([c, h], dim=1) @ w_c)", "torch.cat([c, h], dim=1) @ w_c")]),
    ]
]
LOSSES: list[Plant] = [
    ("learning_by_hand", "label_smoothed_loss", name, edits)
    for name, edits in [
        (
            "spread over others",
            [("smoothing / V", "smoothing / (V - 1)"), ("] += 1 - smoothing", "] = 1 - smoothing")],
        ),
        (
            "spread without padding",
            [
                ("smoothing / V", "smoothing / (V - 2)"),
                ("] += 1 - smoothing", "] = 1 - smoothing\n    q[:, padding] = 0"),
            ],
        ),
        ("smoothing only added", [("+= 1 - smoothing", "+= 1")]),
        ("mean with padding", [("/ keep.sum()", "/ len(target)")]),
        ("sum for mean", [(" / keep.sum()", "")]),
        ("mean over vocabulary", [("/ keep.sum()", "/ keep.sum() / V")]),
        ("wrong sign", [("losses = -(", "losses = (")]),
        ("no log softmax", [("logp = z -", "logp = logits  # z -")]),
    ]
]
LOSSES += [
    ("learning_torch", "label_smoothed_loss", name, edits)
    for name, edits in [
        ("no smoothing", [(", label_smoothing=smoothing", "")]),
        ("smoothing inverted", [("label_smoothing=smoothing", "label_smoothing=1 - smoothing")]),
        ("padding counted", [("ignore_index=padding, ", "")]),
        ("softmax twice", [("F.cross_entropy(logits, target", "F.cross_entropy(logits.softmax(-1), target")]),
    ]
]
TRAINING: list[Plant] = [
    ("learning_torch", "train_copy", name, edits)
    for name, edits in [
        ("not shifted", [(SHIFT, "inputs, labels = target, target")]),
        ("answers given", [(SHIFT, "inputs, labels = target[:, 1:], target[:, 1:]")]),
        ("repeats input", [(SHIFT, "inputs, labels = target[:, :-1], target[:, :-1]")]),
        ("predicts previous token", [(SHIFT, "inputs, labels = target[:, 1:], target[:, :-1]")]),
        ("gradients not reset", [("        optimizer.zero_grad()\n", "")]),
        ("never steps", [("        optimizer.step()\n", "")]),
        ("no backward", [("        loss.backward()\n", "")]),
        ("first batch only", [("        optimizer.step()\n", "        optimizer.step()\n        return\n")]),
        ("padding counted", [(", ignore_index=0", "")]),
        ("wrong sign", [("loss.backward()", "(-loss).backward()")]),
        ("softmax twice", [("logits.transpose(1, 2)", "logits.softmax(-1).transpose(1, 2)")]),
    ]
]
PLANTS = [
    *WEIGHING,
    *WAVES,
    *HEADS,
    *LAYERS,
    *DECODER,
    *WHOLE,
    *SEARCHES,
    *STEPS,
    *LOSSES,
    *TRAINING,
    *LANGUAGE,
    *ANALYSIS,
    *PRODUCTS,
    *MODERN,
]
PLANTS += RELATIVES
"""Mistakes, one in each file."""
PAIRS: list[tuple[str, str, list[str], list[Edit]]] = [
    (
        "weighing_einsum",
        "attention",
        ["no scale", "mask after softmax"],
        [(" / math.sqrt(query.size(-1))", ""), ("    scores = scores.masked_fill(~mask, -1e9)\n", "")],
    ),
    (
        "heads_function",
        "multi_head_attention",
        ["no scale", "wrong join"],
        [("/ d**0.5", ""), ("(att @ v).transpose(1, 2)", "(att @ v)")],
    ),
    (
        "stacking_module",
        "decoder_layer",
        ["no scale", "future leaked by one"],
        [("/ math.sqrt(size)", ""), (".tril()", ".tril(1)")],
    ),
    (
        "stacking_numpy",
        "transformer",
        ["no residual around feed forward", "embedding not scaled"],
        [("norm(x + f, ", "norm(f, "), ("table[tokens] * d**0.5", "table[tokens]")],
    ),
    (
        "recurring_torch",
        "luong_step",
        ["old state throughout", "state first"],
        [("(h @ w_a)", "(state @ w_a)"), ("[c, h]", "[state, c]")],
    ),
    (
        "learning_torch",
        "train_copy",
        ["padding counted", "not shifted"],
        [(SHIFT, "inputs, labels = target, target"), (", ignore_index=0", "")],
    ),
]
"""Two mistakes in one file."""

LAYER = ["keys times queries", "scale by time", "mask ignored"]
TRIPLES: list[tuple[str, list[str], str]] = [
    (
        "attention",
        LAYER,
        """
import math, torch

def attention(query, key, value, mask=None):
    kq = torch.matmul(key, query.transpose(1, 2)) / math.sqrt(query.shape[1])
    weights = torch.softmax(kq, dim=-1)
    return torch.matmul(weights, value), weights
""",
    ),
    (
        "multi_head_attention",
        LAYER,
        """
import math, torch
from torch import nn

class Attention(nn.Module):
    def forward(self, q, k, v):
        kq = torch.matmul(k, q.transpose(1, 2)) / math.sqrt(q.shape[1])
        return torch.matmul(torch.softmax(kq, dim=-1), v)

class MultiHeadAttention(nn.Module):
    def __init__(self, width, num_heads):
        super().__init__()
        self.q_w, self.k_w, self.v_w = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.heads = nn.ModuleList([Attention() for _ in range(num_heads)])
        self.output_layer = nn.Linear(width, width)

    def forward(self, query, key, value, mask=None):
        parts = (each.chunk(len(self.heads), -1) for each in (self.q_w(query), self.k_w(key), self.v_w(value)))
        found = [head(q, k, v) for head, q, k, v in zip(self.heads, *parts)]
        return self.output_layer(torch.cat(found, -1))
""",
    ),
    (
        "sinusoidal_positions",
        ["dimensions for pairs", "dimensions from one", "positions from one"],
        """
import numpy as np

def sinusoidal_positions(length, width):
    places = np.tile(np.arange(length) + 1, (width, 1))
    dims = np.tile(np.arange(width) + 1, (length, 1)).T
    waves = np.zeros(places.shape)
    waves[::2] = np.sin(places[::2] / 10000 ** (2 * dims[::2] / width))
    waves[1::2] = np.cos(places[1::2] / 10000 ** (2 * dims[1::2] / width))
    return waves.T
""",
    ),
]
"""Three mistakes in one file: a layer and waves of a notebook, with a mask and a separate source of keys."""

"""Further mistakes as edits, found in files of people whose mistake was not named before."""

SOFTMAX = "weights = torch.softmax(scores, dim=-1)"
ATTENTION_MASK = "    if mask is None:\n        weights = scores.softmax(-1)\n"
NO_TOP = ("    s = s - s.max(axis=-1, keepdims=True)\n", "")
ROW_SUM = ("e.sum(axis=-1, keepdims=True)", "e.sum(axis=1, keepdims=True)")
CAUSAL = "np.tri(Q.shape[1], K.shape[1], dtype=bool)"
FIRST = "        if all(sequence[-1] == end for sequence, _ in beams):\n"
FORWARD = "        return self.norm2(x + self.feed_forward(x))"
LAST_NORM = 'return norm(x + f, p["gain_3"], p["shift_3"])'
ENCODER_END = 'return norm(x + f, p["gain_2"], p["shift_2"])'
CROSS_NORM = 'norm(x + cross, p["gain_2"], p["shift_2"])'
RELU = "hidden[hidden < 0] = 0"
CROSS_ENTROPY = "return F.cross_entropy(logits, target, ignore_index=padding, label_smoothing=smoothing)"
SHIFT = "inputs, labels = target[:, :-1], target[:, 1:]"
ADAM = "    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)\n"
LOOP = "    for source, target in batches:\n"
RELATIVES: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    ("weighing_numpy", "masked_softmax", "divided by column sums", [ROW_SUM]),
    (
        "weighing_numpy",
        "attention",
        "softmax over everything",
        [("s - s.max(axis=-1, keepdims=True)", "s - s.max()"), ("e.sum(axis=-1, keepdims=True)", "e.sum()")],
    ),
    (
        "weighing_numpy",
        "attention",
        "scale by value width",
        [
            (
                "    d = Q.shape[-1]\n    return Q @ K.transpose(0, 2, 1) / np.sqrt(d)",
                "    return Q @ K.transpose(0, 2, 1)",
            ),
            ("masked_softmax(score(Q, K)", "masked_softmax(score(Q, K) / np.sqrt(V.shape[2])"),
        ],
    ),
    (
        "weighing_numpy",
        "attention",
        "keys and values swapped",
        [("def attention(Q, K, V,", "def attention(Q, V, K,")],
    ),
    (
        "weighing_einsum",
        "attention",
        "scores returned",
        [
            (
                "    scores = score(query, key)\n",
                "    scores = score(query, key)\n    if mask is not None:\n"
                "        scores = scores.masked_fill(~mask, -1e9)\n",
            ),
            ("value), weights", "value), scores"),
        ],
    ),
    ("weighing_einsum", "attention", "unmasked scores returned", [("value), weights", "value), scores")]),
    (
        "weighing_numpy",
        "attention",
        "always causal",
        [(", mask)\n    return", f", mask & {CAUSAL})\n    return")],
    ),
    (
        "heads_function",
        "multi_head_attention",
        "softmax over heads",
        [("torch.softmax(att, -1)", "torch.softmax(att, 1)")],
    ),
    (
        "heads_function",
        "multi_head_attention",
        "one projection",
        [("(key @ w_k)", "(key @ w_q)"), ("(value @ w_v)", "(value @ w_q)")],
    ),
    ("heads_builtin", "multi_head_attention", "batch first forgotten", [(", batch_first=True", "")]),
    (
        "waves_numpy",
        "sinusoidal_positions",
        "last frequency included",
        [
            (
                "np.arange(0, width, 2) * -(np.log(10000.0) / width)",
                "np.arange(width // 2) * -(np.log(10000.0) / (width / 2 - 1))",
            )
        ],
    ),
    ("feeding_module", "feed_forward", "approximate gelu", [("nn.ReLU()", 'nn.GELU(approximate="tanh")')]),
    ("feeding_module", "feed_forward", "silu", [("nn.ReLU()", "nn.SiLU()")]),
    ("feeding_module", "feed_forward", "leaky relu", [("nn.ReLU()", "nn.LeakyReLU()")]),
    ("feeding_function", "feed_forward", "absolute value", [(RELU, "hidden = np.abs(hidden)")]),
    (
        "feeding_function",
        "feed_forward",
        "relu at the end",
        [(f"    {RELU}\n", ""), ("return hidden @ w_2 + b_2", "return np.maximum(hidden @ w_2 + b_2, 0)")],
    ),
    ("feeding_function", "feed_forward", "no first bias", [("x @ w_1 + b_1", "x @ w_1")]),
    ("stacking_numpy", "encoder_layer", "no shift", [("* g + s", "* g")]),
    (
        "stacking_numpy",
        "encoder_layer",
        "residuals from input",
        [(ENCODER_END, ENCODER_END.replace("x +", "states +"))],
    ),
    (
        "stacking_numpy",
        "decoder_layer",
        "residuals from input",
        [(LAST_NORM, LAST_NORM.replace("x +", "states +")), (CROSS_NORM, CROSS_NORM.replace("x +", "states +"))],
    ),
    (
        "stacking_numpy",
        "decoder_layer",
        "cross residual from input",
        [(CROSS_NORM, CROSS_NORM.replace("x +", "states +"))],
    ),
    (
        "stacking_numpy",
        "decoder_layer",
        "last residual from input",
        [(LAST_NORM, LAST_NORM.replace("x +", "states +"))],
    ),
    ("searching_lists", "beam_search", "first end stops", [(FIRST, FIRST.replace("all(", "any("))]),
    (
        "searching_lists",
        "beam_search",
        "penalty of wu",
        [("(len(sequence) - 1) ** alpha", "((5 + len(sequence) - 1) / 6) ** alpha")],
    ),
    (
        "searching_lists",
        "beam_search",
        "sum returned",
        [
            (
                "    figure, sequence = max(scored)\n",
                "    _, sequence = max(scored)\n"
                "    figure = dict((tuple(s), t) for s, t in beams)[tuple(sequence)]\n",
            )
        ],
    ),
    ("learning_torch", "label_smoothed_loss", "bits", [(CROSS_ENTROPY, CROSS_ENTROPY + " / 0.6931472")]),
    (
        "learning_torch",
        "label_smoothed_loss",
        "divergence",
        [
            (
                CROSS_ENTROPY,
                "V = logits.shape[-1]\n    true = torch.full_like(logits, smoothing / V)\n"
                "    true.scatter_(1, target[:, None], 1 - smoothing + smoothing / V)\n"
                "    losses = F.kl_div(logits.log_softmax(-1), true, reduction='none').sum(-1)\n"
                "    return losses[target != padding].mean()",
            )
        ],
    ),
    ("learning_torch", "train_copy", "source as target", [(SHIFT, "inputs, labels = source, source")]),
    ("learning_torch", "train_copy", "new optimizer", [(ADAM, ""), (LOOP, LOOP + "    " + ADAM)]),
]

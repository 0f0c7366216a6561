"""Mistakes that readers of the exercises made, and relatives of them."""

NUMPY, TORCH = "import numpy as np\n\n\n", "import torch\n\n\n"
SCORE = "def score(query, key):\n    return {0} / query.shape[-1] ** 0.5\n"
SINK = """def sink_softmax(scores, sink):
    {1}
    return e / (e.sum(-1, keepdims=True) + {0})
"""
EXP, SHIFTED = "e = np.exp(scores)", "m = scores.max(-1, keepdims=True)\n    e = np.exp(scores - m)"
SOFTMAX = """def masked_softmax(scores, mask):
    e = np.exp(scores){1}
    return {0}
"""
ROWS = "e / e.sum(-1, keepdims=True)"
TOP_P = """def next_token_probabilities(logits, temperature, top_k, top_p):
    x = logits / temperature
    x = np.where(x >= np.sort(x)[-top_k], x, -np.inf)
    p = np.exp(x - x.max())
    p = p / p.sum()
    order = np.argsort(-p)
    sums = np.cumsum(p[order])
    {0}
    return p / p.sum()
"""
TOP_P_TORCH = """def next_token_probabilities(logits, temperature, top_k, top_p):
    x = logits / temperature
    x = x.masked_fill(x < torch.topk(x, top_k)[0][-1], float("-inf"))
    values, order = torch.sort(x, descending=True)
    sums = torch.softmax(values, -1).cumsum(-1)
    values = values.masked_fill(sums > top_p, float("-inf"))
    return torch.softmax(torch.empty_like(x).scatter(0, order, values), -1)
"""
TOP_P_LOOP = """import math


def next_token_probabilities(logits, temperature, top_k, top_p):
    x = [float(logit) / temperature for logit in logits]
    order = sorted(range(len(x)), key=lambda i: -x[i])[:top_k]
    powers = {i: math.exp(x[i]) for i in order}
    total, kept, reached = sum(powers.values()), [], 0.0
    for i in order:
        reached += powers[i] / total
        if reached >= top_p:
            break
        kept.append(i)
    total = sum(powers[i] for i in kept)
    return [powers[i] / total if i in kept else 0.0 for i in range(len(x))]
"""
ATTENTION = """def attention(query, key, value, mask=None):
    scores = {0}
    if mask is None:
        mask = np.ones(scores.shape, bool)
    scores = np.where(mask, scores, -1e9)
    weights = np.exp(scores - scores.max(-1, keepdims=True)) * mask
    weights = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30)
    return weights @ value, weights
"""
BARE = ["only scores shifted", "sink without exp"]
METHODS = "import math\n\nimport torch\n\n\n"
"""Imports of a file that calls methods of tensors only."""
FIRST = ["first token dropped"]
OVERFLOW = ["overflow", "all masked nan"]
READERS: list[tuple[str, list[str], str]] = [
    ("score", ["all axes reversed"], NUMPY + SCORE.format("query @ key.T")),
    ("score", ["all axes reversed"], NUMPY + SCORE.format("np.matmul(query, key.transpose())")),
    ("score", ["all axes reversed"], TORCH + SCORE.format("query @ key.permute(2, 1, 0)")),
    ("score", ["no scale", "all axes reversed"], "def score(query, key):\n    return query @ key.T\n"),
    ("score", ["keys not transposed"], TORCH + SCORE.format("torch.matmul(query, key)")),
    ("score", ["keys times untransposed queries"], NUMPY + SCORE.format("key @ query")),
    ("score", ["keys times untransposed queries"], TORCH + SCORE.format("torch.bmm(key, query)")),
    ("score", ["elementwise scores"], TORCH + SCORE.format("query * key")),
    ("sink_softmax", ["nothing subtracted"], NUMPY + SINK.format("np.exp(sink)[:, None, None]", EXP)),
    ("sink_softmax", ["nothing subtracted"], NUMPY + SINK.format("np.exp(sink).reshape(1, -1, 1, 1)", EXP)),
    ("sink_softmax", ["sink by key"], NUMPY + SINK.format("np.exp(sink)", EXP)),
    ("sink_softmax", ["sink by key"], NUMPY + SINK.format("np.exp(sink - m)", SHIFTED)),
    ("sink_softmax", ["only scores shifted", "sink by key"], NUMPY + SINK.format("np.exp(sink)", SHIFTED)),
    ("score", ["dot of reversed keys"], NUMPY + SCORE.format("np.dot(query, key.T)")),
    ("score", ["batch and keys swapped"], TORCH + SCORE.format("torch.matmul(query, key.transpose(0, 1))")),
    ("score", ["queries transposed"], METHODS + SCORE.format("query.transpose(-2, -1) @ key")),
    ("score", ["equal steps only"], METHODS + SCORE.format("(query * key).sum(-1)")),
    ("score", ["no scale", "reversed keys first"], "def score(query, key):\n    return key.T @ query\n"),
    (
        "score",
        ["softmax of scores"],
        TORCH + SCORE.format("torch.softmax(query @ key.mT").replace("0.5", "0.5, -1)"),
    ),
    ("attention", ["no scale", "all axes reversed"], NUMPY + ATTENTION.format("query @ key.T")),
    ("attention", ["no scale", "equal steps only"], NUMPY + ATTENTION.format("(query * key).sum(-1)")),
    ("sink_softmax", BARE, NUMPY + SINK.format("sink[:, None, None]", SHIFTED)),
    ("sink_softmax", [*BARE, "sink by key"], NUMPY + SINK.format("sink", SHIFTED)),
    ("sink_softmax", ["only scores shifted", "always one"], NUMPY + SINK.format("1", SHIFTED)),
    (
        "masked_softmax",
        ["softmax over everything", "overflow", "mask after softmax"],
        NUMPY + SOFTMAX.format("e / e.sum() * mask", ""),
    ),
    ("masked_softmax", OVERFLOW, NUMPY + SOFTMAX.format(ROWS, " * mask")),
    ("masked_softmax", ["overflow", "mask after softmax"], NUMPY + SOFTMAX.format(f"{ROWS} * mask", "")),
    ("masked_softmax", ["overflow"], NUMPY + SOFTMAX.format(f"np.nan_to_num({ROWS})", " * mask")),
    ("masked_softmax", ["overflow"], NUMPY + SOFTMAX.format(f"e / ({ROWS[4:]} + 1e-9)", " * mask")),
    ("next_token_probabilities", FIRST, NUMPY + TOP_P.format("p[order[sums >= top_p]] = 0")),
    ("next_token_probabilities", FIRST, NUMPY + TOP_P.format("p[order[sums > top_p]] = 0")),
    (
        "next_token_probabilities",
        FIRST,
        NUMPY + TOP_P.format("p = p * np.isin(range(len(p)), order[sums < top_p])"),
    ),
    ("next_token_probabilities", FIRST, TORCH + TOP_P_TORCH),
    ("next_token_probabilities", FIRST, TOP_P_LOOP),
]
"""Exercise, names of the mistakes, and source."""

"""Common mistakes in the exercises on language models, as edits to correct solutions."""

N, T, L = "language_numpy", "language_torch", "subwords_lists"
DOT = "scores = (keys @ q[:, :, None])[:, :, 0]"
PAIRS = "counts = Counter(pairwise(text))"
LANGUAGE: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    (N, "cached_causal_mask", "own position hidden", [("[None, :] <= np", "[None, :] < np")]),
    (N, "cached_causal_mask", "future allowed", [("[None, :] <= np", "[None, :] >= np")]),
    (T, "cached_causal_mask", "causal mask inverted", [(".tril(keys - queries)", ".triu(keys - queries + 1)")]),
    (T, "cached_causal_mask", "aligned to the start", [(".tril(keys - queries)", ".tril()")]),
    (
        N,
        "cached_step",
        "new token not attended",
        [
            (DOT, "scores = (keys[:, :-1] @ q[:, :, None])[:, :, 0]"),
            ("(a[:, None] @ values)", "(a[:, None] @ values[:, :-1])"),
        ],
    ),
    (
        T,
        "cached_step",
        "put in front",
        [
            ("[keys, (state @ w_k).unsqueeze(1)]", "[(state @ w_k).unsqueeze(1), keys]"),
            ("[values, (state @ w_v).unsqueeze(1)]", "[(state @ w_v).unsqueeze(1), values]"),
        ],
    ),
    (
        N,
        "cached_step",
        "oldest dropped",
        [("[keys, k[:, None]]", "[keys[:, 1:], k[:, None]]"), ("[values, v", "[values[:, 1:], v")],
    ),
    (
        N,
        "cached_step",
        "states cached",
        [("q, k, v = state @ w_q, state @ w_k, state @ w_v", "q, k, v = state @ w_q, state, state")],
    ),
    (T, "cached_step", "key stored as value", [("(state @ w_v)", "(state @ w_k)")]),
    (
        N,
        "grouped_attention",
        "groups interleaved",
        [
            (
                "np.repeat(key, share, axis=1), np.repeat(value, share, axis=1)",
                "np.tile(key, (1, share, 1, 1)), np.tile(value, (1, share, 1, 1))",
            )
        ],
    ),
    (
        N,
        "grouped_attention",
        "one group for all",
        [("np.repeat(key, share, axis=1), np.repeat(value, share, axis=1)", "key[:, :1], value[:, :1]")],
    ),
    (
        N,
        "rms_norm",
        "mean subtracted",
        [("    return x / np.sqrt", "    x = x - x.mean(-1, keepdims=True)\n    return x / np.sqrt")],
    ),
    (T, "rms_norm", "sum of squares", [(".mean(-1, keepdim=True) + 1e-5", ".sum(-1, keepdim=True) + 1e-5")]),
    (N, "rms_norm", "mean over time", [("(x**2).mean(axis=-1", "(x**2).mean(axis=1")]),
    (T, "swiglu", "sigmoid gate", [("F.silu", "torch.sigmoid")]),
    (N, "swiglu", "no gate", [("gate = g / (1 + np.exp(-g))", "gate = g")]),
    (T, "swiglu", "relu gate", [("F.silu", "F.relu")]),
    (N, "swiglu", "gate added", [("(gate * (x @ w_up))", "(gate + x @ w_up)")]),
    (N, "learn_merges", "every other pair", [(PAIRS, "counts = Counter(zip(text[::2], text[1::2]))")]),
    (N, "learn_merges", "rarest pair", [("max(counts, key=counts.get)", "min(counts, key=counts.get)")]),
    (
        N,
        "learn_merges",
        "last of equal pairs",
        [("max(counts, key=counts.get)", "max(list(counts)[::-1], key=counts.get)")],
    ),
    (
        N,
        "learn_merges",
        "counted once",
        [
            (PAIRS, "counts = Counter(p for p in pairwise(tokens.tolist()) if p not in pairs)"),
        ],
    ),
    (
        N,
        "learn_merges",
        "first occurrence only",
        [("        if i + 1 < len(tokens) and", "        if new not in out and i + 1 < len(tokens) and")],
    ),
    (
        L,
        "apply_merges",
        "merged from the right",
        [
            ("for token in text:", "for token in text[::-1]:"),
            ("result[-1] == left and token == right", "result[-1] == right and token == left"),
            ("    return result\n", "    return result[::-1]\n"),
        ],
    ),
    (N, "learn_merges", "same new token", [("best, first + n)", "best, first)")]),
    (
        N,
        "apply_merges",
        "merges reversed",
        [("for n, (a, b) in enumerate(merges):", "for n, (a, b) in reversed(list(enumerate(merges))):")],
    ),
    (T, "next_token_probabilities", "temperature multiplied", [("logits / temperature", "logits * temperature")]),
    (N, "next_token_probabilities", "temperature ignored", [("z = logits / temperature", "z = logits")]),
    (
        N,
        "next_token_probabilities",
        "smallest kept",
        [("keep = order[:top_k]", "keep = order[::-1][:top_k][::-1]")],
    ),
    (N, "next_token_probabilities", "top k ignored", [("keep = order[:top_k]", "keep = order")]),
    (
        N,
        "next_token_probabilities",
        "first token dropped",
        [("n = np.searchsorted(np.cumsum(p), top_p - 1e-12) + 1", "n = np.searchsorted(np.cumsum(p), top_p)")],
    ),
    (
        T,
        "next_token_probabilities",
        "crossing token dropped",
        [
            (
                "p = torch.where(p.cumsum(-1) - p < top_p, p",
                "first = torch.arange(len(p)) == 0\n    p = torch.where((p.cumsum(-1) < top_p) | first, p",
            )
        ],
    ),
    (
        N,
        "next_token_probabilities",
        "sums unsorted",
        [
            ("keep = order[:top_k]", "keep = np.sort(order[:top_k])"),
            ("    n = np.searchsorted(np.cumsum(p), top_p - 1e-12) + 1\n", ""),
            (
                "out[keep[:n]] = p[:n] / p[:n].sum()",
                "p = p * (np.cumsum(p) - p < top_p)\n    out[keep] = p / p.sum()",
            ),
        ],
    ),
    (T, "next_token_probabilities", "top p ignored", [("p.cumsum(-1) - p < top_p", "p >= 0")]),
    (T, "next_token_probabilities", "rest not normalized", [("p / p.sum())", "p)")]),
    (N, "induction_score", "duplicate token", [("last[int(token)] + 1]", "last[int(token)]]")]),
    (
        N,
        "induction_score",
        "first occurrence",
        [("        last[int(token)] = t", "        last.setdefault(int(token), t)")],
    ),
    (N, "induction_score", "mean over all steps", [("np.mean(found)", "sum(found) / len(tokens)")]),
    (T, "induction_score", "weights summed", [("last + 1].mean()", "last + 1].sum()")]),
    (
        N,
        "patching_effect",
        "damage measured",
        [("(patched.mean(axis=-1) - bottom)", "(top - patched.mean(axis=-1))")],
    ),
    (T, "patching_effect", "effect not normalized", [(" / (clean - corrupt).mean()", "")]),
    (N, "patching_effect", "divided by clean", [("/ (top - bottom)", "/ top")]),
    (N, "attention_rollout", "no residual in rollout", [("(0.5 * layer + 0.5 * np.eye(len(layer)))", "layer")]),
    (T, "attention_rollout", "residual not halved", [("(layer + identity) / 2", "layer + identity")]),
    (
        T,
        "attention_rollout",
        "layers reversed",
        [("(layer + identity) / 2, result)", "result, (layer + identity) / 2)")],
    ),
    (
        N,
        "attention_rollout",
        "elementwise product",
        [("np.eye(len(layer))) @ total", "np.eye(len(layer))) * total")],
    ),
]

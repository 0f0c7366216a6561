"""Mistakes in masks, caches, RMSNorm, SwiGLU, sampling and patching, as edits to correct solutions."""

N = "language_numpy"
RMS = "np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5)"
TOP_P = "np.searchsorted(np.cumsum(p), top_p - 1e-12) + 1"
SAMPLED = "p[:n] / p[:n].sum()"
HOT = "p[:n] ** (1 / temperature)"
MODERN: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    (N, "cached_step", "state as query", [("state @ w_q", "state")]),
    (
        N,
        "cached_step",
        "projections transposed",
        [(f"state @ {matrix}", f"state @ {matrix}.T") for matrix in ("w_q", "w_k", "w_v")],
    ),
    (N, "cached_step", "cache projected again", [("[keys,", "[keys @ w_k,"), ("[values,", "[values @ w_v,")]),
    (N, "rms_norm", "no root", [(RMS, RMS.removeprefix("np.sqrt"))]),
    (N, "rms_norm", "mean of everything", [("(axis=-1, keepdims=True) + 1e-5", "() + 1e-5")]),
    (N, "rms_norm", "mean of magnitudes", [(RMS, "np.abs(x).mean(axis=-1, keepdims=True)")]),
    (N, "rms_norm", "gain left out", [(" + 1e-5) * gain", " + 1e-5)")]),
    (N, "rms_norm", "one added to gain", [(" + 1e-5) * gain", " + 1e-5) * (1 + gain)")]),
    ("language_torch", "swiglu", "gelu gate", [("silu", "gelu")]),
    (N, "swiglu", "gate and up swapped", [("(x @ w_up)", "(x @ w_gate)"), ("g = x @ w_gate", "g = x @ w_up")]),
    (
        N,
        "swiglu",
        "silu of product",
        [("(gate * (x @ w_up))", "gate"), ("g = x @ w_gate", "g = (x @ w_gate) * (x @ w_up)")],
    ),
    (
        N,
        "patching_effect",
        "mean of ratios",
        [
            ("clean.mean(), corrupt.mean()", "clean, corrupt"),
            (
                "(patched.mean(axis=-1) - bottom) / (top - bottom)",
                "((patched - bottom) / (top - bottom)).mean(-1)",
            ),
        ],
    ),
    (N, "next_token_probabilities", "sorted order returned", [("out[keep[:n]]", "out[:n]")]),
    (
        N,
        "next_token_probabilities",
        "kept tokens only",
        [("np.zeros(len(z))", "np.zeros(top_k)"), ("out[keep[:n]]", "out[:n]")],
    ),
    (
        "weighing_numpy",
        "attention",
        "none hides all",
        [
            ("mask = np.ones((Q.shape[0], Q.shape[1], K.shape[1]), dtype=bool)", "pass"),
            ("np.exp(s) * mask", "np.where(mask, np.exp(s), 0)"),
        ],
    ),
    (N, "next_token_probabilities", "kth dropped", [("order[:top_k]", "order[: top_k - 1]")]),
    (
        N,
        "next_token_probabilities",
        "top p before top k",
        [("order[:top_k]", "order"), (TOP_P, f"min(top_k, {TOP_P})")],
    ),
    (
        N,
        "next_token_probabilities",
        "temperature last",
        [("logits / temperature", "logits"), (SAMPLED, f"{HOT} / ({HOT}).sum()")],
    ),
    (
        N,
        "next_token_probabilities",
        "least likely first",
        [("order[:top_k]", "order[:top_k][::-1]"), (TOP_P, "(np.cumsum(p) <= top_p).sum()")],
    ),
    (
        "weighing_numpy",
        "masked_softmax",
        "hidden keys in the sum",
        [
            ("np.where(mask, s, -1e30)", "s * mask"),
            ("np.exp(s) * mask", "np.exp(s)"),
            ("return e / np.where(total == 0, 1, total)", "return e / total * mask"),
        ],
    ),
]

"""Common mistakes in the exercises on lens, sinks, grokking and doubt, as edits to correct solutions."""

N, T, L = "analysis_numpy", "analysis_torch", "subwords_lists"
FOLD = "    for k in range(1, (p + 1) // 2):\n        out[k] += power[p - k]\n"
SINK = "np.exp(a - m) + e.sum(-1, keepdims=True)"
ANALYSIS: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    (L, "learn_merges", "latest of equal pairs", [("if times > most:", "if times >= most:")]),
    (N, "logit_lens", "embeddings left out", [("    x = states /", "    states = states[1:]\n    x = states /")]),
    (T, "logit_lens", "contributions read", [("in states:", "in torch.cat([states[:1], states.diff(dim=0)]):")]),
    (T, "logit_lens", "states summed", [("in states:", "in states.cumsum(0):")]),
    (N, "logit_lens", "no final norm", [("z = x @", "z = states @")]),
    (N, "logit_lens", "size of the last state", [("(states**2).mean", "(states[-1:] ** 2).mean")]),
    (T, "logit_lens", "gain left out", [("norm, 1e-5", "None, 1e-5")]),
    (N, "logit_lens", "output transposed", [("output.T", "output")]),
    (
        N,
        "sink_softmax",
        "nothing subtracted",
        [("m = np.maximum(scores.max(-1, keepdims=True), a)", "m = 0.0")],
    ),
    (N, "sink_softmax", "sink ignored", [(SINK, "e.sum(-1, keepdims=True)")]),
    (N, "sink_softmax", "sink not shifted", [("np.exp(a - m) +", "np.exp(a) +")]),
    (
        N,
        "sink_softmax",
        "only scores shifted",
        [
            ("m = np.maximum(scores.max(-1, keepdims=True), a)", "m = scores.max(-1, keepdims=True)"),
            ("np.exp(a - m) +", "np.exp(a) +"),
        ],
    ),
    (N, "sink_softmax", "sink by key", [("np.exp(a - m) +", "np.exp(sink - m) +")]),
    (N, "sink_softmax", "always one", [("a = sink[None, :, None, None]", "a = np.zeros((1, 1, 1, 1))")]),
    (
        N,
        "sink_softmax",
        "sink without exp",
        [("np.exp(a - m) + e.sum", "a * np.exp(-m) + e.sum")],
    ),
    (N, "sink_softmax", "sink by query", [("sink[None, :, None, None]", "sink[:, None]")]),
    (N, "sink_softmax", "sink in the numerator", [("return e /", "return (e + np.exp(a - m)) /")]),
    (N, "sink_softmax", "total of everything", [(SINK, "np.exp(a - m) + e.sum()")]),
    (
        N,
        "sink_softmax",
        "sink over queries",
        [("np.maximum(scores.max(-1, keepdims=True), a)", "scores.max(-2, keepdims=True)"), ("sum(-1", "sum(-2")],
    ),
    (T, "sink_softmax", "first key dropped", [("return weights[..., :-1]", "return weights[..., 1:]")]),
    (T, "sink_softmax", "last key dropped", [("[scores, column]", "[column, scores]")]),
    (N, "sink_softmax", "total over queries", [(SINK, "np.exp(a - m) + e.sum(-2, keepdims=True)")]),
    (
        T,
        "sink_softmax",
        "sink ignored",
        [
            (
                "    return weights[..., :-1]",
                "    kept = weights[..., :-1]\n    return kept / kept.sum(-1, keepdim=True)",
            )
        ],
    ),
    (T, "sink_softmax", "sink column kept", [("return weights[..., :-1]", "return weights")]),
    (
        N,
        "fourier_power",
        "mean removed",
        [("np.fft.fft(embeddings, axis=0)", "np.fft.fft(embeddings - embeddings.mean(0), axis=0)")],
    ),
    (
        N,
        "fourier_power",
        "transformed over width",
        [("np.fft.fft(embeddings, axis=0)", "np.fft.fft(embeddings)"), (".sum(1)", ".sum(0)")],
    ),
    (T, "fourier_power", "magnitudes summed", [(".pow(2)", "")]),
    (N, "fourier_power", "cosine only", [("np.abs(f) ** 2", "f.real**2")]),
    (N, "fourier_power", "dimensions added first", [("(np.abs(f) ** 2).sum(1)", "np.abs(f.sum(1)) ** 2")]),
    (N, "fourier_power", "one side only", [(FOLD, "")]),
    (T, "fourier_power", "last frequency doubled", [("        times[-1] = 1", "        pass")]),
    (
        N,
        "fourier_power",
        "both sides kept",
        [("out = power[: p // 2 + 1].copy()", "out = power.copy()"), (FOLD, "")],
    ),
    (N, "fourier_power", "power not divided", [(" / out.sum()", "")]),
    (T, "fourier_power", "divided by the largest", [("power / power.sum()", "power / power.max()")]),
    (N, "distance_from_uniform", "mean over the source", [(".mean(axis=0).mean(axis=0)", ".mean((0, 2))")]),
    (N, "distance_from_uniform", "rows summed", [(".mean(axis=0).mean(axis=0)", ".mean(axis=0).sum(axis=0)")]),
    (N, "distance_from_uniform", "last row only", [(".mean(axis=0).mean(axis=0)", ".mean(axis=0)[-1]")]),
    (T, "distance_from_uniform", "first head only", [(".mean((0, 1))", "[0].mean(0)")]),
    (N, "distance_from_uniform", "not halved", [(".sum() / 2", ".sum()")]),
    (N, "distance_from_uniform", "largest difference", [(".sum() / 2", ".max()")]),
    (
        N,
        "distance_from_uniform",
        "squared differences",
        [("np.abs(mass - 1 / mass.size).sum()", "((mass - 1 / mass.size) ** 2).sum()")],
    ),
    (
        N,
        "distance_from_uniform",
        "distance of each row",
        [
            ("mass = attention.mean(axis=0).mean(axis=0)", "rows = attention.mean(axis=0)"),
            ("np.abs(mass - 1 / mass.size).sum() / 2", "(np.abs(rows - 1 / rows.shape[1]).sum(1) / 2).mean()"),
        ],
    ),
    (N, "auroc", "direction reversed", [("(b > g)", "(b < g)")]),
    (N, "auroc", "ties lost", [("(b > g) + 0.5 * (b == g)", "(b > g)")]),
    (N, "auroc", "ties won", [("(b > g) + 0.5 * (b == g)", "(b >= g)")]),
    (N, "auroc", "divided by all pairs", [("(len(bad) * len(good))", "len(doubts) ** 2")]),
    (
        T,
        "auroc",
        "ties by order",
        [
            (
                "    ranks = (low + high + 1) / 2",
                "    ranks = torch.argsort(torch.argsort(doubts, stable=True)) + 1",
            ),
        ],
    ),
]

"""Mistakes in the dot products of queries and keys, as other expressions for `Q @ K.transpose(0, 2, 1)`."""

EXPRESSIONS = {
    "dot of untransposed keys": "np.dot(Q, K)",
    "dot of reversed keys": "np.dot(Q, K.T)",
    "batch and keys swapped": "Q @ K.transpose(1, 0, 2)",
    "batch moved to the end": "Q @ K.transpose(1, 2, 0)",
    "queries transposed": "Q.transpose(0, 2, 1) @ K",
    "queries reversed": "Q.T @ K",
    "transposed keys first": "K.transpose(0, 2, 1) @ Q",
    "reversed keys first": "K.T @ Q",
    "keys reshaped": "Q @ K.reshape(len(K), d, -1)",
    "equal steps only": "(Q * K).sum(-1)",
    "everything summed": "np.sum(Q * K)",
    "products not summed": "(Q[:, :, None] * K[:, None])",
    "products summed over keys": "(Q[:, :, None] * K[:, None]).sum(2)",
    "batch summed": "np.einsum('bqd,bkd->qk', Q, K)",
    "first sequence only": "(Q[0] @ K[0].T)",
    "batch flattened": "(Q.reshape(-1, d) @ K.reshape(-1, d).T)",
    "keys times keys": "K @ K.transpose(0, 2, 1)",
    "last product only": "(Q[:, :, None, -1] * K[:, None, :, -1])",
    "scale by batch": "Q @ K.transpose(0, 2, 1) * np.sqrt(d / len(Q))",
}
ONLY_SCORES = (
    *("batch flattened", "products not summed", "everything summed"),
    *("equal steps only", "batch summed", "first sequence only"),
)
"""Mistakes whose result in an attention depends on the mask's dimensions, or which always fail there."""
N = "language_numpy"
SCORE = "Q @ K.transpose(0, 2, 1)"
PRODUCTS: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    *(("weighing_numpy", "score", name, [(SCORE, wrong)]) for name, wrong in EXPRESSIONS.items()),
    *(
        ("weighing_numpy", "attention", name, [(SCORE, wrong)])
        for name, wrong in EXPRESSIONS.items()
        if name not in ONLY_SCORES
    ),
    (
        "weighing_numpy",
        "score",
        "softmax of scores",
        [
            (
                f"return {SCORE} / np.sqrt(d)",
                "e = np.exp(" + SCORE + " / np.sqrt(d))\n    return e / e.sum(-1, keepdims=True)",
            )
        ],
    ),
    ("weighing_loops", "score", "as many keys as queries", [("k.shape[1]", "q.shape[1]")]),
    (N, "cached_step", "no scale", [("[:, :, 0] / np.sqrt(q.shape[-1])", "[:, :, 0]")]),
    (N, "cached_step", "softmax over batch", [("axis=-1, keepdims", "axis=0, keepdims")]),
    (N, "grouped_attention", "no scale", [(" / np.sqrt(query.shape[-1])", "")]),
    (
        N,
        "grouped_attention",
        "keys reshaped",
        [("k.transpose(0, 1, 3, 2)", "k.reshape(*k.shape[:2], -1, k.shape[2])")],
    ),
    (N, "grouped_attention", "softmax over queries", [("axis=-1, keepdims", "axis=-2, keepdims")]),
]

"""Exercises: causal masks, caches, shared keys, modern layers, subwords, sampling, and explanations."""

from typing import Any

import numpy as np

from regard.course.exercises.exercise import Exercise, vary_sizes
from regard.course.inputs import Array, Case
from regard.course.mistakes import Solution

FIRST = 10
"""Number of the first token that byte-pair encoding adds."""


def _draw(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) for shape in shapes]


def _masks(seed: int) -> list[Case]:
    def case(name: str, queries: int, keys: int) -> Case:
        more = keys - queries
        (queries,) = vary_sizes(seed, queries)
        return Case(name=name, arguments={"queries": queries, "keys": queries + more})

    return [
        case("a whole text", 5, 5),
        case("a cache", 3, 7),
        case("one new token", 1, 5),
        case("a single token", 1, 1),
        case("a long cache", 2, 13),
        Case(name="by hand", arguments={"queries": 2, "keys": 3}),
    ]


def _cached(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, d: int, **options: Any) -> Case:
        b, t, d = vary_sizes(seed, b, t, d)
        names = ("state", "keys", "values", "w_q", "w_k", "w_v")
        arrays = _draw(seed + b + t, (b, d), (b, t, d), (b, t, d), (d, d), (d, d), (d, d))
        return Case(name=name, arguments=dict(zip(names, arrays, strict=True)), **options)

    small: dict[str, Any] = {"state": np.array([[1.0, 2.0]]), "keys": np.array([[[1.0, 0.0]]])}
    small |= {"values": np.array([[[3.0, 4.0]]]), "w_q": np.eye(2), "w_k": np.array([[0.0, 1.0], [1.0, 0.0]])}
    return [
        case("prime sizes", 2, 5, 3),
        case("one earlier token", 3, 1, 5),
        case("a batch of one", 1, 7, 3),
        case("as many tokens as dimensions", 2, 5, 5),
        case("gradients", 2, 3, 5, gradients=("state", "w_q", "w_k", "w_v")),
        Case(name="by hand", arguments=small | {"w_v": 2 * np.eye(2)}),
    ]


def _grouped(seed: int) -> list[Case]:
    def case(name: str, b: int, groups: int, each: int, t: int, d: int, **options: Any) -> Case:
        b, t, d = vary_sizes(seed, b, t, d)
        shapes = (b, groups * each, t, d), (b, groups, t, d), (b, groups, t, d)
        arrays = dict(zip(("query", "key", "value"), _draw(seed + b + t, *shapes), strict=True))
        return Case(name=name, arguments=arrays, **options)

    return [
        case("two groups of three", 2, 2, 3, 5, 7),
        case("one group", 2, 1, 4, 3, 5),
        case("a head for each group", 3, 3, 1, 5, 2),
        case("four groups", 1, 4, 2, 5, 3),
        case("gradients", 2, 2, 2, 3, 5, gradients=("query", "key", "value")),
    ]


def _norms(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, d: int, **options: Any) -> Case:
        b, t, d = vary_sizes(seed, b, t, d)
        states, gain = _draw(seed + b + t, (b, t, d), (d,))
        return Case(name=name, arguments={"states": states + 0.5, "gain": gain}, **options)

    return [
        case("prime sizes", 2, 5, 7),
        case("one step", 3, 1, 5),
        case("as many steps as dimensions", 2, 5, 5),
        case("gradients", 2, 3, 5, gradients=("states", "gain")),
        Case(
            name="by hand",
            arguments={"states": np.array([[[1.0, 7.0], [3.0, 4.0]]]), "gain": np.array([1.0, 2.0])},
        ),
    ]


def _gates(seed: int) -> list[Case]:
    def case(name: str, b: int, t: int, d: int, f: int, **options: Any) -> Case:
        b, t, d = vary_sizes(seed, b, t, d)
        names = ("states", "w_gate", "w_up", "w_down")
        arrays = _draw(seed + b + t, (b, t, d), (d, f), (d, f), (f, d))
        return Case(name=name, arguments=dict(zip(names, arrays, strict=True)), **options)

    small = {"states": np.array([[[1.0], [-1.0]]]), "w_gate": np.array([[2.0]]), "w_up": np.array([[3.0]])}
    return [
        case("prime sizes", 2, 5, 3, 11),
        case("one step", 2, 1, 5, 13),
        case("gradients", 2, 3, 5, 11, gradients=("states", "w_gate", "w_up", "w_down")),
        Case(name="by hand", arguments=small | {"w_down": np.array([[1.0]])}),
    ]


def _texts(seed: int) -> list[Array]:
    generator = np.random.default_rng(seed)
    texts = [generator.integers(0, letters, length) for letters, length in ((3, 29), (4, 41), (2, 23), (5, 61))]
    return [*texts, np.array([2, 2, 2, 0, 2, 2, 2, 1, 0, 1, 2, 2, 2, 0, 0, 1])]


LEARNED = ("three letters", "four letters", "two letters", "five letters", "runs of a letter")


def _learned(seed: int) -> list[Case]:
    cases = [
        Case(name=name, arguments={"tokens": text, "count": 2 + number % 3, "first": FIRST})
        for number, (name, text) in enumerate(zip(LEARNED, _texts(seed), strict=True))
    ]
    small = {"tokens": np.array([0, 1, 0, 1, 2, 0, 1, 2]), "count": 2, "first": FIRST}
    return [*cases, Case(name="by hand", arguments=small)]


def _applied(seed: int) -> list[Case]:
    cases = []
    for name, text, other in zip(LEARNED, _texts(seed + 1), _texts(seed), strict=True):
        merges = Solution().learn_merges(other, 3, FIRST)[0]
        cases.append(Case(name=name, arguments={"tokens": text, "merges": merges, "first": FIRST}))
    tokens, merges = np.array([0, 1, 2, 0, 1, 1, 2]), np.array([[1, 2], [0, 1], [0, FIRST]])
    return [*cases, Case(name="by hand", arguments={"tokens": tokens, "merges": merges, "first": FIRST})]


def _sampled(seed: int) -> list[Case]:
    def case(name: str, size: int, temperature: float, k: int, p: float) -> Case:
        (size,) = vary_sizes(seed, size)
        (logits,) = _draw(seed + size, (size,))
        options = {"temperature": temperature, "top_k": min(k, size), "top_p": p}
        return Case(name=name, arguments={"logits": 2 * logits, **options})

    small = {"logits": np.log([0.2, 0.5, 0.3]), "temperature": 1.0, "top_k": 3, "top_p": 0.7}
    return [
        case("a low temperature", 11, 0.5, 11, 1.0),
        case("a high temperature", 11, 2.0, 11, 1.0),
        case("the four most likely", 13, 1.0, 4, 1.0),
        case("half of the probability", 17, 1.0, 17, 0.5),
        case("temperature and top-p", 23, 2.0, 23, 0.8),
        case("all three", 19, 1.5, 7, 0.9),
        case("a single token", 7, 1.0, 1, 0.3),
        Case(name="by hand", arguments=small),
    ]


def _induction(seed: int) -> list[Case]:
    def case(name: str, length: int, letters: int) -> Case:
        (length,) = vary_sizes(seed, length)
        generator = np.random.default_rng(seed + length)
        weights = np.tril(generator.random((length, length)))
        tokens = np.concatenate([generator.integers(0, letters, length - 1), [0]])
        tokens[0] = 0
        return Case(name=name, arguments={"weights": weights / weights.sum(1, keepdims=True), "tokens": tokens})

    small = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.1, 0.7, 0.2]])
    return [
        case("many repetitions", 13, 3),
        case("few repetitions", 11, 9),
        case("two letters", 17, 2),
        case("a short text", 5, 3),
        Case(name="by hand", arguments={"weights": small, "tokens": np.array([4, 5, 4])}),
    ]


def _patched(seed: int) -> list[Case]:
    def case(name: str, layers: int, heads: int, inputs: int) -> Case:
        layers, heads = vary_sizes(seed, layers, heads)
        clean, corrupt, patched = _draw(seed + inputs, (inputs,), (inputs,), (layers, heads, inputs))
        return Case(name=name, arguments={"clean": clean + 6, "corrupt": corrupt, "patched": patched + 3})

    small = {"clean": np.array([5.0, 3.0]), "corrupt": np.array([1.0, 1.0])}
    patched = {"patched": np.array([[[4.0, 2.0], [1.0, 1.0]]])}
    return [
        case("prime sizes", 3, 5, 11),
        case("one input", 2, 7, 1),
        Case(name="by hand", arguments=small | patched),
    ]


def _rollouts(seed: int) -> list[Case]:
    def case(name: str, layers: int, length: int) -> Case:
        layers, length = vary_sizes(seed, layers, length)
        weights = np.random.default_rng(seed + layers).random((layers, length, length)) ** 3
        return Case(name=name, arguments={"weights": weights / weights.sum(-1, keepdims=True)})

    small = np.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    return [
        case("three layers", 3, 5),
        case("one layer", 1, 7),
        case("as many layers as steps", 5, 5),
        Case(name="by hand", arguments={"weights": small}),
    ]


EXERCISES = (
    Exercise(
        title="a causal mask with a cache",
        solution=Solution.cached_causal_mask,
        cases=_masks,
        outputs=("mask",),
        aliases=("causal_mask_with_cache",),
    ),
    Exercise(
        title="one step with a KV cache",
        solution=Solution.cached_step,
        cases=_cached,
        outputs=("context", "keys", "values"),
        aliases=("cached_attention", "kv_cache_step"),
    ),
    Exercise(
        title="attention with shared keys",
        source="Ainslie et al. 2023, section 2.2",
        solution=Solution.grouped_attention,
        cases=_grouped,
        outputs=("context",),
        aliases=("grouped_query_attention", "gqa"),
    ),
    Exercise(
        title="root mean square normalization",
        source="Zhang and Sennrich 2019, equation 4",
        solution=Solution.rms_norm,
        cases=_norms,
        outputs=("states",),
        aliases=("rmsnorm",),
    ),
    Exercise(
        title="a feed-forward network with SwiGLU",
        source="Shazeer 2020, equation 6",
        solution=Solution.swiglu,
        cases=_gates,
        outputs=("states",),
        aliases=("swi_glu", "swiglu_feed_forward"),
    ),
    Exercise(
        title="byte-pair encoding: learn the merges",
        source="Sennrich et al. 2016, section 3.2",
        solution=Solution.learn_merges,
        cases=_learned,
        instruction="Write it",
        outputs=("pairs", "tokens"),
        aliases=("learn_bpe", "train_bpe", "byte_pair_encoding"),
    ),
    Exercise(
        title="byte-pair encoding: apply the merges",
        source="Sennrich et al. 2016, section 3.2",
        solution=Solution.apply_merges,
        cases=_applied,
        instruction="Write it",
        outputs=("tokens",),
        aliases=("apply_bpe", "encode_bpe"),
    ),
    Exercise(
        title="temperature, top-k and top-p",
        source="Holtzman et al. 2020, section 3",
        solution=Solution.next_token_probabilities,
        cases=_sampled,
        outputs=("probabilities",),
        aliases=("sampling_probabilities", "top_k_top_p", "nucleus_sampling"),
    ),
    Exercise(
        title="the score of an induction head",
        source="Olsson et al. 2022",
        solution=Solution.induction_score,
        cases=_induction,
        outputs=("score",),
    ),
    Exercise(
        title="the effect of patching each head",
        solution=Solution.patching_effect,
        cases=_patched,
        outputs=("effect",),
        aliases=("patch_effect", "restored_fraction"),
    ),
    Exercise(
        title="attention rollout",
        source="Abnar and Zuidema 2020, section 3",
        solution=Solution.attention_rollout,
        cases=_rollouts,
        outputs=("weights",),
    ),
)

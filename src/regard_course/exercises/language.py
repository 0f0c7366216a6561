"""Exercises: causal masks, caches, shared keys, modern layers, subwords, sampling, and explanations."""

from collections.abc import Callable

import numpy as np

from regard_course.exercises.draws import Draw, draw_cases, fixed, number, row
from regard_course.exercises.exercise import Exercise
from regard_course.inputs import Array, Case
from regard_course.mistakes.solution import Solution

FIRST = 10
"""Number of the first token that byte-pair encoding adds."""


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


def _normalized(weights: Array) -> Array:
    """Return weights whose rows sum to 1."""
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def _letters(count: int) -> Callable[[Draw], Array]:
    """Return the rule for t tokens, of which the first and the last are 0."""
    return lambda draw: np.array([0, *draw.generator.integers(0, count, draw.size("t") - 2), 0])


EXERCISES = (
    Exercise(
        title="a causal mask with a cache",
        solution=Solution.cached_causal_mask,
        cases=draw_cases(
            "q C",  # C: keys before the first query
            {"queries": number("q"), "keys": number("q+C")},
            row("a whole text", 5, 0),
            row("a cache", 3, 4),
            row("one new token", 1, 4),
            row("a single token", 1, 0),
            row("a long cache", 2, 11),
            fixed("by hand", queries=2, keys=3),
        ),
        outputs=("mask",),
        aliases=("causal_mask_with_cache",),
    ),
    Exercise(
        title="one step with a KV cache",
        solution=Solution.cached_step,
        cases=draw_cases(
            "b t d",
            {"state": "b d", "keys": "b t d", "values": "b t d", "w_q": "d d", "w_k": "d d", "w_v": "d d"},
            row("prime sizes", 2, 5, 3),
            row("one earlier token", 3, 1, 5),
            row("a batch of one", 1, 7, 3),
            row("large scores", 2, 5, 3, state=lambda draw: 1_000 * draw("b d")),
            row(
                "as many tokens as dimensions",
                *(2, 2, 0),
                state="b t+1",
                **dict.fromkeys(("keys", "values"), "b t t+1"),
                **dict.fromkeys(("w_q", "w_k", "w_v"), "t+1 t+1"),
            ),
            row("gradients", 2, 3, 5, gradients=("state", "w_q", "w_k", "w_v")),
            fixed(
                "by hand",
                state=[[1.0, 2.0]],
                keys=[[[1.0, 0.0]]],
                values=[[[3.0, 4.0]]],
                w_q=[[1.0, 0.0], [0.0, 1.0]],
                w_k=[[0.0, 1.0], [1.0, 0.0]],
                w_v=[[2.0, 0.0], [0.0, 2.0]],
            ),
        ),
        outputs=("context", "keys", "values"),
        aliases=("cached_attention", "kv_cache_step"),
    ),
    Exercise(
        title="attention with shared keys",
        source="Ainslie et al. 2023, section 2.2",
        solution=Solution.grouped_attention,
        cases=draw_cases(
            "b G H t d",  # G groups of H heads
            {"query": "b G*H t d", "key": "b G t d", "value": "b G t d"},
            row("two groups of three", 2, 2, 3, 5, 7),
            row("one group", 2, 1, 4, 3, 5),
            row("a head for each group", 3, 3, 1, 5, 2),
            row("four groups", 1, 4, 2, 5, 3),
            row("one step", 2, 2, 3, 1, 7),
            row("large scores", 2, 2, 2, 5, 3, query=lambda draw: 1_000 * draw("b G*H t d")),
            row("gradients", 2, 2, 2, 3, 5, gradients=("query", "key", "value")),
        ),
        outputs=("context",),
        aliases=("grouped_query_attention", "gqa"),
    ),
    Exercise(
        title="root mean square normalization",
        source="Zhang and Sennrich 2019, equation 4",
        solution=Solution.rms_norm,
        cases=draw_cases(
            "b t d",
            {"states": lambda draw: 0.5 + draw("b t d"), "gain": "d"},
            row("prime sizes", 2, 5, 7),
            row("one step", 3, 1, 5),
            row("a batch of one", 1, 3, 7),
            row("small states", 2, 3, 5, states=lambda draw: 0.005 * draw("b t d"), diagnose=False),
            row("as many steps as dimensions", 2, 5, 5),
            row("gradients", 2, 3, 5, gradients=("states", "gain")),
            fixed("by hand", states=[[[1.0, 7.0], [3.0, 4.0]]], gain=[1.0, 2.0]),
        ),
        outputs=("states",),
        aliases=("rmsnorm",),
    ),
    Exercise(
        title="a feed-forward network with SwiGLU",
        source="Shazeer 2020, equation 6",
        solution=Solution.swiglu,
        cases=draw_cases(
            "b t d f",
            {"states": "b t d", "w_gate": "d f", "w_up": "d f", "w_down": "f d"},
            row("prime sizes", 2, 5, 3, 11),
            row("one step", 2, 1, 5, 13),
            row("a batch of one", 1, 5, 3, 11),
            row("gradients", 2, 3, 5, 11, gradients=("states", "w_gate", "w_up", "w_down")),
            fixed("by hand", states=[[[1.0], [-1.0]]], w_gate=[[2.0]], w_up=[[3.0]], w_down=[[1.0]]),
        ),
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
        cases=draw_cases(
            "v",
            {"logits": lambda draw: 2 * draw("v"), "temperature": 1.0, "top_k": number("v"), "top_p": 1.0},
            row("a low temperature", 11, temperature=0.5),
            row("a high temperature", 11, temperature=2.0),
            row("the four most likely", 13, top_k=4),
            row("half of the probability", 17, top_p=0.5),
            row("temperature and top-p", 23, temperature=2.0, top_p=0.8),
            row("all three", 19, temperature=1.5, top_k=7, top_p=0.9),
            row("a single token", 7, top_k=1, top_p=0.3),
            row("large logits", 11, logits=lambda draw: 1_000 * draw("v"), temperature=0.5, diagnose=False),
            fixed("by hand", logits=np.log([0.2, 0.5, 0.3]), temperature=1.0, top_k=3, top_p=0.7),
        ),
        outputs=("probabilities",),
        aliases=("sampling_probabilities", "top_k_top_p", "nucleus_sampling"),
    ),
    Exercise(
        title="the score of an induction head",
        source="Olsson et al. 2022",
        solution=Solution.induction_score,
        cases=draw_cases(
            "t",
            {
                "weights": lambda draw: _normalized(np.tril(draw.generator.random(draw.shape("t t")))),
                "tokens": None,
            },
            row("many repetitions", 13, tokens=_letters(3)),
            row("few repetitions", 11, tokens=_letters(9)),
            row("two letters", 17, tokens=_letters(2)),
            row("a short text", 5, tokens=_letters(3)),
            fixed("by hand", weights=[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.1, 0.7, 0.2]], tokens=[4, 5, 4]),
        ),
        outputs=("score",),
    ),
    Exercise(
        title="the effect of patching each head",
        solution=Solution.patching_effect,
        cases=draw_cases(
            "l h N",
            {
                "clean": lambda draw: 6 + draw("N"),
                "corrupt": "N",
                "patched": lambda draw: 3 + draw("l h N"),
            },
            row("prime sizes", 3, 5, 11),
            row("one input", 2, 7, 1),
            fixed("by hand", clean=[5.0, 3.0], corrupt=[1.0, 1.0], patched=[[[4.0, 2.0], [1.0, 1.0]]]),
        ),
        outputs=("effect",),
        aliases=("patch_effect", "restored_fraction"),
    ),
    Exercise(
        title="attention rollout",
        source="Abnar and Zuidema 2020, section 3",
        solution=Solution.attention_rollout,
        cases=draw_cases(
            "l t",
            {"weights": lambda draw: _normalized(draw.generator.random(draw.shape("l t t")) ** 3)},
            row("three layers", 3, 5),
            row("one layer", 1, 7),
            row("as many layers as steps", 5, 5),
            fixed("by hand", weights=[[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]]),
        ),
        outputs=("weights",),
    ),
)

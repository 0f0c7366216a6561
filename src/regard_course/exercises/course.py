"""The exercises of the course, ordered so that each exercise builds on the previous exercises."""

import contextlib
import dataclasses
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from regard.errors import unknown_choice
from regard_course.exercises.draws import (
    Draw,
    Row,
    Rule,
    draw_cases,
    fixed,
    number,
    padding_mask,
    parameter,
    parameters,
    random_mask,
    row,
    with_empty_rows,
)
from regard_course.exercises.exercise import Exercise
from regard_course.inputs import (
    COPY_VOCABULARY,
    END,
    PADDING,
    START,
    Array,
    Case,
    RandomLanguageModel,
    TanhCell,
    copy_words,
)
from regard_course.mistakes.known import MISTAKES
from regard_course.mistakes.solution import SearchSolution, Solution

# Multi-head attention and the feed-forward network, the sublayers of a Transformer.

ATTENTION = ("w_q", "w_k", "w_v", "w_o")
FEED_FORWARD = ("w_1", "b_1", "w_2", "b_2")
WIDTH, INNER = "h*s", "11"
CONSTRUCTOR = {"width": WIDTH, "heads": "h", "inner": INNER}
"""Shapes of layers with h heads of the width s."""


# Encoder layer, decoder layer, the Transformer.

SOURCE_SIZE, TARGET_SIZE = 17, 13
MODEL = {"width": "10", "heads": "2", "inner": INNER}
CROSS = ("cross_q", "cross_k", "cross_v", "cross_o")
NORMS = ("gain_1", "shift_1", "gain_2", "shift_2", "gain_3", "shift_3")
ENCODER = (*ATTENTION, *FEED_FORWARD, *NORMS[:4])
DECODER = (*ATTENTION, *CROSS, *FEED_FORWARD, *NORMS)


def _states(letters: str) -> Callable[[Draw], Array]:
    return lambda draw: 0.3 + draw(f"{letters} {WIDTH}")


def _tokens(letters: str, size: int) -> Callable[[Draw], Array]:
    """Return the rule for token numbers (B, T) with padding."""
    return lambda draw: draw.generator.integers(1, size, draw.shape(letters)) * padding_mask(letters)(draw)


def _draw_model(draw: Draw) -> dict[str, Array]:
    """Return the parameters of a Transformer."""
    width = MODEL["width"]
    model = {"source": draw(f"{SOURCE_SIZE} {width}") / 2, "target": draw(f"{TARGET_SIZE} {width}") / 2}
    for side, names in (("encoder", ENCODER), ("decoder", DECODER)):
        for layer in range(draw.size("N")):
            weights = parameters(names, width, INNER)(draw)
            model |= {f"{side}.{layer}.{name}": value for name, value in weights.items()}
    return {**model, "w_out": draw(f"{width} {TARGET_SIZE}") / 2, "b_out": draw(str(TARGET_SIZE)) / 2}


def _without_padding(cases: Callable[[int], list[Case]]) -> Callable[[int], list[Case]]:
    """Return the inputs of the Transformer, whose logits of padding are not compared."""
    return lambda seed: [
        dataclasses.replace(case, valid_steps=case.arguments["target"] != PADDING) for case in cases(seed)
    ]


def _simple_parameters(names: Sequence[str], prefix: str = "") -> dict[str, Array]:
    """Return parameters for calculations by hand: identity matrices, and equal biases, gains and shifts."""
    values = {"b": 0.5, "gain": 2.0, "shift": 1.0}
    kinds = {name: name.partition("_")[0] for name in names}
    return {prefix + name: np.full(4, values[kind]) if kind in values else np.eye(4) for name, kind in kinds.items()}


STATES = [[[1.0, 0.0, 3.0, 0.0], [0.0, 2.0, 0.0, 1.0]]]
MEMORY = [[[0.0, 0.0, 2.0, 1.0], [3.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]]
SMALL_ENCODER = fixed("by hand", states=STATES, parameters=_simple_parameters(ENCODER), heads=2, mask=None)
SMALL_DECODER = fixed(
    "by hand",
    states=STATES,
    memory=MEMORY,
    parameters=_simple_parameters(DECODER),
    heads=2,
    memory_mask=[[[True, True, False]] * 2],
)
SMALL_TRANSFORMER = fixed(
    "by hand",
    source=[[1, 2, 0]],
    target=[[2, 1]],
    parameters={
        "source": np.eye(3, 4),
        "target": np.eye(3, 4),
        **_simple_parameters(ENCODER, "encoder.0."),
        **_simple_parameters(DECODER, "decoder.0."),
        "w_out": np.eye(4, 3),
        "b_out": np.full(3, 0.5),
    },
    heads=2,
    layers=1,
)


# Greedy search and beam search.


def _draw_language_model(draw: Draw) -> RandomLanguageModel:
    """Return model number M with a vocabulary of V tokens."""
    return RandomLanguageModel(89 * draw.seed + draw.size("M"), draw.size("V"))


_draw_beams = draw_cases(
    "M V W T",
    {
        "step": _draw_language_model,
        "start": START,
        "end": END,
        "width": number("W"),
        "longest": number("T"),
        "alpha": 0.6,
    },
    row("prime sizes", 0, 7, 3, 5),
    row("a small vocabulary", 1, 3, 2, 11, alpha=0.7),
    row("a wide beam", 2, 5, 11, 7, alpha=1.0),
    row("alpha of 0", 3, 5, 3, 7, alpha=0.0),
    row("a large alpha", 4, 5, 3, 7, alpha=1.3),
    row("a beam of one", 5, 7, 1, 5),
    row("one step", 6, 7, 3, 1),
    row("another model", 7, 5, 2, 13),
    row("short and long hypotheses", 8, 3, 3, 11, alpha=1.3),
)


def _beam(seed: int) -> list[Case]:
    """Return inputs on which every mistake changes an answer that changes one with seed 0."""
    cases = _draw_beams(seed)
    while seed and not _shown_mistakes(_draw_beams(0)) <= _shown_mistakes(cases):
        seed += 1_000
        cases = _draw_beams(seed)
    return cases


def _shown_mistakes(cases: list[Case]) -> set[str]:
    def answers(solution: type[Solution]) -> list[str]:
        with contextlib.suppress(ZeroDivisionError):  # an answer without tokens
            return [str(solution().beam_search(**case.arguments)) for case in cases]
        return []

    right, steps = answers(Solution), {name for name in vars(SearchSolution) if not name.startswith("__")}
    known = [mistake for mistake in MISTAKES if vars(mistake).keys() & steps]
    return {mistake.__name__ for mistake in known if answers(mistake) != right}


# The label-smoothed loss, and a training loop that must learn the task Copy.


def train_copy(model: Any, batches: Any) -> None:
    """Train the model to copy, with one optimizer step for every batch.

    model: a module; model(source, target) returns logits (B, T, V) for the token after each of the T target
    tokens. batches: a list of (source, target), tensors of token numbers: source (B, Ts); target (B, Tt), which
    is start (1), the letters, end (2) and padding (0) up to the length of the longest target. The loss ignores
    padding. Adam with a learning rate of 0.01 works. Return None: the loop changes the model in place.
    """
    raise NotImplementedError


def _expected_training(solution: Solution, batches: int = 0, **recorded: Array) -> tuple[Array, ...]:
    """Return the result of a correct training loop; see `probe_models`."""
    return (np.array(1.0),) if batches else solution.train_copy(**recorded)


def _training(seed: int) -> list[Case]:
    _, target = copy_words(seed, 5)
    table = np.random.default_rng(seed).normal(size=(5, target.shape[1] + 1, COPY_VOCABULARY)) * 2
    share = ("fraction of unseen words that the trained model copies",)
    return [
        Case(name="one batch", arguments={"target": target, "table": table}),
        Case(name="learns Copy", arguments={"batches": 400}, diagnose=False, outputs=share),
    ]


def _target(draw: Draw) -> Array:
    """Return token numbers, among them padding."""
    target = draw.generator.integers(1, draw.size("v"), draw.size("n"))
    target[len(target) // 2 :: 3] = PADDING
    return np.asarray(target)


def _target_without_padding(draw: Draw) -> Array:
    return draw.generator.integers(1, draw.size("v"), draw.size("n"))


# Causal masks, caches, shared keys, modern layers, subwords, sampling, and explanations.

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


# Exercises on what happens inside a model, and on which outputs to trust: logit lens, sinks, grokking, doubt.


def _draw_doubts(draw: Draw) -> Array:
    """Return the doubts of n translations, as multiples of 1 / S."""
    steps = draw.size("S")
    return np.asarray(np.round(steps * draw.generator.random(draw.size("n"))) / steps)


def _draw_faulty(draw: Draw) -> Array:
    """Return 1 for F of the translations, which have more doubt than the others on average."""
    noisy = draw.arguments["doubts"] + 0.3 * draw("n")
    return np.asarray(np.argsort(np.argsort(-noisy)) < draw.size("F")).astype(int)


TEXTS: dict[str, dict[str, Any]] = tomllib.loads(
    files("regard_course").joinpath("exercises/exercises.toml").read_text(encoding="utf-8")
)


def _exercise(solution: Callable[..., Any], cases: Callable[[int], list[Case]], **options: Any) -> Exercise:
    """Return an exercise with its texts in `exercises.toml`."""
    texts = {key: text for key, text in TEXTS[options.get("template", solution).__name__].items() if key != "needs"}
    tuples = {name: tuple(texts.get(name, ())) for name in ("outputs", "aliases")}
    return Exercise(solution=solution, cases=cases, **{**texts, **tuples}, **options)


def _drawn(
    solution: Callable[..., Any],
    letters: str,
    rules: Mapping[str, Rule],
    *rows: Row | Case,
    constructor: Mapping[str, str] | None = None,
    **options: Any,
) -> Exercise:
    """Return an exercise whose inputs are drawn; see `draw_cases`."""
    return _exercise(solution, draw_cases(letters, rules, *rows, constructor=constructor), **options)


EXERCISES: tuple[Exercise, ...] = (
    # In the order of the lessons: see `needs` and `introduces` in `lessons/runs.toml`.
    _drawn(
        Solution.score,
        "b q k d",
        {"query": "b q d", "key": "b k d"},
        row("Tq different from Tk", 2, 5, 7, 3),
        row("as many keys as queries", 3, 5, 5, 7),
        row("a wide key", 2, 3, 2, 31),
        row("one step", 2, 1, 5, 3),
        row("a batch of one", 1, 5, 7, 3),
        row("equal sizes", 3, 3, 3, 3),  # the only input without an error for most swapped dimensions
        row("gradients", 2, 3, 5, 7, gradients=("query", "key")),
        fixed("by hand", query=[[[2.0, 0.0], [1.0, 1.0]]], key=[[[1.0, 0.0], [1.0, 4.0]]]),
    ),
    _drawn(
        Solution.masked_softmax,
        "b q k",
        {"scores": lambda draw: 2 * draw("b q k"), "mask": random_mask("b q k")},
        row("a mask", 2, 5, 7),
        row("as many keys as queries", 3, 5, 5),
        row("nothing masked", 2, 3, 5, mask=lambda draw: np.ones(draw.shape("b q k"), bool)),
        row("one step", 2, 1, 5),
        row("a batch of one", 1, 5, 7),
        # exp overflows above 709 in 64 bits
        row("large scores", 2, 3, 5, scores=lambda draw: 2_000 * draw("b q k")),
        row("equal scores", 2, 3, 5, scores=lambda draw: np.zeros(draw.shape("b q k"))),
        row("one key", 3, 5, 1),
        row("a fully masked row", *(2, 5, 5), mask=with_empty_rows("b q k", (0, 1), (1, -1)), gradients=("scores",)),
        row("gradients", 2, 3, 5, gradients=("scores",)),
        fixed("by hand", scores=[[[1.0, 2.0], [2.0, 3.0]]], mask=[[[True, True], [True, False]]]),
    ),
    _drawn(
        Solution.attention,
        "b q k d v",
        {"query": "b q d", "key": "b k d", "value": "b k v", "mask": random_mask("b q k")},
        row("Tq different from Tk", 2, 5, 7, 3, 11, mask=None),
        row("as many keys as queries", 3, 5, 5, 7, 7, mask=None),
        row("a mask", 2, 5, 7, 3, 11),
        row("a square mask", 3, 5, 5, 7, 7),
        row("one step", 2, 1, 5, 3, 7),
        row("a batch of one", 1, 5, 7, 3, 11),
        row("equal sizes", 3, 3, 3, 3, 3, mask=None),
        row("equal scores", 2, 5, 7, 3, 11, query=lambda draw: np.zeros(draw.shape("b q d"))),
        row("one key", 2, 5, 1, 3, 7),
        row("gradients", 2, 3, 5, 7, 2, gradients=("query", "key", "value")),
        row(
            "a fully masked row",
            *(2, 5, 7, 3, 11),
            mask=with_empty_rows("b q k", (0, 1)),
            gradients=("query", "key", "value"),
        ),
        fixed(
            "by hand",
            query=[[[2.0, 1.0], [0.0, 1.0]]],
            key=[[[1.0, 0.0], [1.0, 4.0]]],
            value=[[[1.0, 0.0], [0.0, 10.0]]],
            mask=[[[True, True], [True, False]]],
        ),
    ),
    _drawn(
        Solution.multi_head_attention,
        "b q k h s",
        {
            "query": f"b q {WIDTH}",
            "key": f"b k {WIDTH}",
            "value": f"b k {WIDTH}",
            **{name: parameter(name, WIDTH, INNER) for name in ATTENTION},
            "heads": number("h"),
            "mask": random_mask("b q k"),
        },
        row("Tq different from Tk", 2, 5, 7, 3, 5, mask=None),
        # With equal numbers of keys and queries, the width of a head differs from these numbers.
        row("as many keys as queries", 3, 5, 5, 3, 7, mask=None),
        row(
            "self-attention",
            *(2, 5, 5, 3, 7),
            key=lambda draw: draw.arguments["query"],
            value=lambda draw: draw.arguments["query"],
        ),
        row("a mask", 2, 5, 7, 3, 5),
        row("other sizes", 2, 3, 5, 2, 7),
        row("one step", 2, 1, 5, 3, 5),
        row("a batch of one", 1, 5, 7, 3, 5),
        row("gradients", 2, 3, 5, 3, 5, gradients=("query", "key", "value", *ATTENTION)),
        row(
            "a fully masked row",
            *(2, 5, 7, 3, 5),
            mask=with_empty_rows("b q k", (0, 1)),
            gradients=("query", "key", "value"),
        ),
        fixed(
            "by hand",
            query=[[[1.0, 0.0], [0.0, 2.0]]],
            key=[[[2.0, 1.0], [0.0, 3.0]]],
            value=[[[1.0, 0.0], [0.0, 1.0]]],
            w_q=[[1.0, 0.0], [1.0, 1.0]],
            w_k=[[1.0, 1.0], [0.0, 1.0]],
            w_v=[[1.0, 0.0], [2.0, 1.0]],
            w_o=[[1.0, 1.0], [0.0, 2.0]],
            heads=2,
            mask=None,
            functions=True,
        ),
        constructor=CONSTRUCTOR,
        module_arguments=(*ATTENTION, "heads"),
        constructor_sizes=("width", "heads"),
    ),
    _drawn(
        Solution.greedy_search,
        "M V T",
        {"step": _draw_language_model, "start": START, "end": END, "longest": number("T")},
        row("prime sizes", 0, 7, 11),
        row("a small vocabulary", 1, 3, 13),
        row("an early end", 2, 5, 17),
        row("another model", 3, 5, 7),
        row("one step", 4, 11, 1),
        row("no end token", 5, 13, 5),
    ),
    _exercise(Solution.beam_search, _beam),
    _drawn(
        Solution.bahdanau_step,
        "b t e d m a",
        {
            "previous": "b e",
            "state": "b d",
            "memory": "b t m",
            "cell": lambda draw: TanhCell(draw("e+m+d d") / 2),
            "w": "d a",
            "u": "m a",
            "v": lambda draw: 2 * draw("a"),
            "mask": padding_mask("b t"),
        },
        row("prime sizes", 3, 5, 2, 7, 11, 13, mask=None),
        row("a mask", 3, 5, 2, 7, 11, 13),
        row("equal widths", 2, 7, 5, 5, 5, 5, functions_only=True),
        row("one source step", 2, 1, 3, 5, 7, 2),
        row("a batch of one", 1, 5, 2, 7, 11, 13),
        row("gradients", 2, 5, 3, 5, 7, 2, gradients=("previous", "state", "memory")),
        constructor={"width": "d", "memory": "m", "inner": "a"},
        small_cases=lambda: [
            fixed(
                "by hand",
                previous=[[1.0]],
                state=[[-0.5]],
                memory=[[[0.5], [-1.0]]],
                cell=TanhCell(np.ones((3, 1))),
                w=[[1.0]],
                u=[[1.0]],
                v=[2.0],
            )
        ],
        module_arguments=("w", "u", "v"),
        constructor_sizes=("width", "memory", "inner"),
    ),
    _drawn(
        Solution.feed_forward,
        "b t d f",
        {"states": "b t d", **{name: parameter(name, "d", "f") for name in FEED_FORWARD}},
        row("prime sizes", 2, 5, 7, 11),
        row("a narrow hidden layer", 3, 5, 11, 7),
        row("one step", 2, 1, 7, 11),
        row("a batch of one", 1, 5, 7, 11),
        row("gradients", 2, 3, 7, 11, gradients=("states", *FEED_FORWARD)),
        fixed(
            "by hand",
            states=[[[1.0, -1.0]]],
            w_1=[[1.0, -1.0, 2.0], [0.0, 1.0, 0.5]],
            b_1=[0.5, 0.5, -3.0],
            w_2=[[1.0, -2.0], [1.0, 1.0], [3.0, 0.0]],
            b_2=[0.25, 0.0],
            sizes={"width": 2, "inner": 3},
        ),
        constructor={"width": "d", "inner": "f"},
        module_arguments=FEED_FORWARD,
        constructor_sizes=("width", "inner"),
    ),
    _drawn(
        Solution.encoder_layer,
        "b t h s",
        {
            "states": _states("b t"),
            "parameters": parameters(ENCODER, WIDTH, INNER),
            "heads": number("h"),
            "mask": padding_mask("b t t"),
        },
        row("prime sizes", 2, 5, 3, 5, mask=None),
        row("a mask", 3, 7, 3, 5),
        row("one step", 2, 1, 3, 5, mask=None),
        row("a batch of one", 1, 5, 3, 5, mask=None),
        row("gradients", 2, 3, 3, 5, gradients=("states", "parameters")),
        constructor=CONSTRUCTOR,
        small_cases=lambda: [SMALL_ENCODER],
        module_arguments=("parameters", "heads"),
        constructor_sizes=("width", "heads", "inner"),
    ),
    _drawn(
        Solution.decoder_layer,
        "b t m h s",
        {
            "states": _states("b t"),
            "memory": f"b m {WIDTH}",
            "parameters": parameters(DECODER, WIDTH, INNER),
            "heads": number("h"),
            "memory_mask": padding_mask("b t m"),
        },
        row("source longer than target", 2, 5, 7, 3, 5, memory_mask=None),
        row("a mask", 3, 5, 7, 3, 5),
        row("target as long as the source", 2, 5, 5, 3, 5),
        row("one step", 2, 1, 5, 3, 5),
        # A single weight is always 1, so this input separates mistakes in weights from all others.
        row("one source step", 2, 1, 1, 3, 5, memory_mask=None),
        row("a batch of one", 1, 5, 7, 3, 5, memory_mask=None),
        row("gradients", 2, 3, 5, 3, 5, gradients=("states", "memory", "parameters")),
        constructor=CONSTRUCTOR,
        small_cases=lambda: [SMALL_DECODER],
        module_arguments=("parameters", "heads"),
        constructor_sizes=("width", "heads", "inner"),
    ),
    _exercise(_expected_training, _training, template=train_copy, call="run_training"),
    _drawn(
        Solution.sinusoidal_positions,
        "t p",  # p: pairs of dimensions
        {"length": number("t"), "width": number("2*p")},
        row("prime sizes", 7, 5),
        row("a wide model", 11, 23),
        row("two dimensions", 5, 1),
        row("one step", 1, 3),
        row("many steps", 101, 3),
        row("by hand", 2, 2),
        constructor={"width": "2*p"},
    ),
    _exercise(
        Solution.transformer,
        _without_padding(
            draw_cases(
                "b m t N",
                {
                    "source": _tokens("b m", SOURCE_SIZE),
                    "target": _tokens("b t", TARGET_SIZE),
                    "parameters": _draw_model,
                    "heads": int(MODEL["heads"]),
                    "layers": number("N"),
                },
                row("padded source and target", 3, 7, 5, 2),
                row("target as long as the source", 2, 5, 5, 2),
                row("three layers", 2, 3, 5, 3),
                row("one step", 2, 5, 1, 2),
                row("a batch of one", 1, 7, 5, 2),
                row("gradients", 2, 3, 2, 2, gradients=("parameters",)),
                constructor={"source_size": str(SOURCE_SIZE), "target_size": str(TARGET_SIZE), "layers": "N", **MODEL},
            )
        ),
        small_cases=lambda: [SMALL_TRANSFORMER],
        module_arguments=("parameters", "heads", "layers"),
        constructor_sizes=("source_size", "target_size", "width", "heads", "inner", "layers"),
    ),
    _drawn(
        Solution.label_smoothed_loss,
        "n v",
        {"logits": lambda draw: 2 * draw("n v"), "target": _target, "smoothing": 0.1},
        row("prime sizes", 7, 11),
        row("no padding", 5, 7, target=_target_without_padding),
        row("no smoothing", 11, 5, smoothing=0.0),
        row("one step", 1, 7, smoothing=0.2, target=_target_without_padding),
        row("large logits", 7, 5, logits=lambda draw: 1_000 * draw("n v")),
        row("gradients", 5, 7, gradients=("logits",)),
        fixed("by hand", logits=[[0.0, 2.0, 0.0]], target=[1], smoothing=0.3),
        small_cases=lambda: [
            fixed("by hand", logits=[[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]], target=[1, PADDING], smoothing=0.3)
        ],
    ),
    _drawn(
        Solution.attention_rollout,
        "l t",
        {"weights": lambda draw: _normalized(draw.generator.random(draw.shape("l t t")) ** 3)},
        row("three layers", 3, 5),
        row("one layer", 1, 7),
        row("as many layers as steps", 5, 5),
        fixed("by hand", weights=[[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]]),
    ),
    _drawn(
        Solution.auroc,
        "n F S",
        {"doubts": _draw_doubts, "faulty": _draw_faulty},
        row("no ties", 23, 9, 10**6),
        row("many ties", 29, 11, 4),
        row("one fault", 19, 1, 5),
        row("mostly faults", 17, 14, 3),
        fixed("equal doubts", doubts=[0.5] * 5, faulty=[1, 0, 0, 1, 0]),
        fixed("by hand", doubts=[0.9, 0.4, 0.4, 0.1], faulty=[1, 0, 1, 0]),
    ),
    _exercise(Solution.learn_merges, _learned),
    _exercise(Solution.apply_merges, _applied),
    _drawn(
        Solution.next_token_probabilities,
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
    _drawn(
        Solution.cached_step,
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
    _drawn(
        Solution.cached_causal_mask,
        "q C",  # C: keys before the first query
        {"queries": number("q"), "keys": number("q+C")},
        row("a whole text", 5, 0),
        row("a cache", 3, 4),
        row("one new token", 1, 4),
        row("a single token", 1, 0),
        row("a long cache", 2, 11),
        fixed("by hand", queries=2, keys=3),
    ),
    _drawn(
        Solution.online_softmax,
        "b q k d",
        {"scores": lambda draw: 2 * draw("b q k"), "value": "b k d", "block": 2},
        row("a shorter last block", 2, 5, 7, 3),
        row("blocks of equal size", 2, 3, 6, 5, block=3),
        row("one block", 3, 2, 5, 7, block=11),
        row("blocks of one key", 2, 7, 5, 3, block=1),
        row("one query", 2, 1, 5, 3),
        row("a batch of one", 1, 5, 7, 3),
        row("large scores", 2, 3, 7, 5, scores=lambda draw: 1_000 * draw("b q k")),
        row("rising scores", 2, 3, 7, 5, scores=lambda draw: np.sort(5 * draw("b q k"))),
        row("falling scores", 2, 3, 7, 5, scores=lambda draw: -np.sort(5 * draw("b q k"))),
        row("gradients", 2, 3, 5, 2, gradients=("scores", "value")),
        fixed("by hand", scores=np.log([[[1.0, 3.0, 2.0]]]), value=[[[4.0], [0.0], [2.0]]], block=2),
    ),
    _drawn(
        Solution.rms_norm,
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
    _drawn(
        Solution.swiglu,
        "b t d f",
        {"states": "b t d", "w_gate": "d f", "w_up": "d f", "w_down": "f d"},
        row("prime sizes", 2, 5, 3, 11),
        row("one step", 2, 1, 5, 13),
        row("a batch of one", 1, 5, 3, 11),
        row("gradients", 2, 3, 5, 11, gradients=("states", "w_gate", "w_up", "w_down")),
        fixed("by hand", states=[[[1.0], [-1.0]]], w_gate=[[2.0]], w_up=[[3.0]], w_down=[[1.0]]),
    ),
    _drawn(
        Solution.grouped_attention,
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
    _drawn(
        Solution.induction_score,
        "t",
        {"weights": lambda draw: _normalized(np.tril(draw.generator.random(draw.shape("t t")))), "tokens": None},
        row("many repetitions", 13, tokens=_letters(3)),
        row("few repetitions", 11, tokens=_letters(9)),
        row("two letters", 17, tokens=_letters(2)),
        row("a short text", 5, tokens=_letters(3)),
        fixed("by hand", weights=[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.1, 0.7, 0.2]], tokens=[4, 5, 4]),
    ),
    _drawn(
        Solution.patching_effect,
        "l h N",
        {"clean": lambda draw: 6 + draw("N"), "corrupt": "N", "patched": lambda draw: 3 + draw("l h N")},
        row("prime sizes", 3, 5, 11),
        row("one input", 2, 7, 1),
        fixed("by hand", clean=[5.0, 3.0], corrupt=[1.0, 1.0], patched=[[[4.0, 2.0], [1.0, 1.0]]]),
    ),
    _drawn(
        Solution.logit_lens,
        "l t d v",
        {
            # Each block adds to the state, so later states are larger.
            "states": lambda draw: 0.3 + draw("l t d").cumsum(0),
            "norm": lambda draw: 1 + draw("d"),
            "output": "v d",
        },
        row("prime sizes", 3, 5, 7, 11),
        row("one step", 5, 1, 3, 13),
        row("as many tokens as dimensions", 2, 3, 5, 5),
        row("only the embeddings", 1, 5, 3, 7),
        row("gradients", 2, 3, 5, 7, gradients=("states", "norm", "output")),
        fixed(
            "by hand",
            states=[[[2.0, 0.0]], [[2.0, 2.0]], [[2.0, 6.0]]],
            norm=[1.0, 2.0],
            output=[[1.0, 0.0], [0.0, 1.0]],
        ),
    ),
    _drawn(
        Solution.sink_softmax,
        "b h q k",
        {"scores": "b h q k", "sink": "h"},
        row("prime sizes", 2, 3, 5, 7),
        row("one key", 2, 5, 3, 1),
        row("as many queries as heads", 2, 3, 3, 5),
        row(
            "large scores",
            *(2, 3, 5, 7),
            scores=lambda draw: 1000 * draw("b h q k"),
            sink=lambda draw: 1000 * draw("h"),
        ),
        row("gradients", 2, 3, 2, 5, gradients=("scores", "sink")),
        fixed("by hand", scores=np.log([[[[2.0, 4.0], [1.0, 1.0]]]]), sink=np.log([2.0])),
    ),
)


def find_exercise(name: str, exercises: Sequence[Exercise] = EXERCISES) -> Exercise:
    """Return the exercise with this name or alias, in any spelling.

    Raises `InputError` for an unknown name.

    >>> find_exercise("MHA").name
    'multi_head_attention'
    """
    for exercise in exercises:
        if exercise.matches(name):
            return exercise
    raise unknown_choice("exercise", name, [exercise.name for exercise in exercises])

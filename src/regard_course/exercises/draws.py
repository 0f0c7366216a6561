"""Random inputs of an exercise, from a table of the shapes of its arguments and of the sizes of its inputs."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from regard_course.inputs import PADDING, Array, Case, RandomLanguageModel, TanhCell
from regard_course.mistakes.known import LARGE_HIDDEN

PRIMES = (2, 3, 5, 7)
"""Sizes that another seed permutes."""
MASKS, HIDDEN = ("mask", "memory_mask"), ("scores", "memory", "key", "states")
"""Names of masks, and of the arguments whose steps they hide."""


class Draw:
    """One input while it is drawn. The shape of an array is a text, for example "b t h*s"."""

    def __init__(self, seed: int, sizes: Mapping[str, int]) -> None:
        self.seed, self.sizes = seed, sizes
        self.generator = np.random.default_rng(seed + sum(sizes.values()))
        self.arguments: dict[str, Any] = {}
        """The arguments that are drawn already."""

    def size(self, letters: str) -> int:
        """Return the size that letters stand for, for example "t", "3", "h*s" or "m+d"."""
        return sum(
            math.prod(self.sizes[part] if part in self.sizes else int(part) for part in product.split("*"))
            for product in letters.split("+")
        )

    def shape(self, letters: str) -> tuple[int, ...]:
        """Return the sizes that letters stand for."""
        return tuple(map(self.size, letters.split()))

    def __call__(self, letters: str) -> Array:
        """Return random numbers of a shape."""
        return self.generator.normal(size=self.shape(letters))

    def value(self, name: str, rule: Any) -> Any:
        """Return the value of an argument by its rule: a shape, a value, or the name of a function in `RULES`."""
        if isinstance(rule, Mapping):
            [(kind, values)] = rule.items()
            return RULES[kind](self, name, *(values if isinstance(values, list) else [values]))
        if isinstance(rule, list):
            return np.array(rule)
        return None if rule == "None" else self(rule) if isinstance(rule, str) else rule


def draw_cases(table: Mapping[str, Any], key: str = "rows") -> Callable[[int], list[Case]]:
    """Return the function that draws the inputs of an exercise for a seed, from its table in `inputs.toml`.

    Sizes are different primes, so that swapped axes change the shape or the numbers of a result. Another seed
    permutes them: equal sizes remain equal, and different sizes remain different.

    >>> rows = [["two steps", 3, 2], ["fixed", {"states": [[1.0]]}]]
    >>> cases = draw_cases({"letters": "b t", "arguments": {"states": "b t"}, "rows": rows})
    >>> [(case.name, case.arguments["states"].shape) for case in cases(0)]
    [('two steps', (3, 2)), ('fixed', (1, 1)), ('not contiguous', (3, 2))]
    """
    rules = table["arguments"]

    def draw_case(seed: int, name: str, *sizes: int, **options: Any) -> Case:
        primes = np.random.default_rng(seed).permutation(PRIMES).tolist() if seed else PRIMES
        permuted = dict(zip(PRIMES, primes, strict=True))
        named = zip(table["letters"].split(), sizes, strict=True) if sizes else ()
        draw = Draw(seed, {key: n if key.isupper() else permuted.get(n, n) for key, n in named})
        for argument, rule in (rules if sizes else dict.fromkeys(rules)).items():
            draw.arguments[argument] = draw.value(argument, options.get(argument, rule))
        fields = {key: value for key, value in options.items() if key not in rules}
        if sizes:
            fields["sizes"] = {key: draw.size(size) for key, size in table.get("constructor", {}).items()}
        return Case(name=name, arguments=draw.arguments, **{**fields, "gradients": tuple(options.get("gradients", ()))})

    def draw_all(seed: int) -> list[Case]:
        rows = [row if isinstance(row[-1], dict) else [*row, {}] for row in table.get(key, ())]
        cases = [draw_case(seed, *row[:-1], **row[-1]) for row in rows]
        if key != "rows":
            return cases
        drawn = [case for case, row in zip(cases, rows, strict=True) if len(row) > 2 and not case.functions_only]
        return [*cases, *_large_hidden_scores(drawn), *_not_contiguous(drawn)]

    return draw_all


def _large_hidden_scores(cases: Sequence[Case]) -> list[Case]:
    """Return an input in which the scores of hidden keys are far larger or smaller than the others: keys, memory or
    states are large at two hidden steps. No score exceeds some millions, because right code may write -1e9 in place of
    -inf. The results at large states, which are queries too, are not compared."""
    for case in cases:
        mask_name = next((name for name in MASKS if isinstance(case.arguments.get(name), np.ndarray)), "")
        name = next((name for name in HIDDEN if name in case.arguments), "")
        if not mask_name or not name or case.arguments[mask_name].all():
            continue
        mask, values = case.arguments[mask_name].copy(), case.arguments[name].copy()
        if name == "scores":
            values[~mask] *= 1e6
        else:
            seen = mask.reshape(len(mask), -1, mask.shape[-1]).sum(1)
            for element, key in enumerate(seen.argmin(-1)):
                if seen[element].min() == seen[element].max() and seen[element].all():
                    continue  # nothing is hidden
                values[element, key] *= 1e3 if name == "states" else 1e5
                mask[element, ..., key] = False
                if mask.shape[-1] > 2:  # a large score for each sign of a query
                    values[element, key - 1] = -values[element, key] / 2
                    mask[element, ..., key - 1] = False
                mask[element, ..., (key + 1) % mask.shape[-1]] |= ~mask[element].any(-1)
        arguments = {**case.arguments, name: values, mask_name: mask}
        valid = mask.any(1) if name == "states" else None
        return [dataclasses.replace(case, name=LARGE_HIDDEN, arguments=arguments, gradients=(), valid_steps=valid)]
    return []


def _not_contiguous(cases: Sequence[Case]) -> list[Case]:
    """Return an input whose arrays have the memory layout of a transposed array, if it has matrices."""
    for case in cases[:1]:
        if any(isinstance(value, np.ndarray) and value.ndim > 1 for value in case.arguments.values()):
            arguments = {
                name: np.asfortranarray(value) if isinstance(value, np.ndarray) else value
                for name, value in case.arguments.items()
            }
            return [dataclasses.replace(case, name="not contiguous", arguments=arguments, diagnose=False)]
    return []


def random_mask(draw: Draw, name: str, letters: str, *empty: Sequence[int]) -> Array:
    """Return a mask (B, Tq, Tk): each query may attend to some keys, and at least two queries, or the only one, to each
    key. empty: rows (batch element, query) in which all keys are hidden."""
    batch, queries, keys = draw.shape(letters)
    mask: Array = draw.generator.random((batch, queries, keys)) < 0.4
    for key in range(keys):
        mask[:, key % queries, key] = mask[:, (key + 2) % queries, key] = True
    for query in range(queries):
        mask[:, query, (2 * query + 1) % keys] = True
    for element, query in empty:
        mask[element, query] = False
    return mask


def padding_mask(draw: Draw, name: str, letters: str) -> Array:
    """Return a mask (B, T) or (B, rows, T) of padding: some in the first sentence, none in the last of several."""
    batch, *rows, length = draw.shape(letters)
    lengths = np.maximum(1, length - 1 - draw.generator.integers(0, 3, batch))
    lengths[0] = max(1, length - 1)
    lengths[1:][-1:] = length
    visible = np.arange(length) < lengths[:, None]
    return np.broadcast_to(visible[:, None], (batch, *rows, length)).copy() if rows else visible


def words(draw: Draw, name: str, letters: str, size: int) -> Array:
    """Return token numbers (B, T) with padding."""
    return draw.generator.integers(1, size, draw.shape(letters)) * padding_mask(draw, name, letters)


def padded_numbers(draw: Draw, name: str, count: str, size: str) -> Array:
    """Return token numbers, among them padding."""
    target = numbers(draw, name, count, size)
    target[len(target) // 2 :: 3] = PADDING
    return target


def numbers(draw: Draw, name: str, count: str, size: str) -> Array:
    return draw.generator.integers(1, draw.size(size), draw.size(count))


ATTENTION = ("w_q", "w_k", "w_v", "w_o")
FEED_FORWARD = ("w_1", "b_1", "w_2", "b_2")
CROSS = ("cross_q", "cross_k", "cross_v", "cross_o")
NORMS = ("gain_1", "shift_1", "gain_2", "shift_2", "gain_3", "shift_3")
LAYERS = {"encoder": (*ATTENTION, *FEED_FORWARD, *NORMS[:4]), "decoder": (*ATTENTION, *CROSS, *FEED_FORWARD, *NORMS)}
"""Names of the parameters of a layer."""


def weight(draw: Draw, name: str, width: str, inner: str) -> Array:
    """Return a weight, bias, gain or shift of a layer, all random, so that a mistake in their use has an effect."""
    if name.startswith(("gain", "shift")):
        return draw.generator.normal(1 if name.startswith("gain") else 0, 0.5, draw.size(width))
    # Weights of this size keep the states near 1, so that neither softmax nor tanh saturates.
    shapes = {"w_1": f"{width} {inner}", "b_1": inner, "w_2": f"{inner} {width}", "b_2": width}
    values = draw(shapes.get(name, f"{width} {width}"))
    return values * (0.5 if values.ndim == 1 else 1.5 * len(values) ** -0.5)


def weights(draw: Draw, name: str, layer: str, width: str, inner: str) -> dict[str, Array]:
    return {part: weight(draw, part, width, inner) for part in LAYERS[layer]}


def transformer(draw: Draw, name: str, layers: str) -> dict[str, Array]:
    """Return the parameters of a Transformer with sizes as in `inputs.toml`."""
    model = {"source": draw("17 10") / 2, "target": draw("13 10") / 2}
    for side in LAYERS:
        for layer in range(draw.size(layers)):
            model |= {f"{side}.{layer}.{part}": value for part, value in weights(draw, name, side, "10", "11").items()}
    return {**model, "w_out": draw("10 13") / 2, "b_out": draw("13") / 2}


def simple(draw: Draw, name: str, layers: str) -> dict[str, Array]:
    """Return parameters for calculations by hand: identity matrices, and equal biases, gains and shifts."""
    if layers == "transformer":
        parts = {f"{side}.0.{part}": value for side in LAYERS for part, value in simple(draw, name, side).items()}
        tables = dict.fromkeys(("source", "target"), np.eye(3, 4))
        return {**tables, **parts, "w_out": np.eye(4, 3), "b_out": np.full(3, 0.5)}
    vectors = {"b": 0.5, "gain": 2.0, "shift": 1.0}
    kinds = {part: part.partition("_")[0] for part in LAYERS[layers]}
    return {part: np.full(4, vectors[kind]) if kind in vectors else np.eye(4) for part, kind in kinds.items()}


def language_model(draw: Draw, name: str, letters: str) -> RandomLanguageModel:
    """Return model number M with a vocabulary of V tokens."""
    number, size = draw.shape(letters)
    return RandomLanguageModel(89 * draw.seed + number, size)


def attention(draw: Draw, name: str, letters: str, *, causal: bool = False) -> Array:
    """Return weights whose rows sum to 1, each to itself and earlier steps if they are causal."""
    numbers = draw.generator.random(draw.shape(letters))
    numbers = np.tril(numbers) if causal else numbers**3
    return np.asarray(numbers / numbers.sum(-1, keepdims=True))


def doubts(draw: Draw, name: str, count: str, steps: str) -> Array:
    """Return the doubts of n translations, as multiples of 1 / S."""
    return np.asarray(np.round(draw.size(steps) * draw.generator.random(draw.size(count))) / draw.size(steps))


def faulty(draw: Draw, name: str, count: str, faults: str) -> Array:
    """Return 1 for F of the translations, which have more doubt than the others on average."""
    noisy = draw.arguments["doubts"] + 0.3 * draw(count)
    return np.asarray(np.argsort(np.argsort(-noisy)) < draw.size(faults)).astype(int)


RULES: dict[str, Callable[..., Any]] = {
    **{
        rule.__name__: rule
        for rule in (attention, doubts, faulty, language_model, numbers, padded_numbers, padding_mask, random_mask)
    },
    **{rule.__name__: rule for rule in (simple, transformer, weight, weights, words)},
    "causal_attention": partial(attention, causal=True),
    "all_allowed": lambda draw, name, letters: np.ones(draw.shape(letters), bool),
    "zeros": lambda draw, name, letters: np.zeros(draw.shape(letters)),
    "normal": lambda draw, name, mean, deviation, letters: mean + deviation * draw(letters),
    "sums": lambda draw, name, mean, letters: mean + draw(letters).cumsum(0),
    "rising": lambda draw, name, deviation, letters: np.sort(deviation * draw(letters)),
    "falling": lambda draw, name, deviation, letters: -np.sort(deviation * draw(letters)),
    "logs": lambda draw, name, *values: np.log(values),
    "size": lambda draw, name, letters: draw.size(letters),
    "same": lambda draw, name, other: draw.arguments[other],
    "letters": lambda draw, name, count: np.array([0, *draw.generator.integers(0, count, draw.size("t") - 2), 0]),
    "cell": lambda draw, name, letters: TanhCell(draw(letters) / 2),
    "sum_cell": lambda draw, name, width: TanhCell(np.ones((width, 1))),
}
"""How an argument is drawn, by name in `inputs.toml`. Each rule receives the draw, the argument's name and its values
there. letters: t tokens, of which the first and the last are 0."""

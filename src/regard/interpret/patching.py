"""Activation patching (Vig et al. 2020; Meng et al. 2022).

Patching finds the parts of a model that make it prefer one of two answers.

    result = regard.patch(subject, "The doctor said he", "The nurse said he", answers=("doctor", "nurse"))

The model runs on a clean input and on a corrupted input. In a third run, on the corrupted input, one activation
is replaced by that of the clean run: the context of a head before the output projection, the contexts of all
heads of a layer, the output of a feed-forward layer, or the state after a block.

    effect = (difference patched - difference corrupted) / (difference clean - difference corrupted)

`difference` is the logit of the answer to the clean input minus that of the answer to the corrupted input, at one
output step. The effect is 0 if the patch restores nothing, and 1 if it restores the whole difference. Effects of
parts do not sum to 1: two redundant heads have effects of 0, and two heads that cancel each other have effects
above 1 and below 0.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Group, RenderableType
from rich.table import Table
from torch import Tensor

from regard.activations.components import Change, Components, replace_outputs
from regard.arguments import public
from regard.errors import InputError, check_range, plural
from regard.result import Result, signed
from regard.viz.subject import Subject, check_subject

MIN_DIFFERENCE = 1e-6
"""Smallest logit difference between the clean and the corrupted run, in nats, for which effects are
computed."""
Metric = Callable[[Tensor], Tensor]
"""Maps the logits (T, C) of one input to a number."""
SAME = (
    "both inputs have the same answer, so there is no difference to restore: give inputs with different answers"
)
SAME_PREDICTED = ", or name two answers to compare, answers=(..., ...)"


@dataclass(frozen=True)
class AnswerDifference:
    """The measured difference between a clean and a corrupted run."""

    measure: Metric
    answers: tuple[str, str]
    """The answers for the clean and the corrupted input."""
    step: int
    """Output step at which the logits are compared."""
    clean: float
    """Difference in the clean run."""
    corrupted: float
    """Difference in the corrupted run."""

    def restored(self, logits: Tensor) -> float:
        """Return the effect of a patch into the corrupted run with logits (T, C)."""
        return (float(self.measure(logits)) - self.corrupted) / (self.clean - self.corrupted)

    def lost(self, logits: Tensor) -> float:
        """Return the effect of a patch into the clean run: 1 if the whole difference is lost."""
        return (self.clean - float(self.measure(logits))) / (self.clean - self.corrupted)


@dataclass(frozen=True, kw_only=True, repr=False)
class DifferenceEffects(Result):
    """Base of results: effects as fractions of the logit difference between two inputs."""

    clean: str
    corrupted: str
    answers: tuple[str, str]
    """The answer tokens for the clean and the corrupted input."""
    difference_clean: float
    """Logit of the first answer minus the logit of the second answer, for the clean input."""
    difference_corrupted: float
    step: int
    """Output step at which the logits are compared."""


class InputPair(NamedTuple):
    """A clean and a corrupted input in the form of `Subject.prepare`."""

    clean: Any
    corrupted: Any
    causal: bool
    """Whether each output depends on the inputs up to its own position only."""
    step: int | None = None
    """The output step that answers the clean input, such as its first mask; None: not known."""


def prepare_inputs(subject: Subject[Any], clean: Any, corrupted: Any) -> InputPair:
    """Return both inputs in the form of `Subject.prepare`.

    A model that generates its answers reads the answer to the clean input in both runs, unless the corrupted
    input is a pair of source and target. Raises `InputError` for different numbers of tokens.
    """
    prepare = subject.patchable.prepare
    first = prepare(clean)
    second = prepare(corrupted, first)
    try:
        probes = [subject.trial(prepared) for prepared in (first, second)]
    except InputError:  # a metric of states needs no embedding
        return InputPair(first, second, causal=False)
    check_lengths([None if probe.tokens is None else len(probe.tokens) for probe in probes])
    steps = None if probes[0].causal else probes[0].steps
    return InputPair(first, second, probes[0].causal, None if steps is None else steps[0])


def check_lengths(lengths: Sequence[int | None]) -> None:
    """Raise `InputError` for two inputs with different numbers of tokens."""
    if lengths[0] != lengths[1]:
        raise InputError(
            f"inputs have {lengths[0]} and {lengths[1]} tokens: pass two inputs with the same number of tokens"
        )


def compare_answers(
    subject: Subject[Any],
    inputs: InputPair,
    logits: Sequence[Tensor],
    *,
    answers: tuple[str, str] | None = None,
    metric: Metric | None = None,
    step: int | None = None,
) -> AnswerDifference:
    """Return the difference between the clean and the corrupted run, with logits (T, C) each.

    `answers`: two texts (None: the likeliest answers). Of a model with one output number, the number itself is
    compared. `step`: output step, negative from the end. None: the first mask of a masked model, otherwise the
    last step; without `answers`, a model that is not causal is compared at the first step at which its
    predictions differ if they are equal at the last step. Raises `InputError` if the difference is the same in
    both runs.
    """
    is_fixed = inputs.causal or answers is not None or metric is not None
    place = _find_step(logits, inputs.step if step is None else step, is_fixed=is_fixed)
    if answers is None:
        classes = [int(values[place].argmax()) for values in logits]
    else:
        classes = [subject.patchable.answer_class(text, logits[0].shape[-1]) for text in answers]
    measure = metric or (lambda values: values[place, classes[0]] - values[place, classes[1]])
    is_number = metric is None and logits[0].shape[-1] == 1  # such as a loss
    if is_number:
        measure = lambda values: values[place, 0]  # noqa: E731
    with torch.no_grad():
        measured = [measure(values) for values in logits]
    try:
        differences = list(map(float, measured))
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"metric returned {type(measured[0]).__name__}: return one number for logits") from None
    if abs(differences[0] - differences[1]) < MIN_DIFFERENCE:
        raise InputError(SAME + SAME_PREDICTED * (not is_number and answers is None and metric is None))
    first, second = ("value", "0") if is_number else subject.called(classes)
    return AnswerDifference(measure, (first, second), place, *differences)


def _find_step(logits: Sequence[Tensor], step: int | None, *, is_fixed: bool) -> int:
    count = min(map(len, logits))
    if step is not None:
        check_range("step", step, -count, count - 1)
        return step % count
    clean, corrupted = (values[:count].argmax(-1) for values in logits)
    differing: list[int] = (clean != corrupted).nonzero().flatten().tolist() if not is_fixed else []
    return differing[0] if differing and count - 1 not in differing else count - 1


NO_ATTENTION = "no attention was recorded in the model; if it has attention, pass modules= to look()"
STATE = "state after "
"""Prefix of the name of a block's state."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class PatchingResult(DifferenceEffects):
    """The effect of each part of a model, as a fraction of the logit difference between two inputs."""

    positions: list[int] | None = None
    """Patched steps of each layer; None: all."""
    heads: dict[str, list[float]]
    """By layer: the effect of patching each head alone."""
    layers: dict[str, float]
    """By layer: the effect of patching all heads of the layer together."""
    feed_forward: dict[str, float] = field(default_factory=dict)
    """By feed-forward layer: the effect of patching its output."""
    states: dict[str, float] = field(default_factory=dict)
    """By block: the effect of patching the residual state after the block."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Parts that were not patched, with the reason."""

    def summary(self) -> str:
        value, layer, head = max(
            (value, layer, head) for layer, values in self.heads.items() for head, value in enumerate(values)
        )
        if value > 1:
            return (
                f"{layer} head {head} restores {value:.1%} of the difference, more than the whole: other parts "
                f"act against it (all heads of the layer together: {self.layers[layer]:.1%})"
            )
        if value <= 0:
            return (
                f"no head alone restores the difference; the largest effect is {value:.1%}, {layer} head {head}"
            )
        return f"of the heads, {layer} head {head} restores the most, {value:.1%} of the difference"

    def table(self) -> RenderableType:
        most = max(map(len, self.heads.values()))
        table = Table("layer", *(f"head {head}" for head in range(most)), "whole", box=None, pad_edge=False)
        first, second = self.answers
        at = "" if self.positions is None else f", steps {', '.join(map(str, self.positions))} patched"
        table.title = f"Restored fraction of {first!r} - {second!r} at output step {self.step}{at}"
        table.title_justify = "left"
        for layer, values in self.heads.items():
            blank = [""] * (most - len(values))
            table.add_row(layer, *(signed(value) for value in values), *blank, signed(self.layers[layer]))
        for name, value in {**self.feed_forward, **{STATE + name: v for name, v in self.states.items()}}.items():
            table.add_row(name, *[""] * most, signed(value))
        left_out = [f"left out: {name} ({reason})" for name, reason in self.left_out.items()]
        return Group(table, self.summary(), *left_out)

    def plot(self, path: str | Path) -> Path:
        """Draw a heatmap, layers by heads: .png, .svg or .pdf; raises `InputError` for another ending."""
        from regard.viz.plots import write_head_table

        first, second = self.answers
        title = f"{self.clean!r} patched into {self.corrupted!r}: restored fraction of {first!r} - {second!r}"
        return write_head_table(self.heads, title, path)


@public
def patch(
    subject: Subject[Any],
    clean: Any,
    corrupted: Any,
    *,
    answers: tuple[str, str] | None = None,
    metric: Metric | None = None,
    step: int | None = None,
    positions: int | Sequence[int] | None = None,
) -> PatchingResult:
    """Patch each part of a model from a clean run into a corrupted run, and return the effects.

    `subject`: a run, or a result of `look`. `clean`, `corrupted`: inputs with the same number of tokens; a
    translation model reads the answer to the clean input in both runs. `answers`: two texts, whose first
    tokens' logits are compared (None: the model's answers). `step`: output step (None: the last, or the first
    at which the answers differ if they are equal at the last). `metric`: a function of the logits (T, C), or of
    the first tensor (T, ...) that a custom model returns, instead of the logit difference. `positions`: patched
    steps of each layer, negative from the end (None: all).

    >>> result = regard.patch(run, "BCCCBAABACCCA", "BCCCBAABACCCB")    # doctest: +SKIP
    >>> result.heads, result.feed_forward, result.states    # doctest: +SKIP

    Raises `InputError` if the inputs have different lengths, if both runs give the same answer, or if the heads
    of the model cannot be separated.
    """
    check_subject(subject)
    components = subject.components
    if not components.heads:
        name, reason = next(iter(components.left_out.items()), (subject.name, NO_ATTENTION))
        raise InputError(f"no head of {name} can be patched: {reason}")
    inputs = prepare_inputs(subject, clean, corrupted)
    with torch.no_grad(), subject.patchable.calling_hooks():
        run = subject.patchable.outputs
        if metric is None and subject.patchable.logits is not None:
            run = partial(subject.patchable.logits, loss=answers is None)
        runs = [_Activations(partial(run, prepared), components) for prepared in inputs[:2]]
        for name, states in runs[0].stored.items():
            check_lengths([states.shape[-2], runs[1].stored[name].shape[-2]])
        logits = [run.logits for run in runs]
        difference = compare_answers(subject, inputs, logits, answers=answers, metric=metric, step=step)
        patching = _Patching(runs[1], runs[0].stored, difference, positions)
        heads = {name: layer.heads for name, layer in components.heads.items() if name in patching.rows}
        state_names = {name: STATE + name for name in components.blocks}
        return PatchingResult(
            clean=input_text(subject, clean, inputs.clean),
            corrupted=input_text(subject, corrupted, inputs.corrupted),
            answers=difference.answers,
            difference_clean=difference.clean,
            difference_corrupted=difference.corrupted,
            step=difference.step,
            positions=patching.positions,
            heads={
                name: [patching.effect(name, [head]) for head in range(count)] for name, count in heads.items()
            },
            layers={name: patching.effect(name) for name in heads},
            feed_forward={
                name: patching.effect(name) for name in components.feed_forward if name in patching.rows
            },
            states={name: patching.effect(key) for name, key in state_names.items() if key in patching.rows},
            left_out={**components.left_out, **components.feed_forward_left_out, **patching.left_out},
        )


def input_text(subject: Subject[Any], value: Any, prepared: Any) -> str:
    return value if isinstance(value, str) else subject.look(prepared).input


class _Activations:
    """One run on one input: its logits (T, C), and all activations that can be patched."""

    def __init__(self, run: Callable[[], Tensor], components: Components) -> None:
        self.run, self.components = run, components
        self.modules = {**components.feed_forward}
        self.modules |= {STATE + name: block for name, block in components.blocks.items()}
        calls: dict[str, list[Tensor]] = {}

        def store(name: str, states: Tensor) -> Tensor:
            calls.setdefault(name, []).append(states.clone())
            return states

        self.logits = self.rerun(store)
        # A recurrent decoder calls a layer once for each step.
        self.stored = {name: torch.cat(states, dim=-2) for name, states in calls.items()}

    def rerun(self, change: Change) -> Tensor:
        """Return the logits (T, C) if `change` changes the activations."""
        with self.components.replace_contexts(change), replace_outputs(self.modules, change):
            return self.run()


class _Patching:
    """Runs on the corrupted input with activations of the clean run."""

    def __init__(
        self,
        corrupted: _Activations,
        clean: Mapping[str, Tensor],
        difference: AnswerDifference,
        positions: int | Sequence[int] | None,
    ) -> None:
        self.corrupted, self.clean, self.difference = corrupted, clean, difference
        self.rows: dict[str, list[int] | None] = dict.fromkeys(clean)
        """By name: the patched steps; None: all."""
        self.left_out: dict[str, str] = {}
        self.positions = (
            [positions] if isinstance(positions, int) else None if positions is None else list(positions)
        )
        if self.positions is None:
            return
        longest = max(states.shape[-2] for states in clean.values())
        for position in self.positions:
            check_range("position", position, -longest, longest - 1)
        for name, states in clean.items():
            count = states.shape[-2]
            self.rows[name] = [position % count for position in self.positions if -count <= position < count]
            if not self.rows[name]:
                del self.rows[name]
                self.left_out[name] = f"it has {plural(count, 'step')}"

    def effect(self, name: str, heads: Sequence[int] | None = None) -> float:
        """Return the effect of one activation, or of some heads of a layer."""
        start, chosen = 0, self.rows[name]
        count = 1 if heads is None else self.corrupted.components.heads[name].heads
        parts = slice(None) if heads is None else list(heads)

        def change(other: str, states: Tensor) -> Tensor:
            nonlocal start
            if other != name:
                return states
            begin, start = start, start + states.shape[-2]
            rows = range(begin, start) if chosen is None else [row for row in chosen if begin <= row < start]
            index = torch.tensor(rows, dtype=torch.int64, device=states.device)
            split = states.unflatten(-1, (count, -1))
            patched = split.index_select(-3, index - begin)
            clean = self.clean[name].index_select(-2, index).unflatten(-1, (count, -1))
            patched[..., parts, :] = clean[..., parts, :]
            joined: Tensor = split.index_copy(split.dim() - 3, index - begin, patched).flatten(-2)
            return joined

        return self.difference.restored(self.corrupted.rerun(change))

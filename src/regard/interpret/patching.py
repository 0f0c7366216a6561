"""Activation patching (Vig et al. 2020; Meng et al. 2022) and path patching (Goldowsky-Dill et al. 2023; Wang et
al. 2023): the parts of a model, and the direct paths, that make it prefer one of two answers.

    result = regard.patch(subject, "The doctor said he", "The nurse said he", answers=("doctor", "nurse"))

The model runs on a clean input and on a corrupted input. In a third run, on the corrupted input, one activation
is replaced by that of the clean run: the context of a head before the output projection, the contexts of all
heads of a layer, the output of a feed-forward layer, or the state after a block.

    effect = (difference patched - difference corrupted) / (difference clean - difference corrupted)

`difference` is the logit of the answer to the clean input minus that of the answer to the corrupted input, at one
output step. The effect is 0 if the patch restores nothing, and 1 if it restores the whole difference. Effects of
parts do not sum to 1: two redundant heads have effects of 0, and two heads that cancel each other have effects
above 1 and below 0.

Path patching has the opposite direction. The model runs on the clean input. One sender (a head, a feed-forward
layer or the embedding) writes its output for the corrupted input, but only the receivers read this output,
through residual connections and norms.

    effect = (difference clean - difference patched) / (difference clean - difference corrupted)

All other senders are frozen to their outputs in the clean run while the input of the receivers is computed;
everything after the receivers is computed anew. A receiver that is after another receiver reads frozen senders,
too. The effect is 0 if the path carries nothing, and 1 if the whole difference between the answers is lost.
Departure: Wang et al. compute the feed-forward layers on the way anew, so that their paths lead through
feed-forward layers; here, feed-forward layers are senders like heads, and are frozen.
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

from regard.activations.components import Change, replace_outputs
from regard.arguments import public
from regard.attention.names import known_name
from regard.errors import InputError, check_range, plural
from regard.interpret.edges import (
    LOGITS,
    Pass,
    ResidualGraph,
    corrupted_pass,
    graph_of_probe,
    patched_reads,
    run_patched,
)
from regard.plugins import describe_error
from regard.result import Result, plain_table, signed
from regard.viz.subject import Subject, check_subject

MIN_DIFFERENCE = 1e-6
"""Smallest logit difference between the clean and the corrupted run, in nats, for which effects are computed."""
Metric = Callable[[Tensor], Tensor]  # Maps the logits (T, C) of one input to a number
SAME = "both inputs have the same answer, so there is no difference to restore: give inputs with different answers"
SAME_PREDICTED = ", or name two answers to compare, answers=(..., ...)"


@dataclass(frozen=True)
class AnswerDifference:
    """The measured difference between a clean and a corrupted run."""

    measure: Metric
    answers: tuple[str, str]  # The answers for the clean and the corrupted input
    step: int  # Output step at which the logits are compared
    clean: float  # Difference in the clean run
    corrupted: float  # Difference in the corrupted run

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
    answers: tuple[str, str]  # The answer tokens for the clean and the corrupted input
    difference_clean: float  # Logit of the first answer minus the logit of the second answer, for the clean input
    difference_corrupted: float
    step: int  # Output step at which the logits are compared
    heads: dict[str, list[float]]  # By layer: the effect of each head

    @property
    def difference(self) -> str:
        """What is compared, for titles: two answers, or a number without a second answer."""
        first, second = self.answers
        return f"{first!r} - {second!r} at output step {self.step}" if second else first

    def effect_table(self, title: str, first: str, wholes: Mapping[str, float]) -> Table:
        """Return a table of layers by heads; `wholes`: effects of whole layers, and of parts without heads."""
        most = max(map(len, self.heads.values()), default=0)
        table = plain_table((first, *(f"head {head}" for head in range(most)), "whole"), title=title)
        for name in dict.fromkeys([*self.heads, *wholes]):
            cells = [signed(value) for value in self.heads.get(name, [])]
            whole = [signed(wholes[name])] if name in wholes else []
            table.add_row(name, *cells, *[""] * (most - len(cells)), *whole)
        return table


class InputPair(NamedTuple):
    """A clean and a corrupted input in the form of `Subject.prepare`."""

    clean: Any
    corrupted: Any
    causal: bool  # Whether each output depends on the inputs up to its own position only
    step: int | None = None  # The output step that answers the clean input, such as its first mask; None: not known


def prepare_inputs(subject: Subject[Any], clean: Any, corrupted: Any) -> InputPair:
    """Return both inputs in the form of `Subject.prepare`. A model that generates its answers reads the answer to the
    clean input in both runs, unless the corrupted input is a pair of source and target. Raises `InputError` for
    different numbers of tokens."""
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
    compared. `step`: output step, negative from the end. None: the first mask of a masked model, otherwise the last
    step; a model that is not causal is compared at the first step at which its predictions differ if they are equal at
    the last step; with `answers`, at the first step at which the clean run predicts the first answer, if it does not at
    the last step. Raises `InputError` if the difference is the same in both runs.
    """
    if answers is not None and metric is not None:
        raise InputError("answers and metric exclude each other: leave out one of them")
    is_fixed = inputs.causal or metric is not None
    classes = [subject.patchable.answer_class(text, logits[0].shape[-1]) for text in answers or ()]
    if answers is not None and classes[0] == classes[1]:
        raise InputError(f"the answers {answers[0]!r} and {answers[1]!r} begin with the same token: give others")
    count, place = min(map(len, logits)), inputs.step if step is None else step
    if place is not None:
        check_range("step", place, -count, count - 1)
        place %= count
    else:
        predicted = [values[:count].argmax(-1) for values in logits]
        fitting = predicted[0] == classes[0] if classes else predicted[0] != predicted[1]
        found = [] if is_fixed else fitting.nonzero().flatten().tolist()
        place = found[0] if found and count - 1 not in found else count - 1
    classes = classes or [int(values[place].argmax()) for values in logits]
    measure = metric or (lambda values: values[place, classes[0]] - values[place, classes[1]])
    is_number = metric is None and logits[0].shape[-1] == 1  # such as a loss
    if is_number:
        measure = lambda values: values[place, 0]  # noqa: E731
    try:
        with torch.no_grad():
            differences = [float(measure(values)) for values in logits]
    except Exception as error:  # a metric of the user can raise anything
        raise InputError(f"metric failed on logits {tuple(logits[0].shape)}: {describe_error(error)}") from error
    if abs(differences[0] - differences[1]) < MIN_DIFFERENCE:
        raise InputError(SAME + SAME_PREDICTED * (not is_number and answers is None and metric is None))
    number = ("the value" if is_number else "the metric", "")
    first, second = number if is_number or metric is not None else subject.called(classes)
    return AnswerDifference(measure, (first, second), place, *differences)


NO_ATTENTION = "no attention was recorded in the model; if it has attention, pass modules= to look()"
STATE = "state after "  # Prefix of the name of a block's state


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class PatchingResult(DifferenceEffects):
    """The effect of each part of a model, as a fraction of the logit difference between two inputs."""

    positions: list[int] | None = None
    """Patched steps of each layer; None: all."""
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
            return f"no head alone restores the difference; the largest effect is {value:.1%}, {layer} head {head}"
        return f"of the heads, {layer} head {head} restores the most, {value:.1%} of the difference"

    @property
    def title(self) -> str:
        at = "" if self.positions is None else f", steps {', '.join(map(str, self.positions))} patched"
        return f"Restored fraction of {self.difference}{at}"

    @property
    def wholes(self) -> dict[str, float]:
        """The effects of whole layers, of feed-forward layers and of states."""
        return {**self.layers, **self.feed_forward, **{STATE + name: value for name, value in self.states.items()}}

    def table(self) -> RenderableType:
        table = self.effect_table(self.title, "layer", self.wholes)
        left_out = [f"left out: {name} ({reason})" for name, reason in self.left_out.items()]
        return Group(table, self.summary(), *left_out)

    def plot(self, path: str | Path) -> Path:
        """Draw a heatmap, layers by heads (.png, .svg or .pdf), with caption and data; see `PaperFigure.save`."""
        from regard.viz.plots import head_figure

        caption = f"{self.title}: each part of {self.clean!r} patched into {self.corrupted!r}."
        return head_figure(self.heads, caption, "restored fraction", self.wholes).save(path)


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
    translation model reads the answer to the clean input in both runs. `answers`: two texts, whose first tokens' logits
    are compared (None: the model's answers). `step`: output step (None: the last, or, if it does not fit, the first at
    which the answers differ, or at which an encoder-decoder predicts the first of `answers`). `metric`: a function of
    the logits (T, C), or of the first tensor (T, ...) that a custom model returns, instead of the logit difference.
    `positions`: patched steps of each layer, negative from the end (None: all).

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
    modules = {**components.feed_forward, **{STATE + name: block for name, block in components.blocks.items()}}
    run = subject.patchable.outputs
    if metric is None and subject.patchable.logits is not None:
        run = partial(subject.patchable.logits, loss=answers is None)

    def run_changed(prepared: Any, change: Change) -> Tensor:
        """Return the logits (T, C) if `change` changes the activations."""
        with components.replace_contexts(change), replace_outputs(modules, change):
            return run(prepared)

    def read(prepared: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the logits (T, C) of an input, and all activations that can be patched."""
        calls: dict[str, list[Tensor]] = {}

        def store(name: str, states: Tensor) -> Tensor:
            calls.setdefault(name, []).append(states.clone())
            return states

        logits = run_changed(prepared, store)
        # A recurrent decoder calls a layer once for each step.
        return logits, {name: torch.cat(states, dim=-2) for name, states in calls.items()}

    with torch.no_grad(), subject.patchable.calling_hooks():
        (first, stored), (second, others) = read(inputs.clean), read(inputs.corrupted)
        lengths = {name: states.shape[-2] for name, states in stored.items()}
        for name, length in lengths.items():
            check_lengths([length, others[name].shape[-2]])
        difference = compare_answers(subject, inputs, [first, second], answers=answers, metric=metric, step=step)
        chosen = [positions] if isinstance(positions, int) else None if positions is None else list(positions)
        steps = _patched_steps(chosen, lengths)

        def effect(name: str, head: int | None = None) -> float:
            """Return the effect of one activation, or of one head of a layer."""
            start, count = 0, 1 if head is None else components.heads[name].heads

            def insert(other: str, states: Tensor) -> Tensor:
                nonlocal start
                if other != name:
                    return states
                begin, start = start, start + states.shape[-2]
                rows = [row for row in steps[name] if begin <= row < start]
                index = torch.tensor(rows, dtype=torch.int64, device=states.device)
                split, own = states.unflatten(-1, (count, -1)), slice(head, None if head is None else head + 1)
                patched = split.index_select(-3, index - begin)
                source = stored[name].index_select(-2, index).unflatten(-1, (count, -1))
                patched[..., own, :] = source[..., own, :]
                joined: Tensor = split.index_copy(split.dim() - 3, index - begin, patched).flatten(-2)
                return joined

            return difference.restored(run_changed(inputs.corrupted, insert))

        layers = {name: layer.heads for name, layer in components.heads.items() if name in steps}
        short = {name: f"it has {plural(length, 'step')}" for name, length in lengths.items() if name not in steps}
        return PatchingResult(
            **_facts(subject, clean, corrupted, inputs, difference),
            positions=chosen,
            heads={name: [effect(name, head) for head in range(count)] for name, count in layers.items()},
            layers={name: effect(name) for name in layers},
            feed_forward={name: effect(name) for name in components.feed_forward if name in steps},
            states={name: effect(STATE + name) for name in components.blocks if STATE + name in steps},
            left_out={**components.left_out, **components.feed_forward_left_out, **short},
        )


def compare_runs(
    subject: Subject[Any], clean: Any, corrupted: Any, receivers: Sequence[str] | None, **options: Any
) -> tuple[InputPair, ResidualGraph, tuple[Pass, Pass], AnswerDifference]:
    """Return two inputs, the graph of the clean one, both passes, and the difference of answers; `receivers` as in
    `graph_of_probe`, `options` as in `compare_answers`."""
    inputs = prepare_inputs(subject, clean, corrupted)
    probes = [subject.trial(prepared) for prepared in inputs[:2]]
    if options["answers"] is None and options["metric"] is None:
        probes = [probe.loss or probe for probe in probes]
    graph = graph_of_probe(subject, probes[0], receivers)
    passes = graph.full(1), corrupted_pass(graph, *probes)
    logits = [passed.logits[0] for passed in passes]
    wide = [each if each.dtype == torch.float64 else each.float() for each in logits]
    return inputs, graph, passes, compare_answers(subject, inputs, wide, **options)


def _patched_steps(positions: Sequence[int] | None, lengths: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the patched steps of each activation; one without any of the positions is left out."""
    if positions is None:
        return {name: list(range(length)) for name, length in lengths.items()}
    longest = max(lengths.values())
    for position in positions:
        check_range("position", position, -longest, longest - 1)
    steps = {
        name: [position % length for position in positions if -length <= position < length]
        for name, length in lengths.items()
    }
    return {name: rows for name, rows in steps.items() if rows}


def _facts(
    subject: Subject[Any], clean: Any, corrupted: Any, inputs: InputPair, difference: AnswerDifference
) -> dict[str, Any]:
    """Return the fields of `DifferenceEffects`, except for the effects."""
    return {
        "clean": clean if isinstance(clean, str) else subject.look(inputs.clean).input,
        "corrupted": corrupted if isinstance(corrupted, str) else subject.look(inputs.corrupted).input,
        "answers": difference.answers,
        "difference_clean": difference.clean,
        "difference_corrupted": difference.corrupted,
        "step": difference.step,
    }


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class PathPatchingResult(DifferenceEffects):
    """The effect of each direct path to some receivers, as a fraction of the logit difference between two inputs."""

    receivers: list[str]
    others: dict[str, float]
    """The effect of the paths from the embedding (`inputs`) and from feed-forward layers."""

    def summary(self) -> str:
        effects = {f"{layer}.{head}": v for layer, values in self.heads.items() for head, v in enumerate(values)}
        effects |= self.others
        name = max(effects, key=lambda sender: abs(effects[sender]))
        return f"the path {name} -> {', '.join(self.receivers)} carries the most, {effects[name]:.1%}"

    @property
    def title(self) -> str:
        return f"Lost fraction of {self.difference}, path to {', '.join(self.receivers)}"

    def table(self) -> RenderableType:
        table = self.effect_table(self.title, "from", self.others)
        return Group(table, "All other heads and feed-forward layers are frozen to the clean run.")

    def plot(self, path: str | Path) -> Path:
        """Draw a heatmap, layers by heads (.png, .svg or .pdf), with caption and data; see `PaperFigure.save`."""
        from regard.viz.plots import head_figure

        caption = f"{self.title}: one path at a time of {self.clean!r} reads {self.corrupted!r}."
        values = {**self.heads, **{name: [value] for name, value in self.others.items()}}
        return head_figure(values, caption, "lost fraction").save(path)


@public
def patch_paths(
    subject: Subject[Any],
    clean: Any,
    corrupted: Any,
    receivers: str | Sequence[str] = LOGITS,
    *,
    answers: tuple[str, str] | None = None,
    metric: Metric | None = None,
    step: int | None = None,
) -> PathPatchingResult:
    """Patch the direct path from each sender to `receivers` with the corrupted input, and return the effects.

    `receivers`: `logits`, or one or more of `LAYER.HEAD.query`, `LAYER.HEAD.key`, `LAYER.HEAD.value` and names
    of feed-forward layers, which are patched together. Other arguments as in `patch`.

    >>> regard.patch_paths(run, "BCCCB", "BCCCA", "decoder.1.self_attention.0.key")    # doctest: +SKIP

    Raises `InputError` for an unknown receiver, inputs of different lengths or equal answers, and inseparable edges.
    """
    check_subject(subject)
    with torch.no_grad(), subject.patchable.calling_hooks():
        names = [receivers] if isinstance(receivers, str) else list(receivers)
        inputs, graph, passes, difference = compare_runs(
            subject, clean, corrupted, names, answers=answers, metric=metric, step=step
        )
        known = {node.name: node for node in graph.receivers}
        nodes = [known[known_name(name, known, "node")] for name in names]
        if not nodes or (len(nodes) > 1 and any(node.key == LOGITS for node in nodes)):
            raise InputError(f"receivers={names} cannot be patched together: give logits alone, or other receivers")
        reached = {sender for node in nodes for sender in graph.edges[node.key]}
        senders = [sender for sender in graph.senders if sender.key in reached]
        effects: dict[str, float] = {}
        for begin in range(0, len(senders), graph.copies):
            chunk = senders[begin : begin + graph.copies]
            patches = [(copy, nodes) for copy in range(len(chunk))]
            logits = run_patched(graph, patched_reads(graph, *passes, chunk), patches)
            lost = [difference.lost(values.float()) for values in logits]
            effects |= dict(zip((sender.name for sender in chunk), lost, strict=True))
    layers = [key for key in graph.components.heads if key in reached]
    return PathPatchingResult(
        **_facts(subject, clean, corrupted, inputs, difference),
        receivers=[node.name for node in nodes],
        heads={layer: [effects[node.name] for node in graph.nodes_of_sender(layer)] for layer in layers},
        others={node.name: effects[node.name] for node in senders if node.head is None},
    )

"""Activation patching (Vig et al. 2020, section 3; Meng et al. 2022, section 2.1): which heads and layers carry
what makes a model answer one way and not the other?

    found = regard.patch(subject, "The doctor said he", "The nurse said he", answers=("doctor", "nurse"))

The model runs on a clean input and on a corrupted one. Then it runs on the corrupted one again, with what a
single head (or all heads of a layer) works out put back as it was in the clean run, and the effect is how much of
the difference that brings back:

    effect = (difference patched - difference corrupted) / (difference clean - difference corrupted)

0: nothing, 1: all of it. The difference is that of the logits of two answers, at the last step. What is patched
is each head's context, before the projection that joins them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from regard.attention import short_name
from regard.errors import InputError, begun
from regard.external.asked import asked_of
from regard.external.families import Pairs, Writer, called, states_of
from regard.external.model import ForeignModel
from regard.external.readers import OwnReader
from regard.external.recording import as_recorded
from regard.external.removing import removables
from regard.io import write_file
from regard.result import Result
from regard.viz import Layer
from regard.viz.attention_map import PICTURES, check_extension

SAME = 1e-6
"""Difference of the logit differences, in nats, below which there is nothing to bring back."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Patched(Result):
    """How much of a difference between two inputs each head and layer brings back."""

    clean: str
    corrupted: str
    answers: tuple[str, str]
    """The token that the clean input calls for, and the one that the corrupted input does."""
    difference_clean: float
    """Logit of the first answer less that of the second, after the clean input."""
    difference_corrupted: float
    heads: dict[str, list[float]]
    """By layer: the effect of each head, patched alone; 0 nothing, 1 all of the difference."""
    layers: dict[str, float]
    """By layer: the effect of all its heads together."""

    def summary(self) -> str:
        """Name the head with the largest effect."""
        value, layer, head = max(
            (value, layer, head) for layer, values in self.heads.items() for head, value in enumerate(values)
        )
        return f"{layer} head {head} brings back most, {value:.1%} of the difference"

    def table(self) -> Table:
        """Return a line for each layer."""
        most = max(map(len, self.heads.values()))
        table = Table("layer", *(f"head {head}" for head in range(most)), "all heads", box=None, pad_edge=False)
        first, second = self.answers
        table.title = f"Share of the difference {first!r} - {second!r} that is brought back"
        table.title_justify = "left"
        for layer, values in self.heads.items():
            blank = [""] * (most - len(values))
            table.add_row(layer, *(f"{each:+.3f}" for each in values), *blank, f"{self.layers[layer]:+.3f}")
        return table

    def plot(self, path: str | Path) -> Path:
        """Draw a heatmap, layers by heads: .png, .svg or .pdf; raises `InputError` for another ending."""
        from regard.viz.plots import draw_head_table

        path = Path(path)
        check_extension(path, PICTURES)
        first, second = self.answers
        title = f"{self.clean!r} put into {self.corrupted!r}: share of {first!r} - {second!r} brought back"
        write_file(path, draw_head_table(self.heads, title, path.suffix.lower()[1:]))
        return path


def patch(
    subject: ForeignModel,
    clean: Any,
    corrupted: Any,
    *,
    answers: tuple[str, str] | None = None,
    metric: Callable[[Tensor], Tensor] | None = None,
) -> Patched:
    """Put what each head works out on a clean input into a run on a corrupted one, and return what that brings
    back.

    `clean`, `corrupted`: inputs of as many tokens each. `answers`: two texts, whose first tokens' logits are
    compared at the last step (None: what the model answers to each). `metric`: instead of that difference, a
    function of the logits (T, C), or of the first tensor (T, ...) that a model of one's own returns. Raises
    `InputError` where the inputs are not of one length, where both runs answer alike, or for a model whose heads
    cannot be told apart.
    """
    _check_given(subject, answers)
    if not isinstance(subject.family, Writer | Pairs) and metric is None:
        raise InputError(f"{subject.name} writes nothing whose logits could be compared: give metric")
    runs = [_given(subject, each) for each in (clean, corrupted)]
    _check_lengths(runs)
    found = contexts_of(subject.model, subject.layers)
    if not found:
        raise InputError(
            f"the heads of {type(subject.model).__name__} cannot be told apart: no layer can be patched"
        )
    with torch.no_grad(), as_recorded(subject.model):
        kept: dict[str, Tensor] = {}
        with ExitStack() as stack:
            for name, each in found.items():
                stack.enter_context(each.changing(partial(_keep, kept, name)))
            logits = [_logits(subject, runs[0])]
        logits.append(_logits(subject, runs[1]))
        tokens = _tokens(subject, answers, logits)
        measure = metric or (lambda each: each[-1, tokens[0]] - each[-1, tokens[1]])
        whole, nothing = (float(measure(each)) for each in logits)
        if abs(whole - nothing) < SAME:
            raise InputError("both inputs are answered alike: there is nothing to bring back")

        def effect(name: str, heads: Sequence[int]) -> float:
            each = found[name]
            with each.changing(each.put(kept[name], heads)):
                return (float(measure(_logits(subject, runs[1]))) - nothing) / (whole - nothing)

        return Patched(
            clean=asked_of(clean).text,
            corrupted=asked_of(corrupted).text,
            answers=subject_words(subject, tokens),
            difference_clean=whole,
            difference_corrupted=nothing,
            heads={name: [effect(name, [head]) for head in range(each.heads)] for name, each in found.items()},
            layers={name: effect(name, range(each.heads)) for name, each in found.items()},
        )


def _keep(kept: dict[str, Tensor], name: str, states: Tensor) -> Tensor:
    kept[name] = states.clone()
    return states


def _check_given(subject: object, answers: object) -> None:
    if not isinstance(subject, ForeignModel):
        raise InputError(f"{begun(str(subject))} is no model to patch: give what look() returns")
    texts = answers if isinstance(answers, tuple | list) else [answers]
    if answers is not None and (len(texts) != 2 or not all(isinstance(each, str) for each in texts)):
        raise InputError(f"answers {begun(str(answers))} are no two texts: give two, as in ('doctor', 'nurse')")


def _given(subject: ForeignModel, input: Any) -> Any:
    asked = asked_of(input)
    if isinstance(subject.family, Writer):
        return subject.family.texts.tensors(subject.model, asked.given)
    return subject.family.plain(subject.model, subject.family.feed(subject.model, asked))


def _check_lengths(runs: Sequence[Any]) -> None:
    shapes = [[tuple(each.shape) for each in (run.values() if isinstance(run, dict) else run)] for run in runs]
    if shapes[0] != shapes[1]:
        counts = " and ".join(str(each[0][-1]) for each in shapes)
        raise InputError(f"inputs have {counts} tokens: patching needs as many in both")


def _logits(subject: ForeignModel, given: Any) -> Tensor:
    """Return the logits (T, C) of one run."""
    output = called(subject.model, given)
    own = isinstance(subject.family, OwnReader)
    logits = states_of(output) if own else subject.family.logits(output)
    if logits is None:
        raise InputError(f"{subject.name} returns no logits: nothing can be compared")
    return logits[0].float()


def _tokens(subject: ForeignModel, answers: tuple[str, str] | None, logits: Sequence[Tensor]) -> tuple[int, int]:
    """Return the tokens that are compared: the first ones of two texts, or what is answered to each input."""
    if answers is None:
        return int(logits[0][-1].argmax()), int(logits[1][-1].argmax())
    texts = getattr(subject.family, "texts", None)
    if texts is None:
        raise InputError(f"{subject.name} has no tokenizer for answers: give metric")
    first, second = (_first_token(texts, each) for each in answers)
    return first, second


def _first_token(texts: Any, text: str) -> int:
    """Return the token that begins a text, special ones left out."""
    ids = texts.target_ids(text)
    if not ids:
        raise InputError(f"answer {text!r} is no token: give another")
    return int(ids[0])


def subject_words(subject: ForeignModel, tokens: tuple[int, int]) -> tuple[str, str]:
    """Return what two tokens are called."""
    first, second = subject.called(list(tokens))
    return first, second


class Contexts:
    """Where the heads of a layer stand side by side: before the projection that joins them."""

    def __init__(self, projection: nn.Module, heads: int, *, of_torch: bool) -> None:
        self.projection, self.heads, self.of_torch = projection, heads, of_torch

    @contextmanager
    def changing(self, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """Go on in the block with what `change` returns of all contexts of a call, (B, Tq, H Dv)."""
        if self.of_torch:
            with _bare(self.projection) as joined:
                handle = self.projection.register_forward_hook(
                    lambda module, given, output: (joined(change(output[0])), *output[1:])
                )
                with _removed(handle):
                    yield
            return
        handle = self.projection.register_forward_pre_hook(lambda module, given: (change(given[0]), *given[1:]))
        with _removed(handle):
            yield

    def put(self, clean: Tensor, chosen: Sequence[int]) -> Callable[[Tensor], Tensor]:
        """Return a change that puts some heads back as they were in the clean run."""

        def change(states: Tensor) -> Tensor:
            found = states.unflatten(-1, (self.heads, -1)).clone()
            found[..., list(chosen), :] = clean.unflatten(-1, (self.heads, -1))[..., list(chosen), :]
            joined: Tensor = found.flatten(-2)
            return joined

        return change


def contexts_of(model: nn.Module, layers: Sequence[Layer]) -> dict[str, Contexts]:
    """Return by layer where its heads stand side by side, as far as its parts show."""
    found = {
        name: Contexts(each.output, each.heads, of_torch=False)
        for name, each in removables(model, layers).items()
    }
    modules = {short_name(name): module for name, module in model.named_modules()}
    for layer in layers:
        module = modules.get(layer.name)
        if isinstance(module, nn.MultiheadAttention):
            found[layer.name] = Contexts(module, layer.heads, of_torch=True)
    return {layer.name: found[layer.name] for layer in layers if layer.name in found}


@contextmanager
def _bare(layer: Any) -> Iterator[nn.Module]:
    """Let a layer of PyTorch's, which never calls its projection as a module, return its contexts; yields the
    projection."""
    joined = layer.out_proj
    same = nn.Linear(joined.in_features, joined.in_features).to(joined.weight)
    nn.init.eye_(same.weight)
    nn.init.zeros_(same.bias)
    layer.out_proj = same
    try:
        yield joined
    finally:
        layer.out_proj = joined


@contextmanager
def _removed(handle: Any) -> Iterator[None]:
    """Remove a hook after the block."""
    try:
        yield
    finally:
        handle.remove()

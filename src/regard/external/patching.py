"""Activation patching (Vig et al. 2020, section 3; Meng et al. 2022, section 2.1).

Patching finds the heads and layers that make a model prefer one of two answers.

    result = regard.patch(subject, "The doctor said he", "The nurse said he", answers=("doctor", "nurse"))

The model runs on a clean input and on a corrupted input. In a third run, on the corrupted input, the context of
one head (or of all heads of a layer) is replaced by the context from the clean run:

    effect = (difference patched - difference corrupted) / (difference clean - difference corrupted)

`difference` is the difference between the logits of two answers at the last step. The effect is 0 if the head
restores nothing, and 1 if the head restores the whole difference. The patch replaces the context of a head
before the output projection.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from torch import Tensor

from regard.errors import InputError, shorten
from regard.external.adapters import CustomModel, call_model, find_states
from regard.external.language_models import CausalLMAdapter, Seq2SeqAdapter
from regard.external.model import ExternalModel
from regard.external.model_components import find_contexts
from regard.external.model_input import as_input
from regard.external.recording import recorded_path
from regard.io import write_file
from regard.result import Result
from regard.viz.attention_map import PICTURES, check_extension

MIN_DIFFERENCE = 1e-6
"""Smallest logit difference between the clean and the corrupted run, in nats, for which effects are computed."""


@dataclass(frozen=True, kw_only=True, repr=False)
class PatchingResult(Result):
    """The effect of each head and each layer, as a fraction of the logit difference between two inputs."""

    clean: str
    corrupted: str
    answers: tuple[str, str]
    """The answer tokens for the clean and the corrupted input."""
    difference_clean: float
    """Logit of the first answer minus the logit of the second answer, for the clean input."""
    difference_corrupted: float
    heads: dict[str, list[float]]
    """By layer: the effect of patching each head alone."""
    layers: dict[str, float]
    """By layer: the effect of patching all heads of the layer together."""

    def summary(self) -> str:
        """Return the head with the largest effect, in one line."""
        value, layer, head = max(
            (value, layer, head) for layer, values in self.heads.items() for head, value in enumerate(values)
        )
        return f"{layer} head {head} restores the most, {value:.1%} of the difference"

    def table(self) -> Table:
        """Return a table with a row for each layer."""
        most = max(map(len, self.heads.values()))
        table = Table("layer", *(f"head {head}" for head in range(most)), "all heads", box=None, pad_edge=False)
        first, second = self.answers
        table.title = f"Restored fraction of the difference {first!r} - {second!r}"
        table.title_justify = "left"
        for layer, values in self.heads.items():
            blank = [""] * (most - len(values))
            table.add_row(layer, *(f"{value:+.3f}" for value in values), *blank, f"{self.layers[layer]:+.3f}")
        return table

    def plot(self, path: str | Path) -> Path:
        """Draw a heatmap, layers by heads: .png, .svg or .pdf; raises `InputError` for another ending."""
        from regard.viz.plots import draw_head_table

        path = Path(path)
        check_extension(path, PICTURES)
        first, second = self.answers
        title = f"{self.clean!r} patched into {self.corrupted!r}: restored fraction of {first!r} - {second!r}"
        write_file(path, draw_head_table(self.heads, title, path.suffix.lower()[1:]))
        return path


def patch(
    subject: ExternalModel,
    clean: Any,
    corrupted: Any,
    *,
    answers: tuple[str, str] | None = None,
    metric: Callable[[Tensor], Tensor] | None = None,
) -> PatchingResult:
    """Patch each head's context from a clean run into a corrupted run, and return the effects.

    `clean`, `corrupted`: inputs with the same number of tokens. `answers`: two texts, whose first tokens' logits
    are compared at the last step (None: the model's answers to the inputs). `metric`: a function of the logits
    (T, C), or of the first tensor (T, ...) that a custom model returns, instead of the logit difference. Raises
    `InputError` if the inputs have different lengths, if both runs give the same answer, or if the heads of the
    model cannot be separated.
    """
    _check_arguments(subject, answers)
    if not isinstance(subject.adapter, CausalLMAdapter | Seq2SeqAdapter) and metric is None:
        raise InputError(f"{subject.name} has no answers whose logits could be compared: pass metric=")
    runs = [_arguments(subject, value) for value in (clean, corrupted)]
    _check_lengths(runs)
    contexts = find_contexts(subject.model, subject.layers)
    if not contexts:
        raise InputError(
            f"the heads of {type(subject.model).__name__} cannot be separated: no layer can be patched"
        )
    with torch.no_grad(), recorded_path(subject.model):
        clean_contexts: dict[str, Tensor] = {}
        with ExitStack() as stack:
            for name, layer in contexts.items():
                stack.enter_context(layer.replace(partial(_store, clean_contexts, name)))
            logits = [_logits(subject, runs[0])]
        logits.append(_logits(subject, runs[1]))
        tokens = _answer_tokens(subject, answers, logits)
        measure = metric or (lambda values: values[-1, tokens[0]] - values[-1, tokens[1]])
        difference_clean, difference_corrupted = (float(measure(values)) for values in logits)
        if abs(difference_clean - difference_corrupted) < MIN_DIFFERENCE:
            raise InputError(
                "both inputs have the same answer, so there is no difference to restore: give"
                " inputs with different answers"
            )

        def effect(name: str, heads: Sequence[int]) -> float:
            layer = contexts[name]
            with layer.replace(layer.insert(clean_contexts[name], heads)):
                patched = float(measure(_logits(subject, runs[1])))
            return (patched - difference_corrupted) / (difference_clean - difference_corrupted)

        first, second = subject.called(list(tokens))
        return PatchingResult(
            clean=as_input(clean).text,
            corrupted=as_input(corrupted).text,
            answers=(first, second),
            difference_clean=difference_clean,
            difference_corrupted=difference_corrupted,
            heads={
                name: [effect(name, [head]) for head in range(layer.heads)] for name, layer in contexts.items()
            },
            layers={name: effect(name, range(layer.heads)) for name, layer in contexts.items()},
        )


def _store(contexts: dict[str, Tensor], name: str, states: Tensor) -> Tensor:
    contexts[name] = states.clone()
    return states


def _check_arguments(subject: object, answers: object) -> None:
    if not isinstance(subject, ExternalModel):
        raise InputError(f"{shorten(str(subject))} is not a model to patch: pass a result of look()")
    texts = answers if isinstance(answers, tuple | list) else [answers]
    if answers is not None and (len(texts) != 2 or not all(isinstance(text, str) for text in texts)):
        raise InputError(
            f"answers={shorten(str(answers))} are not two texts: pass two texts, as in ('doctor', 'nurse')"
        )


def _arguments(subject: ExternalModel, value: Any) -> Any:
    model_input = as_input(value)
    if isinstance(subject.adapter, CausalLMAdapter):
        return subject.adapter.texts.tensors(subject.model, model_input.value)
    prepared = subject.adapter.prepare(subject.model, model_input)
    return subject.adapter.plain_arguments(subject.model, prepared)


def _check_lengths(runs: Sequence[Any]) -> None:
    shapes = [
        [tuple(tensor.shape) for tensor in (run.values() if isinstance(run, dict) else run)] for run in runs
    ]
    if shapes[0] != shapes[1]:
        counts = " and ".join(str(sizes[0][-1]) for sizes in shapes)
        raise InputError(f"inputs have {counts} tokens: pass two inputs with the same number of tokens")


def _logits(subject: ExternalModel, arguments: Any) -> Tensor:
    """Return the logits (T, C) of one run."""
    output = call_model(subject.model, arguments)
    is_custom = isinstance(subject.adapter, CustomModel)
    logits = find_states(output) if is_custom else subject.adapter.logits(output)
    if logits is None:
        raise InputError(f"{subject.name} returns no logits: nothing can be compared")
    return logits[0].float()


def _answer_tokens(
    subject: ExternalModel, answers: tuple[str, str] | None, logits: Sequence[Tensor]
) -> tuple[int, int]:
    """Return the compared tokens: the first token of each text, or the most likely token for each input."""
    if answers is None:
        return int(logits[0][-1].argmax()), int(logits[1][-1].argmax())
    texts = getattr(subject.adapter, "texts", None)
    if texts is None:
        raise InputError(f"{subject.name} has no tokenizer for answers: pass metric=")
    first, second = (_first_token(texts, text) for text in answers)
    return first, second


def _first_token(texts: Any, text: str) -> int:
    """Return the first token of a text that is not a special token."""
    ids = texts.target_ids(text)
    if not ids:
        raise InputError(f"answer {text!r} has no token: give another answer")
    return int(ids[0])

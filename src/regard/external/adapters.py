"""Adapters define how an external model receives inputs, what it predicts, and how its loss is computed.

The class name of a transformers model decides which adapter it gets:

    ForCausalLM, and others that generate    CausalLMAdapter     each next token
    ForConditionalGeneration, Seq2SeqLM      Seq2SeqAdapter      a target, given a source
    ForMaskedLM                              MaskedLMAdapter     masked tokens
    For...Classification                     ClassifierAdapter   a class
    any other                                EncoderAdapter      nothing: only states are returned
    a user's own module                      CustomModel         nothing, or the user's loss

The first three adapters are in `language_models`. A model receives one input at a time. If the expected answer
is unknown, the loss is computed against the answer of the unmodified model. `measure` then names this loss.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.activations.modules import find_base_model, is_transformers_model
from regard.errors import InputError, shorten
from regard.external.model_input import ImageProcessor, ModelInput, TextEncoder, find_input
from regard.libraries import library_errors

TOKENS = "input_ids"
"""Name of the argument that holds the tokens of an input."""
IGNORED = -100
"""Class index that marks outputs without a known expected answer."""
MAX_GENERATED = 100_000
"""Largest number of tokens that a user may ask a model to generate."""
MakeArguments = Callable[[Any], Any]
"""Converts an input to the arguments of a model: a tensor, a tuple of tensors, or a dict of tensors by name."""
Loss = Callable[[nn.Module, Any], Any]
"""Returns the loss of a model on an input."""
NameSteps = Callable[[Any], Sequence[str]]
"""Returns a label for each step of an input."""


@dataclass(frozen=True, kw_only=True)
class PreparedInput:
    """The model arguments and the expected answer of one input."""

    input: ModelInput
    arguments: dict[str, Any] | tuple[Any, ...]
    truth: Tensor | None = None
    """(N, Tq), the class of each output, or `IGNORED`; None if there are no classes."""
    before: Tensor | None = None
    """Output states of the unmodified model, for models that predict no classes."""


class Answer(NamedTuple):
    """The answer of a model."""

    prepared: PreparedInput
    """The arguments for which attention is recorded."""
    prediction: str | None = None
    truth: str | None = None
    outputs: Sequence[str] = ()
    probabilities: Sequence[float] = ()


def call_model(model: nn.Module, arguments: dict[str, Any] | tuple[Any, ...]) -> Any:
    """Call a model; raises `InputError` for arguments that a transformers model rejects."""
    with one_line_errors(model):
        return model(**arguments) if isinstance(arguments, dict) else model(*arguments)


def one_line_errors(model: nn.Module) -> AbstractContextManager[None]:
    """Turn exceptions of a transformers model into a one-line error; exceptions of a custom module keep their
    traceback."""
    if not is_transformers_model(find_base_model(model)):
        return nullcontext()
    where = getattr(model, "name_or_path", "")
    problem = f"{type(model).__name__}{f' of {where!r}' if where else ''} failed on this input"
    return library_errors(
        "transformers", problem, "give another input, or check that the tokenizer belongs to the model"
    )


class Adapter(ABC):
    """The inputs and outputs of one kind of model."""

    accepts: ClassVar[str] = "a text"
    """Description of the inputs that a user may type."""
    summary: ClassVar[str]
    measure: ClassVar[str] = "loss"
    unanswered: ClassVar[Sequence[str]] = ()
    """Sentences that name the analyses that are not available."""
    causal: ClassVar[bool] = False
    """Whether each output depends on the inputs up to its own position only."""
    no_truth: ClassVar[str] = "has no expected answer: give another input"
    """Why an input may have no loss."""

    @property
    def alphabet(self) -> Sequence[int]:
        """Tokens that may replace a token of an input; empty if they are not known."""
        texts = getattr(self, "texts", None) or getattr(self, "inputs", None)
        return texts.alphabet if isinstance(texts, TextEncoder) else ()

    def uses_own_answers(self, inputs: Sequence[ModelInput]) -> bool:
        del inputs
        return False

    @abstractmethod
    def prepare(self, model: nn.Module, model_input: ModelInput) -> PreparedInput:
        """Return an input with its expected answer, or with the model's own answer; raises `InputError`."""

    def arguments(self, model: nn.Module, model_input: ModelInput) -> Any:
        """Return the arguments of the model for an input; raises `InputError` for an input of another kind."""
        encoder: Any = getattr(self, "texts", None) or getattr(self, "inputs", None)
        return encoder.tensors(model, model_input.value)

    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        """Return the model's answer, here none; `generate`: largest number of generated tokens."""
        del generate
        return Answer(PreparedInput(input=model_input, arguments=self.arguments(model, model_input)))

    def names(self, model: nn.Module, classes: Sequence[int]) -> list[str]:
        """Return the names of output classes: tokens of a language model, otherwise numbers."""
        del model
        texts = getattr(self, "texts", None)
        return list(map(str, classes)) if texts is None else texts.labels(list(classes))

    def answer_steps(self, tokens: Tensor) -> Sequence[int] | None:
        """Return the output steps that answer an input with tokens (T,); None: all."""
        del tokens
        return None

    def logits(self, output: Any) -> Tensor | None:
        """Return the logits (N, Tq, C) in a model's output; None if the output contains no logits.

        The logits of the start and the end of an answer are two steps.
        """
        named = output if isinstance(output, dict) else {"logits": getattr(output, "logits", None)}
        values = [value for name, value in named.items() if str(name).endswith("logits") and value is not None]
        if len(values) > 1 and len({value.shape for value in values}) == 1 and values[0].dim() == 2:
            return torch.stack(values, 1)
        return None if not values else with_steps(values[0])

    def outputs(
        self, model: nn.Module, prepared: PreparedInput, arguments: Any, count: int, loss: bool = False
    ) -> Tensor:
        """Return the logits (N, Tq, C) of `count` copies of an input, or with `loss` the user's loss (N, 1, 1).

        Raises `InputError` for a model without logits.
        """
        logits, kind = self.logits(call_model(model, arguments)), type(model).__name__
        if logits is None:
            raise InputError(
                f"{kind} returns states and no logits: choose a model with an output layer, such as a classifier "
                "or a language model, or pass a loss function to look()"
            )
        if logits.dim() != 3 or len(logits) != count:
            raise InputError(
                f"{kind} returned {tuple(logits.shape)} for {count} copies of an input: let it return (batch, "
                "classes) or (batch, steps, classes), or pass a loss function to look()"
            )
        return logits

    def loss(self, model: nn.Module, prepared: PreparedInput) -> tuple[float, int]:
        """Return the sum of the loss over all outputs, in nats or in the unit of `measure`, and the number of
        outputs."""
        output = call_model(model, prepared.arguments)
        logits = self.logits(output)
        if prepared.truth is None or logits is None:
            assert prepared.before is not None
            return _relative_change(find_states(output), prepared.before), 1
        count = int((prepared.truth != IGNORED).sum())
        if not count:
            raise InputError(f"input {shorten(prepared.input.text)} {self.no_truth}")
        logits = logits[:, -prepared.truth.shape[1] :]  # learned steps before the input have no truth
        loss = F.cross_entropy(
            logits.float().flatten(0, -2), prepared.truth.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return float(loss), count


def with_steps(outputs: Tensor) -> Tensor:
    outputs = outputs.unsqueeze(-1) if outputs.dim() == 1 else outputs
    return outputs.unsqueeze(1) if outputs.dim() == 2 else outputs


def find_states(output: Any) -> Tensor:
    """Return the first floating-point tensor in a model's output."""
    if isinstance(output, Tensor):
        return output
    values = output.values() if isinstance(output, dict) else output
    for value in values if isinstance(values, Sequence) or hasattr(values, "__iter__") else ():
        if isinstance(value, Tensor) and value.is_floating_point():
            return value
    raise InputError(f"{type(output).__name__} contains no tensor: pass a loss function to look()")


def _relative_change(states: Tensor, before: Tensor) -> float:
    return float((states.float() - before.float()).square().sum() / before.float().square().sum())


@dataclass(frozen=True)
class ClassifierAdapter(Adapter):
    """A model that assigns a class to its input, or to each token."""

    inputs: TextEncoder | ImageProcessor
    summary = "a classifier"

    def uses_own_answers(self, inputs: Sequence[ModelInput]) -> bool:
        """Return True: users give inputs without their classes."""
        return True

    def prepare(self, model: nn.Module, model_input: ModelInput) -> PreparedInput:
        arguments = self.arguments(model, model_input)
        logits = self.logits(call_model(model, arguments))
        assert logits is not None
        return PreparedInput(input=model_input, arguments=arguments, truth=logits.argmax(-1))

    def names(self, model: nn.Module, classes: Sequence[int]) -> list[str]:
        names = getattr(model.config, "id2label", None) or {}
        return [str(names.get(number, number)) for number in classes]

    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        arguments = self.arguments(model, model_input)
        logits = self.logits(call_model(model, arguments))
        assert logits is not None
        probabilities, classes = logits[0].float().softmax(-1).max(-1)
        outputs = self.names(model, classes.tolist())
        prepared = PreparedInput(input=model_input, arguments=arguments)
        return Answer(prepared, " ".join(outputs), None, outputs, probabilities.tolist())


@dataclass(frozen=True)
class EncoderAdapter(Adapter):
    """A model without a known task, such as one that returns only states."""

    inputs: TextEncoder | ImageProcessor
    summary = "an encoder without an output layer"
    measure = "change of the states"
    unanswered = (
        "The model has no output layer and therefore no loss. The importance of a head is the relative change "
        "of the final states when the head is disabled.",
    )

    def prepare(self, model: nn.Module, model_input: ModelInput) -> PreparedInput:
        arguments = self.arguments(model, model_input)
        before = find_states(call_model(model, arguments))
        return PreparedInput(input=model_input, arguments=arguments, before=before)

    def outputs(
        self, model: nn.Module, prepared: PreparedInput, arguments: Any, count: int, loss: bool = False
    ) -> Tensor:
        logits = super().outputs(model, prepared, arguments, count, loss)
        tokens = arguments.get(TOKENS)
        by_token = tokens is not None and logits.shape[1:] == (1, tokens.shape[1])
        return logits.transpose(1, 2) if by_token else logits


@dataclass(frozen=True)
class CustomModel(Adapter):
    """A custom module, with a function that converts inputs to arguments and an optional loss function."""

    make_arguments: MakeArguments
    own_loss: Loss | None = None
    name_steps: NameSteps | None = None
    summary = "a custom model"

    @property
    def accepts(self) -> str:  # type: ignore[override]
        return "a text that the function passed to look() accepts"

    @property
    def measure(self) -> str:  # type: ignore[override]
        return "change of the states" if self.own_loss is None else "loss"

    @property
    def unanswered(self) -> Sequence[str]:  # type: ignore[override]
        """Sentences that name the analyses that are not available."""
        states = (
            "No loss is known. The importance of a head is the relative change of the final states when the "
            "head is disabled."
        )
        return () if self.own_loss is not None else (states,)

    def prepare(self, model: nn.Module, model_input: ModelInput) -> PreparedInput:
        """Return an input, with the model's current output states if there is no loss function."""
        arguments = self.arguments(model, model_input)
        before = find_states(call_model(model, arguments)) if self.own_loss is None else None
        return PreparedInput(input=model_input, arguments=arguments, before=before)

    def arguments(self, model: nn.Module, model_input: ModelInput) -> Any:
        value, target = model_input
        arguments = self.make_arguments(value if target is None else (value, target))
        if isinstance(arguments, Tensor):
            return (arguments,)
        if isinstance(arguments, dict | tuple):
            return arguments
        name = type(arguments).__name__
        raise InputError(
            f"the function passed to look() returned {name}: it must return a tensor, a tuple or a dict"
        )

    def logits(self, output: Any) -> Tensor | None:
        """Return the named logits (N, Tq, C) of an output, or its first tensor as logits."""
        logits = None if isinstance(output, Tensor) else super().logits(output)
        return with_steps(find_states(output)) if logits is None else logits

    def outputs(
        self, model: nn.Module, prepared: PreparedInput, arguments: Any, count: int, loss: bool = False
    ) -> Tensor:
        if not loss or self.own_loss is None:
            return super().outputs(model, prepared, arguments, count)
        output, losses = call_model(model, arguments), []
        for row in range(count):
            answered = _Answered(model, _select_row(output, row, count))
            losses.append(torch.as_tensor(self.own_loss(answered, prepared.input.value)))  # type: ignore[arg-type]
            if answered.calls != 1 or losses[-1].numel() != 1:
                raise InputError(
                    f"the loss function calls {type(model).__name__} {answered.calls} times and returns "
                    f"{tuple(losses[-1].shape)}: attribution needs one call, model(...), and one number"
                )
        return torch.stack(losses).view(count, 1, 1)

    def loss(self, model: nn.Module, prepared: PreparedInput) -> tuple[float, int]:
        if self.own_loss is None:
            return super().loss(model, prepared)
        return float(self.own_loss(model, prepared.input.value)), 1


class _Answered:
    """A model that was called before, and returns its output again."""

    def __init__(self, model: nn.Module, output: Any) -> None:
        self._model, self._output, self.calls = model, output, 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        return self._output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _select_row(output: Any, row: int, count: int) -> Any:
    """Return the output for one of some copies of an input, as a batch of 1."""
    if isinstance(output, Tensor):
        if not output.dim() or len(output) != count:
            raise InputError(
                f"the model returned {tuple(output.shape)} for {count} copies of an input, so the loss of each "
                "is not known: let the model return outputs with the batch first"
            )
        return output[row : row + 1]
    if isinstance(output, dict):
        return type(output)({name: _select_row(part, row, count) for name, part in output.items()})
    if isinstance(output, tuple | list):
        parts = [_select_row(part, row, count) for part in output]
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
    return output


def prepare_once(model: nn.Module, adapter: Adapter, inputs: Sequence[ModelInput], value: Any) -> PreparedInput:
    """Return an input with its answer; `inputs`: known inputs, which a label may name."""
    if isinstance(value, PreparedInput):
        return value
    return adapter.prepare(model, find_input(inputs, value))

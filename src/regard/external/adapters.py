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

import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InputError
from regard.external.model_input import ImageProcessor, ModelInput, TextEncoder, find_input
from regard.external.modules import find_base_model, is_transformers_model
from regard.libraries import library_errors
from regard.viz import Layer, ProbeInput

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
    reads: ClassVar[str | None] = None
    """Kind of the layers in which output steps attend to input steps; None if the model has no such layer."""

    @property
    def alphabet(self) -> Sequence[int]:
        """Tokens that may replace a token of an input; empty if they are not known."""
        texts = getattr(self, "texts", None) or getattr(self, "inputs", None)
        return texts.alphabet if isinstance(texts, TextEncoder) else ()

    def uses_own_answers(self, inputs: Sequence[ModelInput]) -> bool:
        """Return whether the model's own answer replaces the missing expected answer of any input."""
        del inputs
        return False

    @abstractmethod
    def prepare(self, model: nn.Module, model_input: ModelInput) -> PreparedInput:
        """Return an input with its expected answer, or with the model's own answer; raises `InputError`."""

    @abstractmethod
    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        """Return the model's answer; `generate`: largest number of generated tokens."""

    def plain_arguments(self, model: nn.Module, prepared: PreparedInput) -> Any:
        """Return the arguments for recording: a single row, without masks that only the loss needs."""
        del model
        return prepared.arguments

    def logits(self, output: Any) -> Tensor | None:
        """Return the logits (N, Tq, C) in a model's output; None if the output contains no logits."""
        logits: Tensor | None = getattr(output, "logits", None)
        return logits

    def loss(self, model: nn.Module, prepared: PreparedInput) -> tuple[float, int]:
        """Return the sum of the loss over all outputs, in nats or in the unit of `measure`, and the number of
        outputs."""
        output = call_model(model, prepared.arguments)
        logits = self.logits(output)
        if prepared.truth is None or logits is None:
            assert prepared.before is not None
            return _relative_change(find_states(output), prepared.before), 1
        logits = logits[:, -prepared.truth.shape[1] :]  # learned steps before the input have no truth
        loss = F.cross_entropy(
            logits.float().flatten(0, -2), prepared.truth.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return float(loss), int((prepared.truth != IGNORED).sum())

    def embedding(self, model: nn.Module) -> nn.Module | None:
        """Return the module whose first output is the embedding (N, Tk, D) of the input, if it is known."""
        getter = getattr(model, "get_input_embeddings", None)
        embedding: nn.Module | None = None if getter is None else getter()
        return embedding


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
    """Return the squared norm of the change of the states, divided by the squared norm of the states."""
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
        """Return an input, with the model's current prediction as the expected answer."""
        arguments = self.inputs.tensors(model, model_input.value)
        logits = self.logits(call_model(model, arguments))
        assert logits is not None
        return PreparedInput(input=model_input, arguments=arguments, truth=logits.argmax(-1))

    def logits(self, output: Any) -> Tensor | None:
        """Return the logits (N, Tq, C) of the whole input (Tq = 1) or of each token."""
        logits: Tensor = output.logits
        return logits if logits.dim() == 3 else logits.unsqueeze(1)

    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        """Return the class of an input."""
        arguments = self.inputs.tensors(model, model_input.value)
        logits = self.logits(call_model(model, arguments))
        assert logits is not None
        probabilities, classes = logits[0].float().softmax(-1).max(-1)
        names = getattr(model.config, "id2label", None) or {}
        outputs = [str(names.get(number, number)) for number in classes.tolist()]
        prepared = PreparedInput(input=model_input, arguments=arguments)
        return Answer(prepared, " ".join(outputs), None, outputs, probabilities.tolist())


@dataclass(frozen=True)
class EncoderAdapter(Adapter):
    """A model that returns only states."""

    inputs: TextEncoder | ImageProcessor
    summary = "an encoder without an output layer"
    measure = "change of the states"
    unanswered = (
        "The model has no output layer and therefore no loss. The importance of a head is the relative change "
        "of the final states when the head is disabled.",
        "Gradients and ablation of inputs are not available, because the model has no output layer.",
    )

    def prepare(self, model: nn.Module, model_input: ModelInput) -> PreparedInput:
        """Return an input with the model's current output states."""
        arguments = self.inputs.tensors(model, model_input.value)
        before = find_states(call_model(model, arguments))
        return PreparedInput(input=model_input, arguments=arguments, before=before)

    def logits(self, output: Any) -> Tensor | None:
        """Return None."""
        return None

    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        """Return the arguments without an answer."""
        arguments = self.inputs.tensors(model, model_input.value)
        return Answer(PreparedInput(input=model_input, arguments=arguments))


@dataclass(frozen=True)
class CustomModel(Adapter):
    """A custom module, with a function that converts inputs to arguments and an optional loss function."""

    make_arguments: MakeArguments
    own_loss: Loss | None = None
    name_steps: NameSteps | None = None
    summary = "a custom model"

    @property
    def accepts(self) -> str:  # type: ignore[override]
        """Description of the inputs that a user may type."""
        return "a text that the function passed to look() accepts"

    @property
    def measure(self) -> str:  # type: ignore[override]
        """Name of the loss."""
        return "change of the states" if self.own_loss is None else "loss"

    @property
    def unanswered(self) -> Sequence[str]:  # type: ignore[override]
        """Sentences that name the analyses that are not available."""
        inputs = "Gradients and ablation of inputs are not available: the embedding module is unknown."
        states = (
            "No loss is known. The importance of a head is the relative change of the final states when the "
            "head is disabled."
        )
        return (inputs,) if self.own_loss is not None else (states, inputs)

    def prepare(self, model: nn.Module, model_input: ModelInput) -> PreparedInput:
        """Return an input, with the model's current output states if there is no loss function."""
        arguments = self._arguments(model_input)
        before = find_states(call_model(model, arguments)) if self.own_loss is None else None
        return PreparedInput(input=model_input, arguments=arguments, before=before)

    def _arguments(self, model_input: ModelInput) -> Any:
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

    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        """Return the arguments without an answer."""
        return Answer(PreparedInput(input=model_input, arguments=self._arguments(model_input)))

    def logits(self, output: Any) -> Tensor | None:
        """Return None."""
        return None

    def loss(self, model: nn.Module, prepared: PreparedInput) -> tuple[float, int]:
        """Return the user's loss, or the relative change of the states."""
        if self.own_loss is None:
            return super().loss(model, prepared)
        return float(self.own_loss(model, prepared.input.value)), 1

    def embedding(self, model: nn.Module) -> nn.Module | None:
        """Return None."""
        return None


def prepare_once(model: nn.Module, adapter: Adapter, inputs: Sequence[ModelInput], value: Any) -> PreparedInput:
    """Return an input with its answer; `inputs`: known inputs, which a label may name."""
    if isinstance(value, PreparedInput):
        return value
    return adapter.prepare(model, find_input(inputs, value))


def make_trial(
    model: nn.Module, adapter: Adapter, layers: Sequence[Layer], prepared: PreparedInput
) -> ProbeInput | None:
    """Return an input that accepts a changed embedding; None if the model has no output per step."""
    embedding = adapter.embedding(model)
    arguments = adapter.plain_arguments(model, prepared)
    if adapter.reads is None or embedding is None or not isinstance(arguments, dict):
        return None

    def run(count: int) -> Tensor:
        return run_copies({name: tensor.expand(count, *tensor.shape[1:]) for name, tensor in arguments.items()})

    def run_tokens(tokens: Tensor) -> Tensor:
        copies = {name: tensor.expand(len(tokens), *tensor.shape[1:]) for name, tensor in arguments.items()}
        return run_copies({**copies, TOKENS: tokens})

    def run_copies(copies: dict[str, Tensor]) -> Tensor:
        logits = adapter.logits(call_model(model, copies))
        assert logits is not None
        return logits

    tokens, size = arguments.get(TOKENS), getattr(embedding, "num_embeddings", None)
    return ProbeInput(
        run=run,
        embedding=embedding,
        layers=[layer.name for layer in layers if layer.kind == adapter.reads],
        relevant=None,
        causal=adapter.reads == "decoder",
        tokens=None if tokens is None else tokens[0],
        run_tokens=None if tokens is None else run_tokens,
        alphabet=_up_to(adapter.alphabet, size),
    )


def _up_to(tokens: Sequence[int], size: int | None) -> Sequence[int]:
    """Return the tokens, in ascending order, that have an embedding; a tokenizer may have more tokens."""
    if size is None or not tokens or tokens[-1] < size:
        return tokens
    return [token for token in tokens if token < size]

"""Adapters define how an external model receives inputs, what it predicts, and how its loss is computed.

The class name of a transformers model decides which adapter it gets:

    ForCausalLM, and others that generate    CausalLMAdapter     each next token
    ForConditionalGeneration, Seq2SeqLM      Seq2SeqAdapter      a target, given a source
    ForMaskedLM                              MaskedLMAdapter     masked tokens
    For...Classification                     ClassifierAdapter   a class
    any other                                EncoderAdapter      nothing: only states are returned
    a user's own module                      CustomModel         nothing, or the user's loss

A model receives one input at a time. If the expected answer
is unknown, the loss is computed against the answer of the unmodified model. `measure` then names this loss.

For explanations and patching, the embedding of an input can be replaced. It is the output of the first module that
reads the input, and on which the outputs depend by gradient: an embedding of tokens, a linear layer of one-hot
vectors, or a convolution of pixels. Any other floating-point input is its own embedding.
"""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.activations.modules import find_base_model, is_transformers_model
from regard.activations.weights import recorded_path
from regard.errors import InputError, shorten, unknown_choice
from regard.external.model_input import TARGET_SEPARATOR, ImageProcessor, ModelInput, TextEncoder, find_input
from regard.libraries import library_errors
from regard.viz.maps import CROSS
from regard.viz.subject import Layer, Patchable, ProbeInput

TOKENS = "input_ids"
"""Name of the argument that holds the tokens of an input."""
IGNORED = -100
"""Class index that marks outputs without a known expected answer."""
CHANGE = "change of the states"
"""Name of the loss of a model that predicts no classes."""
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
    """Turn exceptions of a transformers model into a one-line error; those of a custom module keep their traceback."""
    if not is_transformers_model(find_base_model(model)):
        return nullcontext()
    where = getattr(model, "name_or_path", "")
    problem = f"{type(model).__name__}{f' of {where!r}' if where else ''} failed on this input"
    return library_errors(
        "transformers", problem, "give another input, or check that the tokenizer belongs to the model"
    )


class Adapter:
    """The inputs and outputs of one kind of model."""

    accepts: ClassVar[str] = "a text"
    """Description of the inputs that a user may type."""
    summary: ClassVar[str]
    measure: ClassVar[str] = "loss"
    unanswered: ClassVar[Sequence[str]] = ()
    """Sentences that name the analyses that are not available."""
    causal: ClassVar[bool] = False
    """Whether each output depends on the inputs up to its own position only."""
    generates: ClassVar[bool] = False  # Whether the model writes a text, token by token
    no_truth: ClassVar[str] = "has no expected answer: give another input"
    """Why an input may have no loss."""

    @property
    def encoder(self) -> Any:
        """Converts inputs to tensors: a `TextEncoder` or an `ImageProcessor`; None for a custom model."""
        return getattr(self, "texts", None) or getattr(self, "inputs", None)

    @property
    def alphabet(self) -> Sequence[int]:
        """Tokens that may replace a token of an input; empty if they are not known."""
        return self.encoder.alphabet if isinstance(self.encoder, TextEncoder) else ()

    def uses_own_answers(self, inputs: Sequence[ModelInput]) -> bool:
        return False

    def prepare(self, model: nn.Module, model_input: ModelInput) -> PreparedInput:
        """Return an input with its expected answer, or with the model's own answer; raises `InputError`."""
        arguments = self.arguments(model, model_input)
        states = find_states(call_model(model, arguments)) if self.measure == CHANGE else None
        truth = self.truth(model, arguments)
        return PreparedInput(input=model_input, arguments=arguments, truth=truth, before=states)

    def truth(self, model: nn.Module, arguments: Any) -> Tensor | None:
        """Return the class of each output (N, Tq), or `IGNORED`; None for a model without classes."""
        del model, arguments
        return None

    def arguments(self, model: nn.Module, model_input: ModelInput) -> Any:
        """Return the arguments of the model for an input; raises `InputError` for an input of another kind."""
        if model_input.target is not None:
            raise InputError(f"{shorten(model_input.text)} has a target, but this model accepts none: leave it out")
        return self.encoder.tensors(model, model_input.value)

    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        """Return the model's answer, here none; `generate`: largest number of generated tokens."""
        return Answer(PreparedInput(input=model_input, arguments=self.arguments(model, model_input)))

    def names(self, model: nn.Module, classes: Sequence[int]) -> list[str]:
        """Return the names of output classes: tokens of a language model, otherwise numbers."""
        texts = getattr(self, "texts", None)
        return [str(number) if texts is None else texts.labels([number], begins=False)[0] for number in classes]

    def answer_steps(self, tokens: Tensor) -> Sequence[int] | None:
        """Return the output steps that answer an input with tokens (T,); None: all."""
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

    def read_logits(self, model: nn.Module, arguments: Any) -> Tensor:
        """Return the logits (N, Tq, C) of a model that predicts classes."""
        logits = self.logits(call_model(model, arguments))
        assert logits is not None
        return logits

    def outputs(self, model: nn.Module, prepared: PreparedInput, count: int, loss: bool = False) -> Tensor:
        """Return the logits (N, Tq, C) of an input in `count` copies, or with `loss` the user's loss (N, 1, 1).

        Raises `InputError` for a model without logits.
        """
        logits, kind = self.logits(call_model(model, prepared.arguments)), type(model).__name__
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
        """Return the sum of the loss over all outputs, in nats or in the unit of `measure`, and their number."""
        output = call_model(model, prepared.arguments)
        logits = self.logits(output)
        if prepared.truth is None or logits is None:
            assert prepared.before is not None
            states, before = find_states(output).float(), prepared.before.float()
            return float((states - before).square().sum() / before.square().sum()), 1
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


@dataclass(frozen=True)
class ClassifierAdapter(Adapter):
    """A model that assigns a class to its input, or to each token."""

    inputs: TextEncoder | ImageProcessor
    summary = "a classifier"

    def uses_own_answers(self, inputs: Sequence[ModelInput]) -> bool:
        """Return True: users give inputs without their classes."""
        return True

    def truth(self, model: nn.Module, arguments: Any) -> Tensor:
        return self.read_logits(model, arguments).argmax(-1)

    def names(self, model: nn.Module, classes: Sequence[int]) -> list[str]:
        names = getattr(model.config, "id2label", None) or {}
        return [str(names.get(number, number)) for number in classes]

    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        arguments = self.arguments(model, model_input)
        probabilities, classes = self.read_logits(model, arguments)[0].float().softmax(-1).max(-1)
        outputs = self.names(model, classes.tolist())
        prepared = PreparedInput(input=model_input, arguments=arguments)
        return Answer(prepared, " ".join(outputs), None, outputs, probabilities.tolist())


@dataclass(frozen=True)
class EncoderAdapter(Adapter):
    """A model without a known task, such as one that returns only states."""

    inputs: TextEncoder | ImageProcessor
    summary = "an encoder without an output layer"
    measure = CHANGE
    unanswered = (
        "The model has no output layer and therefore no loss. The importance of a head is the relative change "
        "of the final states when the head is disabled.",
    )

    def outputs(self, model: nn.Module, prepared: PreparedInput, count: int, loss: bool = False) -> Tensor:
        logits, arguments = super().outputs(model, prepared, count, loss), prepared.arguments
        tokens = arguments.get(TOKENS) if isinstance(arguments, dict) else None
        by_token = tokens is not None and logits.shape[1:] == (1, tokens.shape[1])
        return logits.transpose(1, 2) if by_token else logits


@dataclass(frozen=True)
class CustomModel(Adapter):
    """A custom module, with a function that converts inputs to arguments and an optional loss function."""

    make_arguments: MakeArguments
    own_loss: Loss | None = None
    name_steps: NameSteps | None = None
    accepts = "a text that the function passed to look() accepts"
    summary = "a custom model"

    @property
    def measure(self) -> str:  # type: ignore[override]
        return CHANGE if self.own_loss is None else "loss"

    @property
    def unanswered(self) -> Sequence[str]:  # type: ignore[override]
        """Sentences that name the analyses that are not available."""
        states = (
            "No loss is known. The importance of a head is the relative change of the final states when the "
            "head is disabled."
        )
        return () if self.own_loss is not None else (states,)

    def arguments(self, model: nn.Module, model_input: ModelInput) -> Any:
        value, target = model_input
        arguments = self.make_arguments(value if target is None else (value, target))
        if isinstance(arguments, Tensor):
            return (arguments,)
        if isinstance(arguments, dict | tuple):
            return arguments
        name = type(arguments).__name__
        raise InputError(f"the function passed to look() returned {name}: it must return a tensor, a tuple or a dict")

    def logits(self, output: Any) -> Tensor | None:
        """Return the named logits (N, Tq, C) of an output, or its first tensor as logits."""
        logits = None if isinstance(output, Tensor) else super().logits(output)
        return with_steps(find_states(output)) if logits is None else logits

    def outputs(self, model: nn.Module, prepared: PreparedInput, count: int, loss: bool = False) -> Tensor:
        if not loss or self.own_loss is None:
            return super().outputs(model, prepared, count)
        output, losses = call_model(model, prepared.arguments), []
        for row in range(count):
            answered = Answered(model, select_row(output, row, count))
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


class Answered:
    """A model that was called before, and returns its output again."""

    def __init__(self, model: nn.Module, output: Any) -> None:
        self._model, self._output, self.calls = model, output, 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        return self._output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def select_row(output: Any, row: int, count: int) -> Any:
    """Return the output for one of some copies of an input, as a batch of 1."""
    if isinstance(output, Tensor):
        if not output.dim() or len(output) != count:
            raise InputError(
                f"the model returned {tuple(output.shape)} for {count} copies of an input, so the loss of each "
                "is not known: let the model return outputs with the batch first"
            )
        return output[row : row + 1]
    if isinstance(output, dict):
        return type(output)({name: select_row(part, row, count) for name, part in output.items()})
    if isinstance(output, tuple | list):
        parts = [select_row(part, row, count) for part in output]
        return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)
    return output


def prepare_once(model: nn.Module, adapter: Adapter, inputs: Sequence[ModelInput], value: Any) -> PreparedInput:
    """Return an input with its answer; `inputs`: known inputs, which a label may name."""
    if isinstance(value, PreparedInput):
        return value
    return adapter.prepare(model, find_input(inputs, value))


MASKING_PERIOD = 7
"""Every seventh token is masked at once, about as in BERT's training (Devlin et al. 2019, section 3.1)."""


@dataclass(frozen=True)
class CausalLMAdapter(Adapter):
    """A decoder that continues a text token by token."""

    texts: TextEncoder
    generates = True
    summary = "a causal language model"
    measure = "loss of the next tokens"
    causal = True
    no_truth = "has one token, so there is no next token to predict: give a longer text"

    def truth(self, model: nn.Module, arguments: Any) -> Tensor:
        return F.pad(arguments["input_ids"][:, 1:], (0, 1), value=IGNORED)

    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        arguments = self.arguments(model, model_input)
        start = arguments["input_ids"].shape[1]
        sequence = generate_greedily(model, arguments, generate)
        # Omit the last token: its row would predict a token that is not generated.
        arguments = {"input_ids": sequence[:, :-1], "attention_mask": torch.ones_like(sequence[:, :-1])}
        new = sequence[0, start:].tolist()
        probabilities = self.read_logits(model, arguments)[0, -len(new) :].float().softmax(-1)
        prepared = PreparedInput(input=model_input, arguments=arguments)
        return token_answer(self.texts, prepared, new, new, probabilities[range(len(new)), new])


def generate_greedily(model: Any, arguments: dict[str, Any], count: int) -> Tensor:
    """Return the sequence (1, T) that a model generates greedily, with 1 to `count` new tokens."""
    config = model.generation_config
    pad = config.pad_token_id if config.pad_token_id is not None else config.eos_token_id
    if isinstance(pad, list):
        pad = pad[0]
    # Remove `max_length`: transformers warns if both limits are set.
    options = {"max_new_tokens": max(count, 1), "max_length": None}
    options |= {} if pad is None else {"pad_token_id": pad}
    most, steps = getattr(model.config, "max_position_embeddings", None), arguments["input_ids"].shape[1]
    if most is not None and not model.config.is_encoder_decoder and steps + count > most:
        raise InputError(f"generate={count} after {steps} tokens exceeds the model's {most} positions: choose less")
    with one_line_errors(model):
        sequence: Tensor = model.generate(**arguments, do_sample=False, num_beams=1, **options)
        return sequence


def token_answer(
    texts: TextEncoder, prepared: PreparedInput, text: list[int], outputs: list[int], odds: Tensor, begins: bool = False
) -> Answer:
    """Return an answer with the tokens of its text, and the tokens of its outputs with their probabilities."""
    return Answer(prepared, texts.decode(text), None, texts.labels(outputs, begins=begins), odds.tolist())


@dataclass(frozen=True)
class Seq2SeqAdapter(Adapter):
    """An encoder-decoder that maps a source to a target."""

    texts: TextEncoder
    accepts = f"a source, or a source and its target with {TARGET_SEPARATOR.strip()!r} between them"
    summary = "an encoder-decoder"
    generates = True
    measure = "loss of the targets"

    def uses_own_answers(self, inputs: Sequence[ModelInput]) -> bool:
        return any(model_input.target is None for model_input in inputs)

    def prepare(self, model: nn.Module, model_input: ModelInput) -> PreparedInput:
        if model_input.target is None:
            return self.answer(model, model_input, 0).prepared
        target = self.texts.target(model, model_input.target)
        arguments = self.texts.tensors(model, model_input.value)
        arguments |= {"decoder_input_ids": _decoder_inputs(model, target)}
        return PreparedInput(input=model_input, arguments=arguments, truth=target)

    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        if model_input.target is not None:
            prepared = self.prepare(model, model_input)
        else:
            arguments = self.texts.tensors(model, model_input.value)
            sequence = generate_greedily(model, arguments, generate or self.texts.max_new_tokens(model))
            arguments |= {"decoder_input_ids": sequence[:, :-1]}
            prepared = PreparedInput(input=model_input, arguments=arguments, truth=sequence[:, 1:])
        assert prepared.truth is not None
        probabilities = self.read_logits(model, prepared.arguments)[0].float().softmax(-1)
        target = prepared.truth[0].tolist()
        predicted = target if model_input.target is None else probabilities.argmax(-1).tolist()
        shares = probabilities[range(len(target)), target]
        return token_answer(self.texts, prepared, predicted, target, shares, True)._replace(truth=model_input.target)


def _decoder_inputs(model: Any, target: Tensor) -> Tensor:
    """Return the inputs of a decoder for a target (1, T): its start token, and all tokens but the last."""
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        inputs: Tensor = model.prepare_decoder_input_ids_from_labels(labels=target)
        return inputs
    start = model.config.decoder_start_token_id
    if not isinstance(start, int):
        raise InputError(f"the config has decoder_start_token_id={start!r}: set the id of the first token")
    return F.pad(target[:, :-1], (1, 0), value=start)


@dataclass(frozen=True)
class MaskedLMAdapter(Adapter):
    """An encoder that predicts masked tokens."""

    texts: TextEncoder
    summary = "a masked language model"
    measure = "loss of the masked tokens"
    no_truth = "has only special and unknown tokens, of which none is masked for the loss: give a text of known words"

    @property
    def mask_id(self) -> int:
        number: int | None = getattr(self.texts.tokenizer, "mask_token_id", None)
        if number is None:
            raise InputError("the tokenizer has no mask token: pass a loss function to look()")
        return number

    def truth(self, model: nn.Module, arguments: Any) -> Tensor:
        tokens: Tensor = arguments["input_ids"]
        return tokens.masked_fill(self.texts.is_special(tokens), IGNORED)

    def loss(self, model: nn.Module, prepared: PreparedInput) -> tuple[float, int]:
        """Return the sum of the loss over copies with different masked tokens, and the number of masked tokens.

        Every token is masked in exactly one copy.
        """
        assert prepared.truth is not None and isinstance(prepared.arguments, dict)
        can_mask = prepared.truth != IGNORED
        part = (can_mask.cumsum(1) - 1) % MASKING_PERIOD
        masked = torch.cat([can_mask & (part == number) for number in range(MASKING_PERIOD)])
        masked = masked[masked.any(1)] if can_mask.any() else can_mask
        copies = {name: tensor.expand(len(masked), *tensor.shape[1:]) for name, tensor in prepared.arguments.items()}
        copies["input_ids"] = copies["input_ids"].masked_fill(masked, self.mask_id)
        truth = prepared.truth.masked_fill(~masked, IGNORED)
        return super().loss(model, dataclasses.replace(prepared, arguments=copies, truth=truth))

    def answer_steps(self, tokens: Tensor) -> Sequence[int] | None:
        """Return the positions of the masks; None without masks."""
        mask_id = getattr(self.texts.tokenizer, "mask_token_id", None)
        return None if mask_id is None else (tokens == mask_id).nonzero()[:, 0].tolist() or None

    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        arguments = self.arguments(model, model_input)
        tokens = arguments["input_ids"][0]
        positions = self.answer_steps(tokens)
        prepared = PreparedInput(input=model_input, arguments=arguments)
        if positions is None:
            return Answer(prepared)
        logits = self.read_logits(model, arguments)
        probabilities, predicted = logits[0, -len(tokens) :][positions].float().softmax(-1).max(-1)
        completed = tokens.clone()
        completed[positions] = predicted
        return token_answer(self.texts, prepared, completed.tolist(), predicted.tolist(), probabilities)


Embeddings = dict[tuple[Any, ...], nn.Module]
"""By names of the arguments: the embedding."""


def patchable_model(model: nn.Module, adapter: Adapter, inputs: Sequence[ModelInput]) -> Patchable:
    """Return the forward passes of a model; `inputs`: known inputs, which a label may name."""

    def prepare(value: Any, clean: PreparedInput | None = None) -> PreparedInput:
        model_input = find_input(inputs, value)
        if clean is None or not isinstance(adapter, Seq2SeqAdapter) or model_input.target is not None:
            return prepare_once(model, adapter, inputs, value)
        arguments = dict(clean.arguments) | adapter.texts.tensors(model, model_input.value)
        return PreparedInput(input=model_input, arguments=arguments, truth=clean.truth)

    def outputs(prepared: PreparedInput) -> Tensor:
        output = call_model(model, prepared.arguments)
        logits = None if isinstance(adapter, CustomModel) else adapter.logits(output)
        return (find_states(output) if logits is None else logits)[0].float()

    def logits(prepared: PreparedInput, loss: bool) -> Tensor:
        return adapter.outputs(model, prepared, 1, loss)[0].float()

    def answer_class(text: str, classes: int, argument: str = "answer") -> int:
        texts = getattr(adapter, "texts", None)
        if texts is None:
            names = adapter.names(model, range(classes))
            if text not in names:
                raise unknown_choice(argument, text, names)
            return names.index(text)
        ids = texts.target_ids(text, add_special_tokens=False)
        if not ids or not 0 <= ids[0] < classes:
            raise InputError(f"{argument} {text!r} has no token: give another text")
        if ids[0] == getattr(texts.tokenizer, "unk_token_id", None):
            raise InputError(f"{argument} {text!r} begins with an unknown token: give a text of known words")
        if len(ids) > 1:
            first = texts.labels([ids[0]], begins=False)[0]
            warnings.warn(f"{argument} {text!r} has {len(ids)} tokens: the first, {first!r}, is used", stacklevel=6)
        return int(ids[0])

    return Patchable(prepare, outputs, answer_class, partial(recorded_path, model), logits)


def make_trial(
    model: nn.Module, adapter: Adapter, layers: Sequence[Layer], prepared: PreparedInput, known: Embeddings
) -> ProbeInput:
    """Return an input that accepts a changed embedding; `known`: embeddings that were found before.

    Raises `InputError` for a model without logits, or without an embedding of its inputs.
    """
    passes = _Passes(model, adapter, prepared)
    embedding = known.get(names := tuple(passes.arguments))
    if embedding is None:
        embedding = passes.find_embedding([module for module in model.modules() if not list(module.children())])
        if passes.input.is_floating_point() and not isinstance(embedding, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            passes.gate = _Gate()
            embedding = passes.find_embedding([passes.gate])
        if embedding is None:
            raise InputError(
                f"the outputs of {type(model).__name__} have no gradient to an embedding of the input: "
                "embed tokens with a module such as nn.Embedding, and run without torch.no_grad"
            )
        known[names] = embedding
    passes.gate = embedding if isinstance(embedding, _Gate) else None
    is_tokens = passes.input.dim() == 2 and not passes.input.is_floating_point()
    # A tokenizer may have more tokens than the model has embeddings.
    size, alphabet = getattr(embedding, "num_embeddings", None), adapter.alphabet
    if size is not None and alphabet and alphabet[-1] >= size:
        alphabet = [token for token in alphabet if token < size]

    def probe(loss: bool) -> ProbeInput:
        return ProbeInput(
            run=partial(passes.run, loss=loss),
            embedding=embedding,
            layers=[layer.name for layer in layers if layer.kind == CROSS] or [layer.name for layer in layers],
            relevant=None,
            causal=adapter.causal,
            tokens=passes.input[0] if is_tokens else None,
            run_tokens=(lambda rows: passes.run(len(rows), rows, loss=loss)) if is_tokens else None,
            alphabet=alphabet,
            steps=adapter.answer_steps(passes.input[0]) if is_tokens and not loss else None,
            keys_before=not is_tokens,
        )

    has_loss = isinstance(adapter, CustomModel) and adapter.own_loss is not None
    return probe(loss=False)._replace(loss=probe(loss=True) if has_loss else None)


class _Gate(nn.Identity):
    """Module through which a floating-point input passes, so that a hook can replace it."""


class _Passes:
    """Runs of a model on copies of one input."""

    gate: nn.Module | None = None

    def __init__(self, model: nn.Module, adapter: Adapter, prepared: PreparedInput) -> None:
        """Find the argument that is the input; raises `InputError` unless it has one row."""
        self.model, self.adapter, self.prepared = model, adapter, prepared
        arguments = prepared.arguments
        self.arguments = dict(arguments if isinstance(arguments, dict) else enumerate(arguments))
        inputs = {
            name: value
            for name, value in self.arguments.items()
            if isinstance(value, Tensor) and value.dim() > 1 and value.dtype != torch.bool and "mask" not in str(name)
        }
        main = getattr(model, "main_input_name", None)
        self.name: Any = main if main in inputs else next(iter(inputs), None)
        if self.name is None or len(inputs[self.name]) != 1:
            shapes = ", ".join(str(tuple(value.shape)) for value in inputs.values()) or "no tensor"
            raise InputError(
                f"{type(model).__name__} gets {shapes}: give one input in a batch of 1, such as tokens (1, T) or "
                "states (1, T, D)"
            )
        self.input = inputs[self.name]

    def run(self, count: int, rows: Tensor | None = None, *, loss: bool = False) -> Tensor:
        """Return the outputs (N, T, C) of N copies; `rows`: what the copies read instead of the input."""
        copies = {
            name: value.expand(count, *value.shape[1:])
            if isinstance(value, Tensor) and value.dim() and len(value) == 1
            else value
            for name, value in self.arguments.items()
        }
        if rows is not None:
            copies[self.name] = rows
        if self.gate is not None:
            copies[self.name] = self.gate(copies[self.name])
        arguments: Any = copies if isinstance(self.prepared.arguments, dict) else tuple(copies.values())
        return self.adapter.outputs(self.model, dataclasses.replace(self.prepared, arguments=arguments), count, loss)

    @torch.enable_grad()
    def find_embedding(self, modules: Sequence[nn.Module]) -> nn.Module | None:
        """Return the first of some modules that is an embedding of the input; None if no output depends on one.

        The model runs on the input and on the same input with its steps shifted. What differs reads the input: an
        embedding of positions does not.
        """
        other = self.input.roll(1, 1 if self.input.dim() < 4 else -1)
        if torch.equal(other, self.input):
            other = torch.where(self.input > 0, self.input - 1, self.input + 1)
        leaves: list[tuple[nn.Module, Tensor]] = []

        def add_leaf(module: nn.Module, args: Any, options: Any, output: Any) -> Tensor | None:
            reads = [part for part in (*args, *options.values()) if isinstance(part, Tensor)]
            if not isinstance(output, Tensor) or not output.is_floating_point() or len(output) != 2:
                return None
            has_steps = output.dim() > 2 or isinstance(module, _Gate)
            if not has_steps or any(part.requires_grad for part in reads) or torch.equal(*output):
                return None
            leaves.append((module, output.detach().clone().requires_grad_()))
            return leaves[-1][1].clone()  # a model may add to it in place

        with ExitStack() as stack:
            for module in modules:
                stack.callback(module.register_forward_hook(add_leaf, with_kwargs=True).remove)
            total = self.run(2, torch.cat([self.input, other])).sum()
        if not leaves or not total.requires_grad:
            return None
        gradients = torch.autograd.grad(total, [leaf for _, leaf in leaves], allow_unused=True)
        found = zip(leaves, gradients, strict=True)
        return next((module for (module, _), gradient in found if gradient is not None), None)

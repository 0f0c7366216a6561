"""Adapters of language models: causal, encoder-decoder and masked."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InputError
from regard.external.adapters import IGNORED, Adapter, Answer, PreparedInput, call_model, one_line_errors
from regard.external.model_input import TARGET_SEPARATOR, ModelInput, TextEncoder

MASKING_PERIOD = 7
"""Every seventh token is masked at once, about the fraction in BERT's training (Devlin et al. 2019, section
3.1)."""


@dataclass(frozen=True)
class _TextAdapter(Adapter):
    """A model that reads one text."""

    texts: TextEncoder

    def arguments(self, model: nn.Module, model_input: ModelInput) -> dict[str, Any]:
        """Return the tokens of a text; raises `InputError` for an input with a target."""
        return self.texts.tensors(model, _text_without_target(model_input))


@dataclass(frozen=True)
class CausalLMAdapter(_TextAdapter):
    """A decoder that continues a text token by token."""

    summary = "a causal language model"
    measure = "loss of the next tokens"
    causal = True
    no_truth = "has one token, so there is no next token to predict: give a longer text"

    def prepare(self, model: nn.Module, model_input: ModelInput) -> PreparedInput:
        arguments = self.arguments(model, model_input)
        tokens = arguments["input_ids"]
        truth = F.pad(tokens[:, 1:], (0, 1), value=IGNORED)
        return PreparedInput(input=model_input, arguments=arguments, truth=truth)

    def answer(self, model: nn.Module, model_input: ModelInput, generate: int) -> Answer:
        arguments = self.arguments(model, model_input)
        start = arguments["input_ids"].shape[1]
        sequence = generate_greedily(model, arguments, generate)
        # Omit the last token: its row would predict a token that is not generated.
        arguments = {"input_ids": sequence[:, :-1], "attention_mask": torch.ones_like(sequence[:, :-1])}
        logits = self.logits(call_model(model, arguments))
        assert logits is not None
        new = sequence[0, start:].tolist()
        probabilities = logits[0, -len(new) :].float().softmax(-1)
        return Answer(
            prepared=PreparedInput(input=model_input, arguments=arguments),
            prediction=self.texts.decode(new),
            outputs=self.texts.labels(new),
            probabilities=probabilities[range(len(new)), new].tolist(),
        )


def check_positions(model: Any, steps: int, count: int) -> None:
    """Raise `InputError` if a decoder-only model has too few positions for `count` tokens after `steps`
    tokens."""
    most = getattr(model.config, "max_position_embeddings", None)
    if most is not None and not model.config.is_encoder_decoder and steps + count > most:
        raise InputError(
            f"generate={count} after {steps} tokens exceeds the model's {most} positions: choose a smaller number"
        )


def generate_greedily(model: Any, arguments: dict[str, Any], count: int) -> Tensor:
    """Return the sequence (1, T) that a model generates greedily, with 1 to `count` new tokens."""
    config = model.generation_config
    pad = config.pad_token_id if config.pad_token_id is not None else config.eos_token_id
    if isinstance(pad, list):
        pad = pad[0]
    # Remove `max_length`: transformers warns if both limits are set.
    options = {"max_new_tokens": max(count, 1), "max_length": None}
    options |= {} if pad is None else {"pad_token_id": pad}
    check_positions(model, arguments["input_ids"].shape[1], count)
    with one_line_errors(model):
        sequence: Tensor = model.generate(**arguments, do_sample=False, num_beams=1, **options)
        return sequence


def _text_without_target(model_input: ModelInput) -> str:
    if model_input.target is not None:
        raise InputError(
            f"input {model_input.text!r} has a target, but this model accepts none: leave out the target"
        )
    return _text(model_input)


def _text(model_input: ModelInput) -> str:
    if not isinstance(model_input.value, str):
        raise InputError(f"input {model_input.text} is not a text: give a text")
    return model_input.value


@dataclass(frozen=True)
class Seq2SeqAdapter(Adapter):
    """An encoder-decoder that maps a source to a target."""

    texts: TextEncoder
    accepts = f"a source, or a source and its target with {TARGET_SEPARATOR.strip()!r} between them"
    summary = "an encoder-decoder"
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
        source = _text(model_input)
        if model_input.target is not None:
            prepared = self.prepare(model, model_input)
        else:
            arguments = self.texts.tensors(model, source)
            sequence = generate_greedily(model, arguments, generate or self.texts.max_new_tokens(model))
            arguments |= {"decoder_input_ids": sequence[:, :-1]}
            prepared = PreparedInput(input=model_input, arguments=arguments, truth=sequence[:, 1:])
        logits = self.logits(call_model(model, prepared.arguments))
        assert logits is not None and prepared.truth is not None
        probabilities = logits[0].float().softmax(-1)
        target = prepared.truth[0].tolist()
        predicted = target if model_input.target is None else probabilities.argmax(-1).tolist()
        return Answer(
            prepared=prepared,
            prediction=self.texts.decode(predicted),
            truth=model_input.target,
            outputs=self.texts.labels(target),
            probabilities=probabilities[range(len(target)), target].tolist(),
        )


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
class MaskedLMAdapter(_TextAdapter):
    """An encoder that predicts masked tokens."""

    summary = "a masked language model"
    measure = "loss of the masked tokens"
    no_truth = (
        "has only special and unknown tokens, of which none is masked for the loss: give a text of known words"
    )

    @property
    def mask_id(self) -> int:
        number: int | None = getattr(self.texts.tokenizer, "mask_token_id", None)
        if number is None:
            raise InputError("the tokenizer has no mask token: pass a loss function to look()")
        return number

    def prepare(self, model: nn.Module, model_input: ModelInput) -> PreparedInput:
        arguments = self.arguments(model, model_input)
        tokens = arguments["input_ids"]
        truth = tokens.masked_fill(self.texts.is_special(tokens), IGNORED)
        return PreparedInput(input=model_input, arguments=arguments, truth=truth)

    def loss(self, model: nn.Module, prepared: PreparedInput) -> tuple[float, int]:
        """Return the sum of the loss over copies with different masked tokens, and the number of masked tokens.

        Every token is masked in exactly one copy.
        """
        assert prepared.truth is not None and isinstance(prepared.arguments, dict)
        can_mask = prepared.truth != IGNORED
        part = (can_mask.cumsum(1) - 1) % MASKING_PERIOD
        masked = torch.cat([can_mask & (part == number) for number in range(MASKING_PERIOD)])
        masked = masked[masked.any(1)] if can_mask.any() else can_mask
        copies = {
            name: tensor.expand(len(masked), *tensor.shape[1:]) for name, tensor in prepared.arguments.items()
        }
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
        logits = self.logits(call_model(model, arguments))
        assert logits is not None
        probabilities, predicted = logits[0, -len(tokens) :][positions].float().softmax(-1).max(-1)
        completed = tokens.clone()
        completed[positions] = predicted
        return Answer(
            prepared=prepared,
            prediction=self.texts.decode(completed.tolist()),
            outputs=self.texts.labels(predicted.tolist()),
            probabilities=probabilities.tolist(),
        )

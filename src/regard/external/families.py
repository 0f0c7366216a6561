"""Families: how a model that was not built here is fed, what it answers, and what its loss is.

Which one a model belongs to is seen from its class, as Hugging Face names them:

    ForCausalLM, or whatever generates       Writer        each next token
    ForConditionalGeneration, Seq2SeqLM      Pairs         a target, given a source
    ForMaskedLM                              Guesser       tokens that are masked
    For...Classification                     Classifier    a class
    any other                                States        nothing: what comes out are states

Each is fed one input at a time. Where no truth is known, the loss is that of what the untouched model answers
itself, and says so.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.errors import InputError
from regard.external.asked import BETWEEN, Asked
from regard.external.interface import is_peer
from regard.external.texts import Texts
from regard.external.wrappers import base_of
from regard.libraries import library_errors

IGNORED = -100
"""Where an output has no truth."""
SPARED = 7
"""Of so many tokens one is masked at once, about as in training (Devlin et al. 2019, section 3.1)."""


@dataclass(frozen=True, kw_only=True)
class Fed:
    """One input as a model gets it, and what it is to answer."""

    asked: Asked
    given: dict[str, Any] | tuple[Any, ...]
    """What the model is called with."""
    truth: Tensor | None = None
    """(N, Tq), the class of each output, `IGNORED` where there is none; None where there are no classes."""
    before: Tensor | None = None
    """What the untouched model returned, where there are no classes."""


class Answer(NamedTuple):
    """What a model answered."""

    fed: Fed
    """With which its attention is looked at."""
    prediction: str | None = None
    truth: str | None = None
    outputs: Sequence[str] = ()
    probabilities: Sequence[float] = ()


def called(model: nn.Module, given: dict[str, Any] | tuple[Any, ...]) -> Any:
    """Call a model with what it was given; raises `InputError` for what one of Hugging Face's refuses."""
    with answering(model):
        return model(**given) if isinstance(given, dict) else model(*given)


def answering(model: nn.Module) -> AbstractContextManager[None]:
    """Turn what a model of transformers raises into one line; what a user's own module raises is shown whole."""
    if not is_peer(base_of(model)):
        return nullcontext()
    where = getattr(model, "name_or_path", "")
    what = f"{type(model).__name__}{f' of {where!r}' if where else ''} cannot answer this input"
    return library_errors(
        "transformers", what, "give another input, or check that model and tokenizer belong together"
    )


class Family(ABC):
    """What is known of a model's inputs and outputs."""

    accepts: ClassVar[str] = "a text"
    """What may be typed, for people."""
    summary: ClassVar[str]
    measure: ClassVar[str] = "loss"
    unanswered: ClassVar[Sequence[str]] = ()
    """What nothing can be said of, a sentence each."""

    def own_answers(self, inputs: Sequence[Asked]) -> bool:
        """Say whether the model's own answers stand in for a truth that some of these inputs do not have."""
        del inputs
        return False

    @abstractmethod
    def feed(self, model: nn.Module, asked: Asked) -> Fed:
        """Return an input with its truth, or with what the model answers itself; raises `InputError`."""

    @abstractmethod
    def answer(self, model: nn.Module, asked: Asked, generate: int) -> Answer:
        """Return what a model answers; `generate`: tokens that it writes at most."""

    def plain(self, model: nn.Module, fed: Fed) -> Any:
        """Return what a model is called with to be looked at: one row, with nothing masked on purpose."""
        del model
        return fed.given

    def logits(self, output: Any) -> Tensor | None:
        """Return the logits (N, Tq, C) in what a model returned; None where there are none."""
        logits: Tensor | None = getattr(output, "logits", None)
        return logits

    def loss(self, model: nn.Module, fed: Fed) -> tuple[float, int]:
        """Return the sum of what the measure is over all outputs, and their number."""
        output = called(model, fed.given)
        logits = self.logits(output)
        if fed.truth is None or logits is None:
            assert fed.before is not None
            return _moved(states_of(output), fed.before), 1
        logits = logits[:, -fed.truth.shape[1] :]  # learned steps that stand before the input have no truth
        found = F.cross_entropy(
            logits.float().flatten(0, -2), fed.truth.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return float(found), int((fed.truth != IGNORED).sum())

    def embedding(self, model: nn.Module) -> nn.Module | None:
        """Return the module whose first output are the inputs' embeddings (N, Tk, D), if it is known."""
        find = getattr(model, "get_input_embeddings", None)
        found: nn.Module | None = None if find is None else find()
        return found

    reads: ClassVar[str | None] = None
    """The kind of the layers in which outputs attend to inputs; None where none does, step by step."""


def states_of(output: Any) -> Tensor:
    """Return the first tensor of numbers in what a model returned."""
    if isinstance(output, Tensor):
        return output
    values = output.values() if isinstance(output, dict) else output
    for each in values if isinstance(values, Sequence) or hasattr(values, "__iter__") else ():
        if isinstance(each, Tensor) and each.is_floating_point():
            return each
    raise InputError(f"{type(output).__name__} holds no tensor: give look() a loss")


def _moved(states: Tensor, before: Tensor) -> float:
    """Return how far states have moved: the square of the change, as a share of theirs."""
    return float((states.float() - before.float()).square().sum() / before.float().square().sum())


@dataclass(frozen=True)
class Writer(Family):
    """A decoder that goes on with a text, token by token."""

    texts: Texts
    summary = "a decoder that goes on with a text"
    measure = "loss of the next tokens"
    reads = "decoder"

    def feed(self, model: nn.Module, asked: Asked) -> Fed:
        """Return a text, whose truth is the next token at each step."""
        given = self.texts.tensors(model, _alone(asked))
        tokens = given["input_ids"]
        if tokens.shape[1] < 2:
            raise InputError(
                f"input {asked.text!r} is one token, after which nothing is known: give a longer one"
            )
        truth = F.pad(tokens[:, 1:], (0, 1), value=IGNORED)
        return Fed(asked=asked, given=given, truth=truth)

    def answer(self, model: nn.Module, asked: Asked, generate: int) -> Answer:
        """Write at most so many tokens after a text."""
        given = self.texts.tensors(model, _alone(asked))
        start = given["input_ids"].shape[1]
        sequence = written(model, given, generate)
        fed = {"input_ids": sequence[:, :-1], "attention_mask": torch.ones_like(sequence[:, :-1])}
        logits = self.logits(called(model, fed))
        assert logits is not None
        new = sequence[0, start:].tolist()
        likely = logits[0, -len(new) :].float().softmax(-1)
        return Answer(
            fed=Fed(asked=asked, given=fed),
            prediction=self.texts.decode(new),
            outputs=self.texts.labels(new),
            probabilities=likely[range(len(new)), new].tolist(),
        )


def check_positions(model: Any, steps: int, count: int) -> None:
    """Raise `InputError` where a model that only writes has not so many positions."""
    most = getattr(model.config, "max_position_embeddings", None)
    if most is not None and not model.config.is_encoder_decoder and steps + count > most:
        raise InputError(
            f"generate {count} after {steps} tokens is beyond the model's {most} positions: choose less"
        )


def written(model: Any, given: dict[str, Any], count: int) -> Tensor:
    """Return what a model writes, (1, T), greedily, at most `count` tokens and at least one."""
    config = model.generation_config
    pad = config.pad_token_id if config.pad_token_id is not None else config.eos_token_id
    if isinstance(pad, list):
        pad = pad[0]
    # Without a length in all, of which the library would warn beside that of what is new.
    options = {"max_new_tokens": max(count, 1), "max_length": None}
    options |= {} if pad is None else {"pad_token_id": pad}
    check_positions(model, given["input_ids"].shape[1], count)
    with answering(model):
        found: Tensor = model.generate(**given, do_sample=False, num_beams=1, **options)
        return found


def _alone(asked: Asked) -> str:
    if asked.target is not None:
        raise InputError(f"input {asked.text!r} has a target, which this model takes none of: leave it out")
    if not isinstance(asked.given, str):
        raise InputError(f"input {asked.text} is no text: give one")
    return asked.given


@dataclass(frozen=True)
class Pairs(Family):
    """An encoder-decoder, from a source to a target."""

    texts: Texts
    accepts = f"a source, or a source and its target with {BETWEEN.strip()!r} between them"
    summary = "an encoder-decoder"
    measure = "loss of the targets"
    reads = "cross"

    def own_answers(self, inputs: Sequence[Asked]) -> bool:
        """Say whether some have no target."""
        return any(each.target is None for each in inputs)

    def feed(self, model: nn.Module, asked: Asked) -> Fed:
        """Return a pair of source and target; without a target, that which the model writes."""
        if asked.target is None:
            return self.answer(model, asked, 0).fed
        target = self.texts.target(model, asked.target)
        given = self.texts.tensors(model, asked.given) | {"decoder_input_ids": _shifted(model, target)}
        return Fed(asked=asked, given=given, truth=target)

    def answer(self, model: nn.Module, asked: Asked, generate: int) -> Answer:
        """Write a target, or say how likely each token of the one that was given is."""
        if not isinstance(asked.given, str):
            raise InputError(f"input {asked.text} is no text: give one")
        if asked.target is not None:
            fed = self.feed(model, asked)
        else:
            given = self.texts.tensors(model, asked.given)
            sequence = written(model, given, generate or self.texts.most(model))
            given |= {"decoder_input_ids": sequence[:, :-1]}
            fed = Fed(asked=asked, given=given, truth=sequence[:, 1:])
        logits = self.logits(called(model, fed.given))
        assert logits is not None and fed.truth is not None
        likely = logits[0].float().softmax(-1)
        target = fed.truth[0].tolist()
        said = target if asked.target is None else likely.argmax(-1).tolist()
        return Answer(
            fed=fed,
            prediction=self.texts.decode(said),
            truth=asked.target,
            outputs=self.texts.labels(target),
            probabilities=likely[range(len(target)), target].tolist(),
        )

    def embedding(self, model: Any) -> nn.Module | None:
        """Return what embeds the source."""
        found: nn.Module | None = model.get_encoder().get_input_embeddings()
        return found


def _shifted(model: Any, target: Tensor) -> Tensor:
    """Return what a decoder is fed to write a target (1, T): its start, and all tokens but the last."""
    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        found: Tensor = model.prepare_decoder_input_ids_from_labels(labels=target)
        return found
    start = model.config.decoder_start_token_id
    if not isinstance(start, int):
        raise InputError(f"decoder_start_token_id of the config is {start!r}: give the number of the first token")
    return F.pad(target[:, :-1], (1, 0), value=start)


@dataclass(frozen=True)
class Guesser(Family):
    """An encoder that guesses tokens which are masked."""

    texts: Texts
    summary = "an encoder that guesses masked tokens"
    measure = "loss of the masked tokens"
    reads = "encoder"

    @property
    def mask(self) -> int:
        """The number of the token that masks."""
        found: int | None = getattr(self.texts.tokenizer, "mask_token_id", None)
        if found is None:
            raise InputError("the tokenizer has no mask token: give look() a loss")
        return found

    def feed(self, model: nn.Module, asked: Asked) -> Fed:
        """Return a text once for every part of its tokens that is masked at once: each is, once."""
        given = self.texts.tensors(model, _alone(asked))
        tokens = given["input_ids"]
        free = ~self.texts.special(tokens)
        order = (free.cumsum(1) - 1) % SPARED
        masked = torch.cat([free & (order == part) for part in range(SPARED)])
        masked = masked[masked.any(1)]
        if not len(masked):
            raise InputError(f"input {asked.text!r} has no token that can be masked: give a text")
        copies = {name: each.expand(len(masked), *each.shape[1:]) for name, each in given.items()}
        copies["input_ids"] = copies["input_ids"].masked_fill(masked, self.mask)
        return Fed(asked=asked, given=copies, truth=tokens.masked_fill(~masked, IGNORED))

    def plain(self, model: nn.Module, fed: Fed) -> Any:
        """Return the text with no more masks than it had."""
        return self.texts.tensors(model, _alone(fed.asked))

    def answer(self, model: nn.Module, asked: Asked, generate: int) -> Answer:
        """Guess what the masks in a text stand for."""
        given = self.texts.tensors(model, _alone(asked))
        mask = getattr(self.texts.tokenizer, "mask_token_id", None)
        places = (given["input_ids"][0] == (-1 if mask is None else mask)).nonzero()[:, 0]
        fed = Fed(asked=asked, given=given)
        if not len(places):
            return Answer(fed)
        logits = self.logits(called(model, given))
        assert logits is not None
        likely, found = logits[0, -given["input_ids"].shape[1] :][places].float().softmax(-1).max(-1)
        whole = given["input_ids"][0].clone()
        whole[places] = found
        return Answer(
            fed=fed,
            prediction=self.texts.decode(whole.tolist()),
            outputs=self.texts.labels(found.tolist()),
            probabilities=likely.tolist(),
        )

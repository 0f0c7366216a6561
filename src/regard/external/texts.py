"""Texts as a model of Hugging Face's gets them: tokens, with the names that its tokenizer has for them."""

import inspect
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import InputError, shorten
from regard.external.labels import Pieces
from regard.external.wrappers import device_of
from regard.libraries import library_errors

LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
"""What configs call the most tokens that they take."""
WRITTEN = 40
"""Tokens of an answer at most, where neither the model nor anybody else says."""


def parameters_of(model: nn.Module) -> set[str]:
    """Return the names of what a model can be called with."""
    return set(inspect.signature(model.forward).parameters)


class Texts:
    """A tokenizer: of transformers, or of tokenizers."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def pieces(self) -> Pieces:
        """Names of tokens."""
        return Pieces(self.tokenizer)

    def tensors(self, model: Any, text: Any) -> dict[str, Any]:
        """Return a text (1, T), as the model takes it; raises `InputError` for one that it cannot take."""
        if not isinstance(text, str):
            raise InputError(f"input {type(text).__name__} is no text: give one")
        with self._calling("cut this text"):
            if callable(self.tokenizer):
                found = dict(self.tokenizer(text, return_tensors="pt"))
            else:
                ids = torch.tensor([self.tokenizer.encode(text).ids])
                found = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        count = found["input_ids"].shape[-1]
        if not count:
            raise InputError("input is empty: type a text")
        self._check(model, count)
        self._check_tokens(model, found["input_ids"])
        device = device_of(model)
        taken = parameters_of(model)
        return {name: each.long().to(device) for name, each in found.items() if name in taken}

    def _check(self, model: Any, count: int) -> None:
        config = getattr(model, "config", None)
        most = next((getattr(config, each) for each in LENGTHS if getattr(config, each, None)), None)
        if most is not None and count > most:
            raise InputError(f"input has {count:,} tokens, at most {most:,} are taken")

    def _check_tokens(self, model: Any, tokens: Tensor) -> None:
        """Raise `InputError` for tokens that the model has no embedding of: the tokenizer is another model's."""
        known, most = getattr(getattr(model, "config", None), "vocab_size", None), int(tokens.max())
        if isinstance(known, int) and most >= known:
            token = self.labels([most])[0]
            raise InputError(
                f"token {most} ({token}) is beyond the model's vocabulary of {known:,}: give its tokenizer"
            )

    def target(self, model: nn.Module, text: str) -> Tensor:
        """Return the tokens (1, T) of a target, with its end."""
        with self._calling("cut this target"):
            if callable(self.tokenizer):
                ids = self.tokenizer(text_target=text)["input_ids"]
            else:
                ids = self.tokenizer.encode(text).ids
        if not ids:
            raise InputError("target is empty: type one, or leave it out")
        found = torch.tensor([ids], device=device_of(model))
        self._check_tokens(model, found)
        return found

    def target_ids(self, text: str) -> list[int]:
        """Return the tokens of a text that goes on, or of a target, without special ones."""
        with self._calling("cut this target"):
            if not callable(self.tokenizer):
                return list(self.tokenizer.encode(text, add_special_tokens=False).ids)
            return list(self.tokenizer(text_target=text, add_special_tokens=False)["input_ids"])

    def labels(self, ids: list[int]) -> list[str]:
        """Return a name for each token."""
        with self._calling("name its tokens"):
            return self.pieces.labels(ids)

    def decode(self, ids: list[int]) -> str:
        """Return tokens as a text, without special ones."""
        with self._calling("make a text of tokens"):
            found: str = self.tokenizer.decode(ids, skip_special_tokens=True)
            return found.strip()

    def _calling(self, does: str) -> AbstractContextManager[None]:
        """Turn what the tokenizer raises into one line; `does`: what it cannot do."""
        own = not callable(self.tokenizer) or getattr(self.tokenizer, "backend_tokenizer", None) is not None
        where = getattr(self.tokenizer, "name_or_path", "") or "given"
        return library_errors(
            "tokenizers" if own else "transformers",
            f"tokenizer {where!r} cannot {does}",
            "give another text, or mend its files",
        )

    def special(self, tokens: Tensor) -> Tensor:
        """Say which of some tokens are no text, (1, T) bool."""
        special = torch.tensor(sorted(getattr(self.tokenizer, "all_special_ids", ())), device=tokens.device)
        return torch.isin(tokens, special)

    def most(self, model: Any) -> int:
        """Return how many tokens an answer has at most."""
        config = model.generation_config
        most = config.max_new_tokens or config.max_length or WRITTEN
        if not isinstance(most, int) or most < 1:
            raise InputError(
                f"length {shorten(str(most))} in generation_config is no whole number above 0: mend it"
            )
        return most if config.max_new_tokens else min(most, WRITTEN)

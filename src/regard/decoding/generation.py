"""Continuation of prompts by a language model, with the search algorithms that are also used for translation.

The searches reserve the first symbols of a vocabulary: padding, begin, end, unknown. Language models have no
such symbols, so token t of a language model is symbol t + 4 of the search.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.arguments import public
from regard.data.subwords import RESERVED
from regard.decoding.search import Hypothesis
from regard.decoding.translation import Search, search_batch
from regard.errors import InputError, check_range, plural
from regard.fast.onednn import packed_logits
from regard.models.base import LanguageModel
from regard.streams import derive_seed

FIRST = len(RESERVED)  # Symbol of the first token in a search


class PromptDecoder:
    """A language model as the decoder of a search; the prompts, of equal lengths, are its sources and first state."""

    def __init__(self, model: LanguageModel) -> None:
        self.model, self._logits = model, packed_logits(model)

    def encode(self, prompts: Tensor, mask: Tensor) -> Tensor:
        return prompts

    def start(self, prompts: Tensor) -> Tensor:
        return prompts

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        if isinstance(state, Tensor):
            return self.model.start(state)
        # A beam that is wider than the vocabulary has prefixes of reserved symbols, with probability 0.
        return self.model.step((tokens - FIRST).clamp_min(0), state)

    def logits(self, states: Tensor) -> Tensor:
        return F.pad(self._logits(states.flatten(0, -2)).unflatten(0, states.shape[:-1]), (FIRST, 0), value=-torch.inf)


@public
def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    search: Search,
    *,
    most: int,
    longest: int | None = None,
    slide: bool = False,
) -> list[list[Hypothesis]]:
    """Return the `n_best` continuations of each prompt, best first, each with `most` tokens.

    `longest`: largest number of tokens of prompt and continuation together. With `slide`, prompts and continuations
    without beams may exceed it: the model then reads only the last half of it. Raises `InputError` for a prompt that is
    empty or too long.

    >>> from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig
    >>> model = DecoderOnly(DecoderOnlyConfig(hidden=8, heads=2), symbols=5, longest=9)
    >>> [[best]] = generate(model, [[1, 2]], Search(), most=30, longest=9, slide=True)
    >>> len(best.tokens)
    30
    """
    check_range("new", most, 1, 10**6)
    slide = slide and search.beam == search.n_best == 1
    for prompt in prompts:
        if not prompt:
            raise InputError("a prompt is empty: give at least one token")
        if longest is not None and not slide and len(prompt) + most > longest:
            raise InputError(
                f"{plural(most, 'token')} after a prompt of {len(prompt)} exceed the model's {longest} positions"
                f": give --new {max(longest - len(prompt), 0)} or less, or a shorter prompt"
            )
    decoder, device = PromptDecoder(model.eval()), next(model.parameters()).device
    answers: list[list[Hypothesis]] = [[] for _ in prompts]
    for length in sorted({len(prompt) for prompt in prompts}):
        indices = [index for index, prompt in enumerate(prompts) if len(prompt) == length]
        texts, rest = [list(prompts[index]) for index in indices], most
        while rest:
            if longest is not None and len(texts[0]) >= longest:
                texts = [text[-longest // 2 :] for text in texts]
            room = rest if longest is None else min(rest, longest - len(texts[0]))
            # The same text can come again, and must then be continued otherwise.
            seeds = [derive_seed(search.seed, f"draw/{f'{rest}/' * (rest < most)}{text}") for text in texts]
            found = search_batch(decoder, torch.tensor(texts, device=device), search, most=room, seeds=seeds)
            rest -= room
            for place, (index, ranked) in enumerate(zip(indices, found, strict=True)):
                ends = [replace(end, tokens=[symbol - FIRST for symbol in end.tokens]) for end in ranked]
                texts[place] += ends[0].tokens
                answers[index] = [_join(*answers[index], end) for end in ends]
    return answers


def _join(*parts: Hypothesis) -> Hypothesis:
    """Return a continuation and its own continuation, if there are two, as one."""
    total = sum(part.log_probability for part in parts)
    tokens = [token for part in parts for token in part.tokens]
    return parts[0] if len(parts) == 1 else replace(parts[-1], tokens=tokens, log_probability=total, score=total)

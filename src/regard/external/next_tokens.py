"""The likeliest next tokens of a causal language model, or tokens at a mask of a masked one.

    p_i = softmax(logits / temperature)_i

Top-k sampling keeps the k likeliest tokens (Fan et al. 2018, section 5.1). Top-p sampling keeps the smallest
set of likeliest tokens whose total probability is at least p (Holtzman et al. 2020, section 3.1). The
probabilities of the kept tokens are divided by their sum.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from rich.table import Table
from torch import Tensor

from regard.arguments import Limits, public
from regard.attention.interventions import active_interventions, suspend_interventions
from regard.errors import InputError, check_range, shorten
from regard.external.adapters import CausalLMAdapter, MaskedLMAdapter
from regard.external.model import ExternalModel
from regard.external.model_input import ModelInput
from regard.result import Result, signed
from regard.viz.subject import Subject


@public
@dataclass(frozen=True, kw_only=True)
class NextToken:
    """One token that a model may write."""

    id: int
    token: str
    """Its label."""
    probability: float
    """Probability after temperature, top-k and top-p."""
    logit: float
    """Logit as the model returns it."""
    original: float | None = None
    """The probability without the active interventions; None if there are none."""
    text: str | None = None
    """The input with the token added; None if the token is not a text, such as a part of a character."""
    same_tokens: bool = True
    """Whether the tokenizer splits `text` into the tokens of the input and this token."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class NextTokens(Result):
    """The likeliest tokens at one position."""

    input: str
    position: int
    """Index of the token after which, or for a masked model at which, the tokens are predicted."""
    at: str
    """Label of the token at that position."""
    tokens: list[NextToken]
    """The likeliest first."""
    kept: int
    """Number of tokens that top-k and top-p keep."""
    kept_share: float
    """Total probability of the kept tokens before renormalization."""
    interventions: tuple[str, ...] = ()
    drawn: NextToken | None = None
    """The token drawn with `seed`."""

    def summary(self) -> str:
        return f"{self.tokens[0].token!r} at position {self.position}: {self.tokens[0].probability:.1%}"

    def table(self) -> Table:
        columns = ["token", "probability", "logit", *(["without interventions"] if self.interventions else [])]
        table = Table(*columns, box=None, pad_edge=False)
        for item in self.tokens:
            original = [] if item.original is None else [f"{item.original:.4f}"]
            table.add_row(repr(item.token), f"{item.probability:.4f}", signed(item.logit), *original)
        return table


@dataclass(frozen=True)
class TokenInput:
    """One text as the arguments of a language model."""

    subject: ExternalModel
    text: str
    arguments: dict[str, Any]

    @property
    def ids(self) -> list[int]:
        return list(self.arguments["input_ids"][0].tolist())

    @property
    def labels(self) -> list[str]:
        return list(self.subject.called(self.ids))

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Return the logits (T, V), float32."""
        logits = self.subject.adapter.read_logits(self.subject.model, self.arguments)
        return logits[0, -len(self.ids) :].float()  # learned steps before the text predict nothing of it

    def position(self, position: int | None) -> int:
        """Return a position counted from 0; None: the last token, or the first mask. Raises `InputError`."""
        count = len(self.ids)
        if position is not None:
            check_range("position", position, -count, count - 1)
            return position % count
        if isinstance(self.subject.adapter, CausalLMAdapter):
            return count - 1
        mask = mask_token(self.subject)
        if mask is None or self.subject.tokenizer.mask_token_id not in self.ids:
            raise InputError(f"input {shorten(self.text)} has no {mask or 'mask'}: write one, or give a position")
        return self.ids.index(self.subject.tokenizer.mask_token_id)


def read_tokens(subject: object, text: Any) -> TokenInput:
    """Return a text for a language model; raises `InputError` for another model or input."""
    kind = prediction_kind(subject)
    if kind is None or not isinstance(subject, ExternalModel):
        what = shorten(str(getattr(subject, "name", subject)))
        raise InputError(f"{what} is not a causal or masked language model: pass a language model from look()")
    if isinstance(text, ModelInput):
        text = text.value
    if not isinstance(text, str):
        raise InputError(f"input is of type {type(text).__name__}: give a text")
    assert isinstance(subject.adapter, CausalLMAdapter | MaskedLMAdapter)
    return TokenInput(subject, text, subject.adapter.texts.tensors(subject.model, text))


def prediction_kind(subject: object) -> str | None:
    """Return what a language model predicts: next, masked, or None for another model."""
    adapter = subject.adapter if isinstance(subject, ExternalModel) else None
    if isinstance(adapter, MaskedLMAdapter):
        return "masked"
    return "next" if isinstance(adapter, CausalLMAdapter) else None


def mask_token(subject: object) -> str | None:
    """Return the text of the mask token; None without one."""
    return getattr(getattr(subject, "tokenizer", None), "mask_token", None)


@public
@torch.no_grad()
def next_tokens(
    subject: Subject[Any],
    text: str,
    *,
    count: Annotated[int, Limits(1, 1000)] = 10,
    position: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> NextTokens:
    """Return the `count` likeliest tokens at a position, with probability and logit.

    `position`: index of a token, negative from the end; a causal model predicts the token after it (None: after
    the last), a masked model the token at it (None: at the first mask). At a position without a mask, a masked
    model reads the token that it predicts. `temperature` divides the logits; `top_k` and `top_p` leave out
    unlikely tokens, and the probabilities of the others are divided by their sum. `seed`: also draw one token.
    During an intervention, `original` is the probability of the unchanged model with the same settings.

    >>> model = regard.look("gpt2-folder")    # doctest: +SKIP
    >>> print(regard.next_tokens(model, "The cat sat on the"))    # doctest: +SKIP

    Raises `InputError` for a model that is not a language model, and for values out of range.
    """
    tokens = read_tokens(subject, text)
    if not (math.isfinite(temperature) and temperature > 0):
        raise InputError(
            f"temperature={temperature} is not above 0: choose a value such as 0.7; 1 leaves the model unchanged"
        )
    if top_k is not None:
        check_range("top_k", top_k, 1, 10**9)
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError(f"top_p={top_p} is not a probability: choose a value above 0 and at most 1")
    place = tokens.position(position)
    logits = tokens.logits()[place]
    probabilities, kept, kept_share = token_probabilities(logits, temperature, top_k, top_p)
    interventions = active_interventions(subject.model)
    original: Tensor | None = None
    if interventions:
        with suspend_interventions():
            original = token_probabilities(tokens.logits()[place], temperature, top_k, top_p)[0]

    def make(number: int) -> NextToken:
        written, same = _write(tokens, place, number)
        return NextToken(
            id=number,
            token=subject.called([number])[0],
            probability=float(probabilities[number]),
            logit=float(logits[number]),
            original=None if original is None else float(original[number]),
            text=written,
            same_tokens=same,
        )

    best = probabilities.topk(min(count, kept)).indices.tolist()
    drawn = None
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        drawn = make(int(torch.multinomial(probabilities.cpu(), 1, generator=generator)))
    return NextTokens(
        input=text,
        position=place,
        at=tokens.labels[place],
        tokens=[make(number) for number in best],
        kept=kept,
        kept_share=kept_share,
        interventions=interventions,
        drawn=drawn,
    )


def token_probabilities(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> tuple[Tensor, int, float]:
    """Return probabilities (V) with unlikely tokens at 0, the number of kept tokens, and their total probability.

    >>> probabilities, kept, share = token_probabilities(torch.tensor([0.5, 0.3, 0.2]).log(), top_p=0.6)
    >>> probabilities.tolist(), kept, round(share, 3)
    ([0.625, 0.375, 0.0], 2, 0.8)
    """
    ordered, order = (logits.double() / temperature).softmax(-1).sort(descending=True, stable=True)
    if top_k is not None:
        ordered[top_k:] = 0.0
    if top_p is not None:
        ordered[ordered.cumsum(-1) / ordered.sum() - ordered / ordered.sum() >= top_p] = 0.0
    share = ordered.sum()
    probabilities = torch.zeros_like(ordered).scatter(0, order, ordered / share)
    return probabilities.float(), int((ordered > 0).sum()), float(share)


def _write(tokens: TokenInput, position: int, token: int) -> tuple[str | None, bool]:
    """Return the text with a token added at its end or in place of a mask; None if the token is not a text."""
    ids, subject = tokens.ids, tokens.subject
    if isinstance(subject.adapter, CausalLMAdapter):
        before = ids[: position + 1]
        expected, text = [*before, token], None
        start, end = (_decode(tokens, part) for part in (before, expected))
        # A part of a character changes the decoded end of the text instead of continuing it.
        if end.startswith(start) and len(end) > len(start) and not end.endswith("\ufffd"):
            text = (tokens.text if before == ids else start) + end[len(start) :]
    else:
        expected = [*ids[:position], token, *ids[position + 1 :]]
        text = _fill_mask(tokens, position, token)
    if text is None:
        return None, False
    same: Sequence[int] = read_tokens(subject, text).ids
    return text, list(same) == expected


def _fill_mask(tokens: TokenInput, position: int, token: int) -> str | None:
    mask, ids = mask_token(tokens.subject), tokens.ids
    mask_id = tokens.subject.tokenizer.mask_token_id
    if mask is None or ids[position] != mask_id or tokens.text.count(mask) != ids.count(mask_id):
        return None
    parts = tokens.text.split(mask)
    number = ids[:position].count(mask_id)
    before, after = mask.join(parts[: number + 1]), mask.join(parts[number + 1 :])
    word = _decode(tokens, [token])
    if word.startswith("##"):  # WordPiece: the token continues the word before it
        return before.rstrip() + word[2:] + after
    return before + word.strip() + after if word.strip() else None


def _decode(tokens: TokenInput, ids: list[int]) -> str:
    tokenizer = tokens.subject.tokenizer
    options = {"clean_up_tokenization_spaces": False} if callable(tokenizer) else {}
    text: str = tokenizer.decode(ids, skip_special_tokens=True, **options)
    return text

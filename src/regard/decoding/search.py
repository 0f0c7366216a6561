"""Search for the most likely targets of a model: greedy search, sampling and beam search.

Greedy search extends one prefix of each source by the most likely token; sampling extends the prefix by a
random token. Beam search keeps the best `width` prefixes. Each step extends every prefix by every token, and
keeps the best extensions. Prefixes with an end symbol are finished hypotheses, ranked by their score,
`log-probability / length_penalty`. A source is done when `width` of its hypotheses are finished, or when no
prefix can reach a better score than the finished hypotheses.

Letters: B is the number of sources, K the number of prefixes per source, V the size of the target vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from regard import fast
from regard.arguments import Limits, public
from regard.attention.blocks import DecoderLayer, EncoderLayer
from regard.attention.layer import attention_layers
from regard.attention.multihead import MultiHeadAttention
from regard.attention.positions import LearnedPositions, Sinusoidal
from regard.data.vocabulary import BOS, EOS
from regard.decoding.controls import (
    NEVER,
    UNCONSTRAINED,
    Constraints,
    Extensions,
    check_finite,
    impossible,
    log_probabilities,
    mask_special_tokens,
)
from regard.errors import InputError
from regard.fast.fast_transformer import FastTransformer, has_forward_hooks
from regard.fast.onednn import packed_logits
from regard.fast.token_screen import MIN_STATES
from regard.models.base import Seq2Seq
from regard.models.transformer import Transformer

MAX_FAST_WIDTH = 16
"""Maximum number of prefixes for which `FastTransformer` is faster: each computes scores for all keys."""


class IncrementalDecoder(Protocol):
    """Decoder of a search, with the methods of `Seq2Seq`. A step may change the previous state."""

    def encode(self, source: Tensor, source_mask: Tensor) -> Any:
        """Return the memory of sources (B, Ts)."""

    def start(self, memory: Any) -> Any:
        """Return the state before the first step."""

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Decode tokens (B, K), and return states (B, K, D) and the next state."""

    def logits(self, states: Tensor) -> Tensor:
        """Return logits (..., V) of states (..., D). The caller may change the logits."""


class ModuleDecoder:
    """Decoder that calls the methods of a model."""

    def __init__(self, model: Seq2Seq) -> None:
        self.encode, self.start, self.step = model.encode, model.start, model.step
        self.logits = packed_logits(model)


def make_decoder(model: Seq2Seq | IncrementalDecoder, width: int = 1) -> IncrementalDecoder:
    """Return a decoder for a search with `width` prefixes, valid until the parameters of the model change. A
    `model` that is not a `Seq2Seq` is already a decoder, and is returned unchanged."""
    if not isinstance(model, Seq2Seq):
        return model
    if width > MAX_FAST_WIDTH or not supports(model):
        return ModuleDecoder(model)
    positions: Any = model.target_positions
    return FastTransformer(model, adds_vectors=type(positions) in (Sinusoidal, LearnedPositions))


def supports(model: Seq2Seq) -> bool:
    """Return whether `FastTransformer` can decode a model: a standard Transformer on a CPU without hooks."""
    if type(model) is not Transformer or not fast.enabled() or model.training or torch.is_autocast_enabled("cpu"):
        return False
    weight = model.target_embedding.weight
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.float64):
        return False
    blocks: list[Any] = [*model.encoder.layers, *model.decoder.layers]
    if not all(type(block) in (EncoderLayer, DecoderLayer) for block in blocks):
        return False
    if not isinstance(blocks[0].feed_forward_residual.norm, nn.LayerNorm):
        return False
    layers: list[Any] = list(attention_layers(model).values())
    standard = all(type(layer) is MultiHeadAttention and layer.standard for layer in layers)
    same_heads = len({(layer.heads, layer.head_width) for layer in layers}) == 1  # not if pruned
    own_keys = all(layer.groups == layer.heads for layer in layers)
    hooked = any(layer.hook is not None for layer in layers) or has_forward_hooks(model)
    return standard and same_heads and own_keys and not hooked


BeamWidth = Annotated[int, Limits(1, 1000)]
Penalty = Annotated[float, Limits(0, 10)]
"""Exponent of the length penalty. With larger exponents, only the length matters."""
TopK = Annotated[int, Limits(0, 10**9)]
TopP = Annotated[float, Limits(0, 1, "low")]


class SearchTrace(NamedTuple):
    """Probabilities of an answer of T tokens, with the end of sequence, and its attention to a source of Ts
    tokens, with its end, in L cross-attention layers."""

    source: list[int]  # Tokens of the source, without its end
    tokens: list[int]  # Tokens of the answer, without its end
    log_probabilities: np.ndarray  # (T,): natural logarithm of the probability of each token
    attention: np.ndarray  # (L, T, Ts): weights of the source, mean over heads
    contribution: np.ndarray
    """(L, T): sum over heads and source tokens of weight times length of the transformed value (Kobayashi et al.
    2020), which is how much the source adds to the states."""


@public
@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A target for a source."""

    tokens: list[int]
    """Vocabulary indices, without the end of sequence."""
    log_probability: float
    """Natural logarithm of the probability of the tokens, and of the end of sequence if the hypothesis has one."""
    score: float
    """Score for ranking hypotheses: log-probability divided by the length penalty."""
    finished: bool
    """Whether the end of sequence came before `max_len`."""
    trace: SearchTrace | None = field(default=None, repr=False, compare=False)
    """What the search computed for the hypothesis, if it was requested and is known."""


@public
def greedy_search(
    model: Seq2Seq | IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    *,
    max_len: int | Sequence[int],
    scored: bool = True,
) -> list[Hypothesis]:
    """Return one hypothesis for each source (B, Ts), of at most `max_len` tokens.

    `source_mask` (B, Ts): True before the end. `max_len`: a single limit, or a limit for each source. Finished
    sources are not decoded further. `scored`: If False, log-probabilities are not computed, and are NaN.
    """
    decoder = make_decoder(model)
    screen = None
    if not scored and len(source) >= MIN_STATES and isinstance(decoder, FastTransformer):
        screen = decoder.screen(NEVER)

    def most_likely(states: Tensor, rows: Sequence[int], time: int) -> tuple[Tensor, Tensor | None]:
        if screen is None:
            # A softmax does not change which token is the most likely.
            logits = decoder.logits(states)
            values = log_probabilities(logits) if scored else mask_special_tokens(logits)
            tokens = values.argmax(1, keepdim=True)
            best = values.gather(1, tokens)
        else:
            tokens, best = screen(states)
        check_finite(best)  # NaN counts as the largest value
        return tokens, best if scored else None

    return decode(decoder, source, source_mask, most_likely, max_len)


@torch.inference_mode()
def decode(
    decoder: IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    choose: Callable[[Tensor, Sequence[int], int], tuple[Tensor, Tensor | None]],
    max_len: int | Sequence[int],
) -> list[Hypothesis]:
    """Decode with `choose`, which maps states (B, D), the source of each row, and the step to tokens (B, 1).
    `choose` also returns the tokens' log-probabilities, or None."""
    device, limits = source.device, source_limits(max_len, len(source))
    active = list(range(len(source)))
    tokens = torch.full((len(source), 1), BOS, device=device)
    sequences: list[list[int]] = [[] for _ in active]
    totals, finished = [0.0] * len(active), [False] * len(active)
    state = decoder.start(decoder.encode(source, source_mask))
    for time in range(max(limits) + 1):
        states, state = decoder.step(tokens, state)
        tokens, log_probs = choose(states[:, 0], active, time)
        going = []
        best = [math.nan] * len(active) if log_probs is None else log_probs[:, 0].tolist()
        for index, token, log_prob in zip(active, tokens[:, 0].tolist(), best, strict=True):
            finished[index], below_limit = token == EOS, time < limits[index]
            going.append(below_limit and token != EOS)
            if below_limit or token == EOS:  # at the limit only the end of sequence still fits
                totals[index] += log_prob
                sequences[index].append(token)
        if not all(going):
            rows = compact_rows(going)
            active = [active[row] for row in rows]
            remaining = torch.tensor(rows, device=device, dtype=torch.int64)
            state, tokens = state.keep(remaining), tokens[remaining]
        if not active:
            break
    return [
        Hypothesis(tokens=sequence[:-1] if ended else sequence, log_probability=total, score=total, finished=ended)
        for sequence, total, ended in zip(sequences, totals, finished, strict=True)
    ]


@public
def length_penalty(length: int, alpha: float) -> float:
    """Return `((5 + length) / 6) ** alpha` (Wu et al. 2016, equation 14); `length` includes the end of sequence.

    >>> length_penalty(7, 1.0)
    2.0
    """
    return float(((5 + length) / 6) ** alpha)


def check_beam(width: int, n_best: int) -> None:
    if n_best > width:
        raise InputError(f"n_best {n_best} exceeds beam {width}: lower n_best, or raise beam")


class Step(NamedTuple):
    """One step of a search, for all unfinished sources."""

    log_probs: Tensor  # (B, K, V): log-probability of each token after each prefix
    extensions: Extensions
    sources: Sequence[int]  # Index of the source of each row
    state: Any  # State of the decoder after this step, before prefixes are selected
    last: bool  # Whether the length limit is reached, so that the new prefixes are dropped


@public
@torch.inference_mode()
def beam_search(
    model: Seq2Seq | IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    *,
    width: BeamWidth,
    max_len: int | Sequence[int],
    alpha: Penalty = 0.0,
    n_best: BeamWidth = 1,
    on_step: Callable[[Step], None] | None = None,
    constraints: Constraints = UNCONSTRAINED,
) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses for each source (B, Ts), best first, of at most `max_len` tokens.

    `source_mask` (B, Ts): True before the end. `max_len`: a single limit, or a limit for each source. `width`:
    number of prefixes per source. `alpha`: exponent of the length penalty. 0 compares log-probabilities, and
    larger values favor longer hypotheses. If fewer than `n_best` hypotheses finish within the limit, unfinished
    hypotheses follow. `on_step`: function that is called with every step. Raises `InputError` for values out of
    range, and if no target of a source satisfies the `constraints`.
    """
    check_beam(width, n_best)
    decoder = make_decoder(model, width)
    device, limits = source.device, source_limits(max_len, len(source))
    state = decoder.start(decoder.encode(source, source_mask))
    active = list(range(len(source)))
    prefixes = torch.full((len(source), 1, 1), BOS, device=device)
    totals = torch.zeros(len(source), 1, device=device)
    finished: list[list[Hypothesis]] = [[] for _ in range(len(source))]
    for time in range(max(limits) + 1):
        states, state = decoder.step(prefixes[:, :, -1], state)
        penalty = length_penalty(time + 1, alpha)
        log_probs = constraints.log_probabilities(decoder.logits(states), prefixes, active)
        extensions = constraints.extend(log_probs, prefixes, totals, active, width)
        if on_step is not None:
            on_step(Step(log_probs, extensions, active, state, time == max(limits)))
        ends, parents, tokens, new_totals = extensions
        for row, parent, total in ends:
            finished[active[row]].append(_hypothesis(prefixes[row, parent], total, penalty, finished=True))
        for row, index in enumerate(active):
            if time == limits[index]:  # the best prefixes that have not finished follow
                ended = {parent for place, parent, _ in ends if place == row}
                missing, penalty_here = n_best - len(finished[index]), length_penalty(time, alpha)
                unfinished = [
                    _hypothesis(prefixes[row, place], total, penalty_here, finished=False)
                    for place, total in enumerate(totals[row].tolist())
                    if total > -torch.inf and place not in ended
                ]
                finished[index] += unfinished[: max(missing, 0)]
        state, totals = state.choose(parents), new_totals
        extended = prefixes.gather(1, parents.unsqueeze(-1).expand(-1, -1, prefixes.shape[-1]))
        prefixes = torch.cat([extended, tokens.unsqueeze(-1)], dim=-1)
        # Log-probabilities are negative, so the penalty of the longest length gives an upper bound of a prefix's score.
        going = [
            time < limits[index]
            and not _done(finished[index], best / length_penalty(limits[index] + 1, alpha), width, n_best)
            for index, best in zip(active, totals.amax(1).tolist(), strict=True)
        ]
        if not all(going):
            rows = compact_rows(going)
            remaining = torch.tensor(rows, device=device, dtype=torch.int64)
            state, active = state.keep(remaining), [active[row] for row in rows]
            prefixes, totals = prefixes[remaining], totals[remaining]
        if not active:
            break
    if not all(finished):
        raise impossible()
    return [sorted(hypotheses, key=_rank)[:n_best] for hypotheses in finished]


def _done(finished: list[Hypothesis], reachable: float, width: int, n_best: int) -> bool:
    if len(finished) < n_best:
        return reachable == -torch.inf
    return len(finished) >= width or sorted(finished, key=_rank)[n_best - 1].score >= reachable


def _rank(hypothesis: Hypothesis) -> tuple[bool, float]:
    return not hypothesis.finished, -hypothesis.score


def _hypothesis(prefix: Tensor, total: float, penalty: float, *, finished: bool) -> Hypothesis:
    return Hypothesis(tokens=prefix[1:].tolist(), log_probability=total, score=total / penalty, finished=finished)


def source_limits(max_len: int | Sequence[int], count: int) -> list[int]:
    """Return the maximum number of tokens for each of `count` sources, from a single limit or a limit for each source.

    >>> source_limits(9, 2)
    [9, 9]
    """
    return [max_len] * count if isinstance(max_len, int) else list(max_len)


def compact_rows(going: Sequence[bool]) -> list[int]:
    """Return the rows of unfinished sources. Later rows replace those of finished sources: the fewest rows move.

    >>> compact_rows([True, False, True, True])
    [0, 3, 2]
    """
    count = sum(going)
    later = (row for row in range(count, len(going)) if going[row])
    return [row if going[row] else next(later) for row in range(count)]


COLDEST, HOTTEST = 1e-3, 1e3
"""Allowed temperatures: below, only the likeliest token is sampled; above, all are equally likely."""


def check_temperature(temperature: float) -> None:
    if not COLDEST <= temperature <= HOTTEST:
        raise InputError(
            f"temperature {temperature} is out of range: choose from {COLDEST} to {HOTTEST:g}, or 0 for a search"
        )


@public
def sample(
    model: Seq2Seq | IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    *,
    max_len: int | Sequence[int],
    temperature: float,
    seeds: Sequence[int],
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    constraints: Constraints = UNCONSTRAINED,
) -> list[Hypothesis]:
    """Return one hypothesis for each source, sampled from the model. All other arguments are those of `greedy_search`.

    `seeds`: a seed for each source, so that the result for a source does not depend on the other sources.
    `temperature`: divisor of the logits. Values below 1 make likely tokens even more likely. `top_k`, `top_p`:
    see `truncate`. `log_probability` is computed without temperature and truncation. Raises `InputError` for a
    value out of range, and if no token satisfies the `constraints`.
    """
    check_temperature(temperature)
    decoder = make_decoder(model)

    # One random number for each source and step, drawn on the CPU so that it is the same on every device.
    steps = max(source_limits(max_len, len(source))) + 1
    uniform = torch.stack(
        [torch.rand(steps, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) for seed in seeds]
    )

    prefixes = torch.full((len(source), steps + 1), BOS, device=source.device)

    def draw(states: Tensor, rows: Sequence[int], time: int) -> tuple[Tensor, Tensor]:
        before = prefixes[list(rows), None, : time + 1]
        logits = decoder.logits(states).unsqueeze(1)
        log_probs = constraints.log_probabilities(logits, before, rows).squeeze(1)
        check_finite(log_probs)
        if bool((log_probs.amax(-1) == -torch.inf).any()):
            raise impossible()
        # The first token whose cumulative probability exceeds the number has a probability above 0.
        probabilities = (log_probs.double() / temperature).softmax(-1)
        sums = truncate(probabilities, top_k, top_p).cumsum(-1)
        thresholds = uniform[list(rows), time].to(sums.device).unsqueeze(1) * sums[:, -1:]
        tokens = torch.searchsorted(sums, thresholds, right=True).clamp_max(sums.shape[1] - 1)
        prefixes[list(rows), time + 1] = tokens.squeeze(1)
        return tokens, log_probs.gather(1, tokens)

    return decode(decoder, source, source_mask, draw, max_len)


@public
def truncate(probabilities: Tensor, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Set probabilities (..., V) of unlikely tokens to zero.

    `top_k`: number of tokens that remain (Fan et al. 2018); 0: all tokens. `top_p`: smallest total probability
    of the remaining tokens, of which there are as few as possible (nucleus sampling, Holtzman et al. 2020). If
    probabilities are equal, the first token remains.

    >>> truncate(torch.tensor([0.5, 0.3, 0.2]), top_p=0.7)
    tensor([0.5000, 0.3000, 0.0000])
    """
    symbols = probabilities.shape[-1]
    if not 0 < top_k < symbols and top_p == 1:
        return probabilities
    ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
    ordered = ordered if not top_k else ordered * (torch.arange(symbols, device=ordered.device) < top_k)
    sums = ordered.cumsum(-1)
    ordered = ordered * (sums - ordered < top_p * sums[..., -1:])
    return torch.zeros_like(probabilities).scatter(-1, order, ordered)

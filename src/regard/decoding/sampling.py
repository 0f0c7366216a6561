"""Sampling: each token is drawn from the model's distribution, which may be truncated to the most likely
tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.arguments import public
from regard.data.vocabulary import BOS
from regard.decoding.extensions import UNCONSTRAINED, Constraints, check_finite, impossible
from regard.decoding.incremental import IncrementalDecoder, make_decoder
from regard.decoding.search import Hypothesis, decode, source_limits
from regard.errors import InputError, check_range
from regard.models.seq2seq import Seq2Seq

COLDEST, HOTTEST = 1e-3, 1e3
"""Allowed temperatures. Below this range only the most likely token is sampled, and above it all tokens are
equally likely."""


def check_sampling(temperature: float, top_k: int, top_p: float) -> None:
    """Raise `InputError` for options of `sample` out of range.

    >>> check_sampling(1.0, top_k=5, top_p=0.9)
    """
    if not COLDEST <= temperature <= HOTTEST:
        raise InputError(
            f"temperature {temperature} is out of range: choose from {COLDEST} to {HOTTEST:g}, or 0 for a search"
        )
    check_range("top_k", top_k, 0, 10**9)
    if not 0 < top_p <= 1:
        raise InputError(f"top_p {top_p} is out of range: choose above 0 and at most 1")


@public
def sample(
    model: Seq2Seq | IncrementalDecoder,
    source: Tensor,
    source_mask: Tensor,
    *,
    max_len: int | Sequence[int],
    temperature: float,
    seeds: Sequence[int],
    top_k: int = 0,
    top_p: float = 1.0,
    constraints: Constraints = UNCONSTRAINED,
) -> list[Hypothesis]:
    """Return one hypothesis for each source, sampled from the model. All other arguments are those of
    `greedy_search`.

    `seeds`: a seed for each source, so that the result for a source does not depend on the other sources.
    `temperature`: divisor of the logits. Values below 1 make likely tokens even more likely. `top_k`, `top_p`:
    see `truncate`. `log_probability` is computed without temperature and truncation. Raises `InputError` for a
    value out of range, and if no token satisfies the `constraints`.
    """
    check_sampling(temperature, top_k, top_p)
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

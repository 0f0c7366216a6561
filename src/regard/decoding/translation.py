"""Translation of texts: form batches of similar length, search, and return results in the original order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.arguments import Limits, check_fields, public
from regard.attention.multihead import MultiHeadAttention
from regard.data.batch import collate
from regard.data.vocabulary import PAD, Vocabulary
from regard.decoding.controls import UNCONSTRAINED, Constraints, Controls, find_requirements, make_constraints
from regard.decoding.search import (
    BeamWidth,
    Hypothesis,
    IncrementalDecoder,
    Penalty,
    SearchTrace,
    Step,
    TopK,
    TopP,
    beam_search,
    check_beam,
    check_temperature,
    greedy_search,
    make_decoder,
    sample,
)
from regard.errors import InputError
from regard.fast.fast_transformer import FastTransformer
from regard.fast.threads import map_batches
from regard.models.base import Seq2Seq
from regard.result import Result
from regard.streams import derive_seed


def value_lengths(layer: nn.Module, values: Tensor) -> Tensor:
    """Return the lengths (..., H, Ts) of the values (..., H, Ts, d) of a layer after its output projection."""
    transformed = values
    if isinstance(layer, MultiHeadAttention):
        matrices = layer.output.weight.unflatten(1, (-1, values.shape[-1]))
        # |W v|² = vᵀ (Wᵀ W) v, whose matrix is as narrow as a head.
        products = torch.einsum("ohd,ohe->hde", matrices, matrices)
        transformed = torch.einsum("...hsd,hde->...hse", values, products)
    return (transformed * values).sum(-1).clamp_min(0).sqrt()


class _Step(NamedTuple):
    """What is kept of a step, for B rows."""

    row_of: np.ndarray  # (sources,): row of each source, -1 for finished sources
    attention: Tensor  # (L, B, K, Ts)
    contribution: Tensor  # (L, B, K)
    ends: dict[tuple[int, float], int]  # Prefix of each finished hypothesis, by its source and its log-probability
    parents: np.ndarray  # (B, K'): prefix that each new prefix extends
    tokens: np.ndarray  # (B, K'): token of each new prefix
    totals: np.ndarray  # (B, K'): log-probability of each new prefix


class Tracer:
    """Collects the steps of a beam search by `FastTransformer`, and traces its hypotheses. The collected
    attention needs less memory than the keys and values of the search for sources of less than `2 D` tokens,
    where D is the width of the states."""

    def __init__(self, model: Any) -> None:
        self._layers = [layer.cross for layer in model.decoder.layers]
        self._steps: list[_Step] = []

    def add_step(self, step: Step) -> None:
        sources, values = list(step.sources), step.state.memory.values
        if not self._steps:
            parts = zip(self._layers, values, strict=True)
            self._lengths = torch.stack([value_lengths(*part) for part in parts])  # (L, B, H, Ts)
        row_of = np.full(self._lengths.shape[1], -1)
        row_of[sources] = range(len(sources))
        lengths = self._lengths.index_select(1, torch.tensor(sources)).unsqueeze(-1)
        weights = torch.stack(step.state.cross_weights).view(*lengths.shape[:3], -1, lengths.shape[3])
        self._steps.append(
            _Step(
                row_of,
                weights.mean(2),
                torch.matmul(weights, lengths).sum(2).squeeze(-1),
                {(sources[row], total): prefix for row, prefix, total in step.extensions.ends},
                *(part.numpy() for part in step.extensions[1:]),
            )
        )

    def traced(self, best: Sequence[Hypothesis], sources: Tensor) -> list[Hypothesis]:
        """Return the hypotheses of sources (B, Ts) with their traces, which unfinished hypotheses lack."""
        prefixes, tokens, totals = self._paths(best)
        layers, count, width = len(self._layers), *sources.shape
        attention = np.zeros((layers, count, len(self._steps), width), np.float32)
        contribution = np.zeros((layers, count, len(self._steps)), np.float32)
        for time, step in enumerate(self._steps):
            [places] = np.nonzero(prefixes[time] >= 0)
            rows = torch.from_numpy(step.row_of[places]), torch.from_numpy(prefixes[time, places])
            attention[:, places, time] = step.attention[:, *rows, :width].numpy()
            contribution[:, places, time] = step.contribution[:, *rows].numpy()
        log_probabilities = np.diff(totals, axis=0, prepend=0.0)
        results = []
        for row, hypothesis in enumerate(best):
            steps, source = len(hypothesis.tokens) + 1, [token for token in sources[row].tolist() if token != PAD]
            trace = SearchTrace(
                source[:-1],
                hypothesis.tokens,
                log_probabilities[:steps, row],
                attention[:, row, :steps, : len(source)],
                contribution[:, row, :steps],
            )
            known = prefixes[0, row] >= 0 and tokens[: steps - 1, row].tolist() == hypothesis.tokens
            results.append(replace(hypothesis, trace=trace if known else None))
        return results

    def _paths(self, best: Sequence[Hypothesis]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the prefix of each hypothesis before each step (T, B), and its token and log-probability after. The
        prefix is -1 after the end of a hypothesis, and at all steps of a hypothesis without an end."""
        prefixes, tokens = np.full((2, len(self._steps) + 1, len(best)), -1)
        totals = np.zeros(prefixes.shape)
        for place, hypothesis in enumerate(best):
            time = len(hypothesis.tokens)
            if hypothesis.finished:
                prefixes[time, place] = self._steps[time].ends[place, hypothesis.log_probability]
                totals[time, place] = hypothesis.log_probability
        for time in reversed(range(len(self._steps))):
            step, [places] = self._steps[time], np.nonzero(prefixes[time + 1] >= 0)
            rows, after = step.row_of[places], prefixes[time + 1, places]
            prefixes[time, places] = step.parents[rows, after]
            tokens[time, places] = step.tokens[rows, after]
            totals[time, places] = step.totals[rows, after]
        return prefixes[:-1], tokens, totals[:-1]


# Ensembles: several models that predict each token together, by the mean of their probabilities.
#
# The mean of the probabilities (as in fairseq, and by default in Sockeye) is a probability distribution, so the
# log-probability of an answer keeps its meaning. The mean of the log-probabilities (as in OpenNMT and Marian)
# would not be one.


class EnsembleState(list[Any]):
    """The state of each model between two steps."""

    def choose(self, hypotheses: Tensor) -> "EnsembleState":
        return EnsembleState(state.choose(hypotheses) for state in self)

    def keep(self, sources: Tensor) -> "EnsembleState":
        return EnsembleState(state.keep(sources) for state in self)


class EnsembleDecoder:
    """Decoder of several models with one vocabulary; see `IncrementalDecoder`. `width`: number of prefixes of
    the search. The states (B, K, D) of a step are the concatenated states of the models."""

    def __init__(self, models: Sequence[Seq2Seq], width: int) -> None:
        self._decoders = [make_decoder(model, width) for model in models]
        self._widths = [model.vocabulary_layer[0].shape[1] for model in models]

    def encode(self, source: Tensor, source_mask: Tensor) -> list[Any]:
        return [decoder.encode(source, source_mask) for decoder in self._decoders]

    def start(self, memory: list[Any]) -> EnsembleState:
        return EnsembleState(decoder.start(part) for decoder, part in zip(self._decoders, memory, strict=True))

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        steps = [decoder.step(tokens, part) for decoder, part in zip(self._decoders, state, strict=True)]
        return torch.cat([states for states, _ in steps], dim=-1), EnsembleState(after for _, after in steps)

    def logits(self, states: Tensor) -> Tensor:
        parts = zip(self._decoders, states.split(self._widths, dim=-1), strict=True)
        log_probs = [decoder.logits(part).log_softmax(-1) for decoder, part in parts]
        return torch.stack(log_probs).logsumexp(0) - math.log(len(log_probs))


SLACK = 50  # Number of tokens by which an answer may exceed twice the length of its source


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class Candidate(Result, Hypothesis):
    """One answer to one text: a hypothesis with its text."""

    text: str
    misplaced: tuple[str, ...] = ()
    """Translations of the glossary that the answer has in another place than that of their source terms."""

    def json(self) -> dict[str, Any]:
        """Return the fields as plain values, without the trace."""
        return {"text": self.text, **{name: value for name, value in super().json().items() if name != "trace"}}

    def __str__(self) -> str:
        return self.text

    def summary(self) -> str:
        return f"{self.text!r}, log-probability {self.log_probability:.4f}"


@public
@dataclass(frozen=True, kw_only=True)
class Search:
    """Options of a search. Raises `InputError` for values out of range, and for options that exclude each other.

    >>> Search(beam=2, n_best=3)
    Traceback (most recent call last):
    regard.errors.InputError: n_best 3 exceeds beam 2: lower n_best, or raise beam
    """

    beam: BeamWidth = 1
    """Number of prefixes per text. 1 is greedy search."""
    length_penalty: Penalty = 0.0
    """Exponent of the length penalty (Wu et al. 2016). 0 compares log-probabilities, and larger values favor
    longer answers."""
    n_best: BeamWidth = 1
    """Number of answers per text, at most the beam size."""
    temperature: float = 0.0
    """If above 0, sample each token from the model's distribution at this temperature, instead of searching."""
    top_k: TopK = 0
    """With a temperature: sample only from this number of most likely tokens; 0 for all."""
    top_p: TopP = 1.0
    """With a temperature: sample only from the smallest set of tokens with this total probability."""
    seed: Annotated[int, Limits(0, 2**32 - 1)] = 0
    """Seed of sampling. The answer depends only on the text and the seed, not on the other texts."""
    controls: Controls = field(default_factory=Controls)
    """Constraints on the answers."""
    traced: bool = False
    """Trace the best answer to each text, if it is the answer of one Transformer on a CPU without constraints."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.temperature:
            check_temperature(self.temperature)
        elif self.top_k or self.top_p != 1 or self.seed:
            raise InputError(
                "top_k, top_p and seed change sampling, but there is no temperature: give temperature 1, or "
                "leave them out"
            )
        if self.temperature and self.beam > 1:
            raise InputError(
                f"temperature {self.temperature} and beam {self.beam} exclude each other: leave out temperature or beam"
            )
        if self.temperature and self.n_best > 1:
            raise InputError(
                f"n_best {self.n_best} ranks answers, but a temperature draws one answer: leave out n_best, and "
                f"give another seed for another answer"
            )
        check_beam(self.beam, self.n_best)
        if (self.controls.terms or self.controls.glossary) and self.beam < 2:
            raise InputError("terms and a glossary need beam search: give a beam of at least 2, and no temperature")

    def select(self, indices: Sequence[int], count: int) -> "Search":
        """Return the search for the texts at some indices of `count` texts; see `Controls.select`."""
        return replace(self, controls=self.controls.select(indices, count))


@public
def translate(
    models: Seq2Seq | Sequence[Seq2Seq],
    source_vocabulary: Vocabulary,
    target_vocabulary: Vocabulary,
    texts: Sequence[str],
    search: Search,
    *,
    max_len: int,
    batchsize: int = 64,
    scored: bool = True,
) -> list[list[Candidate]]:
    """Return the `n_best` answers to each text, best first, each of at most `longest_answer` tokens.

    Texts of similar length form batches of `batchsize`. On a CPU, batches run in parallel on the cores that PyTorch
    uses (see `fast.threads.map_batches`). Answers are in the order of the texts, and do not depend on the other texts
    except for rounding errors. Several `models` form an ensemble (see `EnsembleDecoder`). `scored`: if False,
    log-probabilities may be NaN to save time. Raises `InputError` for constraints that cannot be satisfied.
    """
    sources = source_vocabulary.encode_all(texts)
    limits = [longest_answer(source, max_len) for source in sources]
    requirements = find_requirements(search.controls, texts, limits, target_vocabulary, max_len)
    # All batches share one decoder, which packs the weights of the model once.
    models = [models] if isinstance(models, Seq2Seq) else models
    ensemble = nn.ModuleList(models).eval()
    device = next(ensemble.parameters()).device
    decoder: IncrementalDecoder = make_decoder(models[0], search.beam)
    if len(models) > 1:
        decoder = EnsembleDecoder(models, search.beam)

    def answer(indices: list[int]) -> list[list[Candidate]]:
        hypotheses = search_batch(
            decoder,
            collate([sources[index] for index in indices]).to(device),
            search,
            most=[requirements[index].limit for index in indices],
            seeds=[derive_seed(search.seed, f"draw/{texts[index]}") for index in indices if search.temperature],
            scored=scored,
            constraints=make_constraints(search.controls, [requirements[index] for index in indices]),
        )
        return [candidates(ranked, target_vocabulary) for ranked in hypotheses]

    batches = length_batches(sources, batchsize)
    answers = dict(zip(chain(*batches), chain(*map_batches(ensemble, answer, batches)), strict=True))
    return [answers[index] for index in range(len(texts))]


def length_batches(sources: Sequence[Sequence[int]], batchsize: int) -> list[list[int]]:
    """Return batches of at most `batchsize` indices of sources, by length, the longest first, so that a parallel
    search ends with short ones.

    >>> length_batches([[4], [4, 5, 6], [4, 5]], 2)
    [[1, 2], [0]]
    """
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]), reverse=True)
    return [order[begin : begin + batchsize] for begin in range(0, len(order), batchsize)]


def longest_answer(source: Sequence[int], max_len: int) -> int:
    """Return the length limit of an answer: twice the length of the source plus `SLACK`, at most `max_len` tokens.

    >>> longest_answer([4, 5, 6], 1000)
    58
    """
    return min(max_len, 2 * (len(source) + 1) + SLACK)  # including the end of sequence


def search_batch(
    model: Seq2Seq | IncrementalDecoder,
    source: Tensor,
    search: Search,
    *,
    most: int | Sequence[int],
    seeds: Sequence[int] = (),
    scored: bool = True,
    constraints: Constraints = UNCONSTRAINED,
) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses for each source (B, Ts). `most`: length limit in tokens, a single limit or
    a limit for each source. `seeds`: a seed for each source, for sampling. `scored`: as in `translate`.
    `constraints`: see `make_constraints`."""
    decoder, mask = make_decoder(model, search.beam), source != PAD
    if search.temperature:
        drawn = sample(
            decoder,
            source,
            mask,
            max_len=most,
            temperature=search.temperature,
            seeds=seeds,
            top_k=search.top_k,
            top_p=search.top_p,
            constraints=constraints,
        )
        return [[best] for best in drawn]
    plain, tracer = search.n_best == 1 and constraints is UNCONSTRAINED, None
    if search.traced and plain and isinstance(decoder, FastTransformer):
        tracer = Tracer(decoder.model)
    # With constraints, a beam search of width 1 is the greedy search, whose scores have no length penalty.
    elif search.beam == 1 and plain:
        greedy = greedy_search(decoder, source, mask, max_len=most, scored=scored)
        return [[best] for best in greedy]
    found = beam_search(
        decoder,
        source,
        mask,
        width=search.beam,
        max_len=most,
        alpha=search.length_penalty if search.beam > 1 else 0.0,
        n_best=search.n_best,
        on_step=None if tracer is None else tracer.add_step,
        constraints=constraints,
    )
    return found if tracer is None else [[best] for best in tracer.traced([best for [best] in found], source)]


@public
def blank_answer(text: str = "") -> Candidate:
    """Return the answer to a blank text: an empty text with probability 1, without a search.

    >>> str(blank_answer())
    ''
    """
    return Candidate(text=text, tokens=[], log_probability=0.0, score=0.0, finished=True)


def candidates(hypotheses: Sequence[Hypothesis], vocabulary: Vocabulary) -> list[Candidate]:
    return [Candidate(text=vocabulary.decode(hypothesis.tokens), **vars(hypothesis)) for hypothesis in hypotheses]

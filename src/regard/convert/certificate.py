"""The certificate of a conversion: the same sentences through both programs, and by how much they differ.

Both are fed the translation that greedy search finds here (teacher forcing), so that every step is compared on
the same prefix: logits where a program gives them, else the log-probabilities of the tokens; and the weights of
every head, (B, H, Tq, Tk) each. Then both translate by themselves, greedily and with a beam. What a program
cannot give is None, and `missing` says why.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from regard.attention.recording import record_own
from regard.convert.exportable import Exportable
from regard.data import PAD, PairBatch, collate
from regard.decoding import Search
from regard.decoding.search import longest_answer, search_batch
from regard.errors import InputError
from regard.io.reading import list_files, read_json
from regard.progress import counting_bar, print_status
from regard.result import Result
from regard.version import __version__

SENTENCES = 100
"""Of the run's unseen text, where none are given."""
LIMIT = 1e-4
"""Largest difference of logits, log-probabilities (nats) and weights at which two models count as the same."""
BEAM = 5
TOGETHER = 25
"""Sentences that go through both programs at once."""
NAME = "certificate.json"


class Forced(NamedTuple):
    """What a program makes of a batch whose targets it is fed; steps after a target's end hold anything."""

    log_probabilities: Tensor
    """(B, Tt), natural logarithms, of each token of the targets."""
    logits: Tensor | None = None
    """(B, Tt, V), where the program gives them."""
    weights: Mapping[str, Tensor] | None = None
    """By layer, as `regard.record` names it: (B, H, Tq, Tk), where the program gives them."""


class Opened(Protocol):
    """A converted model in the program that it is for, as the vocabularies here number its tokens."""

    @property
    def program(self) -> str:
        """Its package's name."""

    @property
    def missing(self) -> Mapping[str, str]:
        """What of a certificate the program cannot give, and why."""

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Return what the program's own tokenizer makes of texts, without the end of sequence."""

    def force(self, batch: PairBatch) -> Forced:
        """Feed a batch's targets."""

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Answer sources (B, Ts) with at most about `most` tokens, without the end; no length penalty."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Certificate(Result):
    """What a conversion was found to keep; shares from 0 to 1."""

    program: str
    sentences: int
    tokens: int
    """Target tokens that were compared, with the ends of sequence."""
    same_tokens: float
    """Share of sentences that both cut into the same tokens."""
    log_probabilities: float
    """Largest difference of a token's, in nats."""
    logits: float | None
    """Largest difference."""
    weights: float | None
    """Largest difference, over all layers, heads, queries and keys."""
    same_greedy: float
    """Share of sentences that both translate alike by greedy search."""
    same_beam: float
    """The same with a beam."""
    beam: int = BEAM
    limit: float = LIMIT
    missing: dict[str, str]
    """What is None, and why."""
    versions: dict[str, str]
    hashes: dict[str, str]
    """SHA-256 of the run's parameters and of every file that was written."""

    def check(self) -> None:
        """Raise `InputError` where the two are not the same model."""
        if self.same_tokens < 1:
            raise InputError(
                f"{self.program} cuts {1 - self.same_tokens:.0%} of {self.sentences} sentences into other tokens "
                f"than the run does: nothing was written; this vocabulary cannot be handed to it"
            )
        for name in ("log_probabilities", "logits", "weights"):
            found = getattr(self, name)
            if found is not None and not found <= self.limit:  # NaN too
                raise InputError(
                    f"{name.replace('_', '-')} differ by {found:.2g} in {self.program}, at most {self.limit:g} "
                    f"is taken for the same model: nothing was written; try another version of it"
                )

    def summary(self) -> str:
        """Say how far both are apart."""
        by_name = (("logits", self.logits), ("weights", self.weights))
        figures = [f"{name} within {found:.1g}" for name, found in by_name if found is not None]
        return ", ".join(
            [
                f"{self.sentences} sentences in both programs: "
                f"log-probabilities within {self.log_probabilities:.1g}",
                *figures,
                f"the same translation of {self.same_greedy:.0%} by greedy search, of {self.same_beam:.0%} with "
                f"a beam of {self.beam}",
            ]
        )


def short_enough(run: Exportable, texts: Sequence[str], *, progress: bool = True) -> list[str]:
    """Return texts but for those that are longer than the run takes, and say how many these are.

    Raises `InputError` where none is left.
    """
    most, encode = run.task.longest_source, run.task.source_vocabulary.encode
    found = [text for text in texts if len(encode(text)) <= most]
    if left := len(texts) - len(found):
        told = f"{left:,} of {len(texts):,} sentences have more than {most:,} tokens, the most that are taken"
        if not found:
            raise InputError(f"{told}: give shorter ones with --texts")
        print_status(f"{told}: left out", show=progress)
    if not found:
        raise InputError("there is no sentence to compare both programs on: give some with --texts")
    return found


@torch.inference_mode()
def certify(
    run: Exportable, other: Opened, texts: Sequence[str], folder: Path, *, progress: bool = True
) -> Certificate:
    """Run texts, at least one, through the run and the converted model in `folder`, and return what was found."""
    texts, count, found = sorted(texts, key=len), len(texts), []
    batches = range(0, count, TOGETHER)
    with counting_bar(f"Comparing with {other.program}", 0, len(batches), show=progress) as one_more:
        for begin in batches:
            found.append(_compare(run, other, texts[begin : begin + TOGETHER]))
            one_more()
    return Certificate(
        program=other.program,
        sentences=count,
        tokens=sum(each.tokens for each in found),
        same_tokens=sum(each.same_tokens for each in found) / count,
        log_probabilities=_largest([each.log_probabilities for each in found]),
        logits=None if "logits" in other.missing else _largest([each.logits for each in found]),
        weights=None if "weights" in other.missing else _largest([each.weights for each in found]),
        same_greedy=sum(each.same_greedy for each in found) / count,
        same_beam=sum(each.same_beam for each in found) / count,
        missing=dict(other.missing),
        versions={name: version(name) for name in ("torch", other.program)} | {"regard": __version__},
        hashes={f"run/{path.name}": _hash(path) for path in (run.folder / "model.safetensors",) if path.is_file()}
        | {path.name: _hash(path) for path in list_files(folder)},
    )


def read_certificate(folder: Path) -> Certificate:
    """Return the certificate of a converted model; raises `InputError` where there is none, or it is damaged."""
    return read_json(folder / NAME, Certificate, "convert the run anew")


def is_as_certified(folder: Path) -> bool:
    """Whether the files of a converted model are those that its certificate names."""
    try:
        hashes = read_certificate(folder).hashes
    except InputError:
        return False
    known = {name: digest for name, digest in hashes.items() if not name.startswith("run/")}
    return known == {path.name: _hash(path) for path in list_files(folder) if path.name != NAME}


class _Found(NamedTuple):
    """Of one batch: counts of sentences and tokens, and largest differences."""

    tokens: int
    same_tokens: int
    same_greedy: int
    same_beam: int
    log_probabilities: float
    logits: float
    weights: float


def _compare(run: Exportable, other: Opened, texts: Sequence[str]) -> _Found:
    source_ids = [run.task.source_vocabulary.encode(text) for text in texts]
    source = collate(source_ids)
    most = max(longest_answer(each, run.task.longest_target) for each in source_ids)
    here = source.to(next(run.model.parameters()).device)
    same, ours = [], []
    for beam in (1, BEAM):
        # One limit for all of a batch, as the other programs have it.
        found = search_batch(run.model, here, Search(beam=beam), most=most)
        ours.append([best.tokens for best, *_ in found])
        theirs = other.translate(source, beam=beam, most=most)
        # Programs do not count the end alike: answers that do not end are compared as far as both go.
        cut = zip(ours[-1], theirs, strict=True)
        same.append(sum(one[: most - 1] == another[: most - 1] for one, another in cut))
    batch = PairBatch(source, collate(ours[0]))
    ours_forced, there = _force(run, batch), other.force(batch)
    steps = batch.target != PAD
    logits = there.logits if there.logits is None else _apart(ours_forced.logits, there.logits, steps[..., None])
    weights = None
    if there.weights is not None:
        assert ours_forced.weights is not None and ours_forced.weights.keys() == there.weights.keys()
        weights = _largest(
            [
                _apart(each, there.weights[name], _rows(name, batch)[:, None, :, None])
                for name, each in ours_forced.weights.items()
            ]
        )
    return _Found(
        tokens=int(steps.sum()),
        same_tokens=sum(one == another for one, another in zip(source_ids, other.read(texts), strict=True)),
        same_greedy=same[0],
        same_beam=same[1],
        log_probabilities=_apart(ours_forced.log_probabilities, there.log_probabilities, steps),
        logits=0.0 if logits is None else float(logits),
        weights=0.0 if weights is None else weights,
    )


def _force(run: Exportable, batch: PairBatch) -> Forced:
    there = batch.to(next(run.model.parameters()).device)
    with record_own(run.model) as records:
        logits = run.model(there.source, there.source_mask, there.target_in).cpu()
    weights = {name: each.weights.cpu() for name, each in records.items()}
    return Forced(token_log_probabilities(logits, batch), logits, weights)


def token_log_probabilities(logits: Tensor, batch: PairBatch) -> Tensor:
    """Return those of a batch's target tokens, (B, Tt), of logits (B, Tt, V)."""
    return logits.log_softmax(-1).gather(2, batch.target[..., None]).squeeze(-1)


def _rows(layer: str, batch: PairBatch) -> Tensor:
    """Return where a layer's queries are steps of a sentence, (B, Tq)."""
    return batch.source_mask if layer.startswith("encoder") else batch.target != PAD


def _apart(one: Tensor | None, other: Tensor, there: Tensor) -> float:
    """Return the largest difference where `there` is True; NaN where one is."""
    assert one is not None
    return float(torch.where(there, (one - other).abs(), 0.0).max())


def _largest(found: Sequence[float]) -> float:
    return float(torch.tensor(found, dtype=torch.float64).max())  # NaN where one is, unlike Python's


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

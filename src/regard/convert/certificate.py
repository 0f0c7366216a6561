"""The certificate of a conversion: the largest differences between the results of two programs on the same
sentences.

Both models receive Regard's greedy translation as a forced target, so that each step is compared on the same
prefix. The comparison covers log-probabilities of the tokens, logits, and the attention weights of every head,
(B, H, Tq, Tk). Then both programs translate without forced targets, by greedy search and by beam search. A
value that a program does not provide is None, and `missing` gives the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention.recording import record_own
from regard.convert.conversion import ConvertedModel, ForcedOutput
from regard.convert.exportable import Exportable
from regard.data.batch import PairBatch, collate
from regard.data.vocabulary import PAD
from regard.decoding.translation import Search, longest_answer, search_batch
from regard.errors import InputError, plural
from regard.io.reading import list_files, read_json
from regard.progress import counting_bar, print_status
from regard.result import Result
from regard.training.run_folder import file_digest
from regard.version import __version__

SENTENCES = 100
"""Default number of unseen sentences on which both programs are compared."""
MAX_DIFFERENCE = 1e-4
"""Largest accepted difference of weights, and of logits and log-probabilities (nats) as a fraction of the largest
logit, or of 1 if all logits are smaller: rounding errors grow with the values."""
MASKED = 1e4
"""Absolute value from which logits are those of forbidden tokens, which do not count as the largest logit."""
BEAM = 5
BATCH_SIZE = 25
"""Number of sentences per batch."""
CERTIFICATE_NAME = "certificate.json"
DIFFERENCES = ("log_probabilities", "logits", "weights")
"""Fields that contain a maximum difference."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Certificate(Result):
    """Measured agreement of a run and its converted model; fractions are from 0 to 1."""

    program: str
    sentences: int
    tokens: int
    """Number of compared target tokens, including the end symbols."""
    same_tokens: float
    """Fraction of sentences with the same tokens in both programs."""
    log_probabilities: float
    """Largest difference of the log-probability of a token, in nats."""
    logits: float | None
    """Largest difference."""
    weights: float | None
    """Largest difference, over all layers, heads, queries and keys."""
    same_greedy: float
    """Fraction of sentences with the same greedy translation."""
    same_beam: float | None
    """Fraction of sentences with the same translation by beam search."""
    continuation: int | None = None
    """Number of tokens of each continuation by a language model; None for translations."""
    beam: int = BEAM
    limit: float = MAX_DIFFERENCE
    """Largest accepted difference of logits and log-probabilities."""
    largest_logit: float | None = None
    """Largest absolute value of the run's logits; None in certificates of earlier versions."""
    missing: dict[str, str]
    """The reason for each field that is None."""
    versions: dict[str, str]
    hashes: dict[str, str]
    """SHA-256 of the run's parameters and of every written file."""

    def check(self) -> None:
        """Raise `InputError` if the two models differ by more than `limit`."""
        if self.same_tokens < 1:
            raise InputError(
                f"{self.program} tokenizes {1 - self.same_tokens:.0%} of {plural(self.sentences, 'sentence')} "
                f"differently: nothing was written, because the program does not support this vocabulary"
            )
        for name in DIFFERENCES:
            difference = getattr(self, name)
            limit = MAX_DIFFERENCE if name == "weights" else self.limit
            if difference is not None and not difference <= limit:  # also true for NaN
                size = "" if name == "weights" else self._size
                raise InputError(
                    f"{name.replace('_', '-')} differ by {difference:.2g} in {self.program}, more than the "
                    f"limit of {limit:.2g}{size}: nothing was written; try another version of this program"
                )

    @property
    def _size(self) -> str:
        size = self.largest_logit
        return "" if size is None or size <= 1 else f", {MAX_DIFFERENCE:g} of the largest logit, {size:.3g}"

    def summary(self) -> str:
        values = {name.replace("_", "-"): getattr(self, name) for name in DIFFERENCES}
        figures = ", ".join(f"{name} within {value:.1g}" for name, value in values.items() if value is not None)
        figures += f" (limit {self.limit:.2g}{self._size})"
        if self.same_beam is None:
            return (
                f"compared on {self.sentences} prompts in both programs: {figures}; the same continuation by "
                f"{self.continuation} tokens for {self.same_greedy:.0%} by greedy search"
            )
        return (
            f"compared on {plural(self.sentences, 'sentence')} in both programs: {figures}; the same translation "
            f"for {self.same_greedy:.0%} by greedy search, and {self.same_beam:.0%} with a beam of {self.beam}"
        )


def select_sentences(run: Exportable, texts: Sequence[str], *, progress: bool = True) -> list[str]:
    """Return the texts that are short enough for the run, and print how many are skipped.

    Raises `InputError` if no text is short enough.
    """
    most, encode = run.task.longest_source, run.task.source_vocabulary.encode
    selected = [text for text in texts if len(encode(text)) <= most]
    if skipped := len(texts) - len(selected):
        reason = f"{skipped:,} of {len(texts):,} sentences have more than {most:,} tokens, the maximum"
        if not selected:
            raise InputError(f"{reason}: give shorter sentences with --examples")
        print_status(f"{reason}: skipped", show=progress)
    if not selected:
        raise InputError(
            "there are no sentences on which to compare both programs: give sentences with --examples"
        )
    return selected


@torch.inference_mode()
def certify(
    run: Exportable, other: ConvertedModel, texts: Sequence[str], folder: Path, *, progress: bool = True
) -> Certificate:
    """Compare a run with its converted model in `folder` on `texts`, at least one, and return the certificate."""
    texts, results = sorted(texts, key=len), list[_BatchComparison]()
    batches = range(0, len(texts), BATCH_SIZE)
    with counting_bar(f"Comparing with {other.program}", 0, len(batches), show=progress) as advance:
        for begin in batches:
            results.append(_compare(run, other, texts[begin : begin + BATCH_SIZE]))
            advance()
    sums, differences = zip(*results, strict=True)
    tokens, *same = map(sum, zip(*sums, strict=True))
    measured: dict[str, Any] = {
        name: None if name in other.missing else largest([batch[name] for batch in differences])
        for name in DIFFERENCES
    }
    same_tokens, same_greedy, same_beam = (count / len(texts) for count in same)
    return make_certificate(
        run.folder,
        other.program,
        folder,
        sentences=len(texts),
        tokens=tokens,
        same_tokens=same_tokens,
        same_greedy=same_greedy,
        same_beam=same_beam,
        largest_logit=largest([batch["largest_logit"] for batch in differences]),
        **measured,
        missing=dict(other.missing),
    )


def make_certificate(
    run: Path, program: str, folder: Path, *, largest_logit: float, **fields: Any
) -> Certificate:
    """Return a certificate with `fields`, the limit for `largest_logit`, the versions of the programs, and the
    hashes of the model in the folder `run` and of all files in `folder`."""
    files = [run / "model.safetensors"] if (run / "model.safetensors").is_file() else []
    return Certificate(
        program=program,
        largest_logit=largest_logit,
        limit=MAX_DIFFERENCE * max(1.0, largest_logit),
        versions={name: version(name) for name in ("torch", program)} | {"regard": __version__},
        hashes={f"run/{path.name}": file_digest(path) for path in files}
        | {path.name: file_digest(path) for path in list_files(folder)},
        **fields,
    )


def read_certificate(folder: Path) -> Certificate:
    """Read the certificate of a converted model; raises `InputError` if the certificate is missing or damaged."""
    return read_json(folder / CERTIFICATE_NAME, Certificate, "convert the run again")


def matches_certificate(folder: Path) -> bool:
    """Return whether the files of a converted model match the hashes in its certificate."""
    try:
        hashes = read_certificate(folder).hashes
    except InputError:
        return False
    known = {name: digest for name, digest in hashes.items() if not name.startswith("run/")}
    return known == {path.name: file_digest(path) for path in list_files(folder) if path.name != CERTIFICATE_NAME}


_BatchComparison = tuple[tuple[int, ...], dict[str, float]]
"""Differences for one batch, the number of its target tokens, and the numbers of its sentences with equal tokens,
with equal greedy translations, and with equal translations by beam search."""


def _compare(run: Exportable, other: ConvertedModel, texts: Sequence[str]) -> _BatchComparison:
    source_ids = [run.task.source_vocabulary.encode(text) for text in texts]
    source = collate(source_ids)
    most = max(longest_answer(tokens, run.task.longest_target) for tokens in source_ids)
    here = source.to(next(run.model.parameters()).device)
    same, ours = [count_equal(source_ids, other.read(texts))], []
    for beam in (1, BEAM):
        # Other programs have one length limit per batch, so the run gets the same limit.
        candidates = search_batch(run.model, here, Search(beam=beam), most=most)
        ours.append([best.tokens for best, *_ in candidates])
        theirs = other.translate(source, beam=beam, most=most)
        # Programs count the end symbol differently, so only the first `most - 1` tokens of unfinished answers
        # are compared.
        same.append(count_equal(*([row[: most - 1] for row in rows] for rows in (ours[-1], theirs))))
    batch = PairBatch(source, collate(ours[0]))
    forced, external = _force(run, batch), other.force(batch)
    steps = batch.target != PAD
    assert forced.logits is not None
    differences = {
        "log_probabilities": _difference(forced.log_probabilities, external.log_probabilities, steps),
        "largest_logit": largest_size(forced.logits[steps]),
    }
    if external.logits is not None:
        differences["logits"] = _difference(forced.logits, external.logits, steps[..., None])
    if external.weights is not None:
        assert forced.weights is not None and forced.weights.keys() == external.weights.keys()
        differences["weights"] = largest(
            [
                _difference(weights, external.weights[name], _query_mask(name, batch)[:, None, :, None])
                for name, weights in forced.weights.items()
            ]
        )
    return (int(steps.sum()), *same), differences


def count_equal(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> int:
    """Return the number of sentences with the same tokens in both programs."""
    return sum(mine == yours for mine, yours in zip(ours, theirs, strict=True))


def _force(run: Exportable, batch: PairBatch) -> ForcedOutput:
    moved = batch.to(next(run.model.parameters()).device)
    with record_own(run.model) as records:
        logits = run.model(moved.source, moved.source_mask, moved.target_in).cpu()
    weights = {name: layer.weights.cpu() for name, layer in records.items()}
    return ForcedOutput(token_log_probabilities(logits, batch), logits, weights)


def token_log_probabilities(logits: Tensor, batch: PairBatch) -> Tensor:
    """Return the log-probabilities (B, Tt) of the target tokens of a batch, from logits (B, Tt, V)."""
    return logits.log_softmax(-1).gather(2, batch.target[..., None]).squeeze(-1)


def _query_mask(layer: str, batch: PairBatch) -> Tensor:
    """Return the mask (B, Tq) of a layer's queries that are not padding."""
    return batch.source_mask if layer.startswith("encoder") else batch.target != PAD


def _difference(ours: Tensor | None, theirs: Tensor, mask: Tensor) -> float:
    """Return the largest absolute difference where `mask` is True; NaN if a value is NaN."""
    assert ours is not None
    return float(torch.where(mask, (ours - theirs).abs(), 0.0).max())


def largest_size(logits: Tensor) -> float:
    """Return the largest absolute value of logits, without those of forbidden tokens."""
    return float(logits.abs().masked_fill(logits.abs() >= MASKED, 0.0).max())


def largest(values: Sequence[float]) -> float:
    """Return the largest value; NaN if a value is NaN."""
    return float(torch.tensor(values, dtype=torch.float64).max())  # Python's max may skip NaN

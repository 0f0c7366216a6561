"""Train a small model with a mechanism on a probe, and measure it, with one thread and seeded streams. Data depend on
the probe and the seed only, and equal parameters have the same initial values for all mechanisms."""

import dataclasses
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from regard.attention.interventions import record_own
from regard.errors import MachineError
from regard.evaluation.accuracy import output_losses
from regard.io import is_file, json_digest, make_folder, read_json, refuse_links, write_json
from regard.machine import one_thread
from regard.models.decoder_only import DecoderOnly
from regard.progress import counting_bar, print_status
from regard.streams import derive_seed, make_generator
from regard.sweep.backends import Backend, Local, say_reused
from regard.tasks.batch import TokenBatch
from regard.tasks.tokens import TokenTask
from regard.training.checkpoint import make_optimizer
from regard.training.config import Recipe
from regard.training.trust_code import code_digests
from regard_lab.cards.probes import PROBES, CardProbe

BASELINE = "softmax"  # The mechanism with which all others are compared: scaled dot product, softmax, learned positions
CHUNK = 100  # Number of batches that are drawn in one call, to save time
WARMUP = 0.1
CLIP = 1.0


# Where the weight of each head goes: to relevant inputs, to the first token, and how widely it spreads. Weights
# of some mechanisms are negative, or do not sum to 1. All shares therefore use absolute weights, divided by the
# sum of the absolute weights of the row.

FIRST_ROW = 0.5  # Share on the first token is measured in the rows from this fraction of the sequence on


@dataclass(frozen=True, kw_only=True)
class HeadShares:
    """Means over rows for each layer and head: [layer][head]."""

    relevant: list[list[float]] | None
    """Share of the absolute weight on inputs that the output depends on; None if they are not known."""
    first: list[list[float]]  # Share of the absolute weight on the first token, in the second half of each sequence
    entropy: list[list[float]]  # Entropy of the shares in nats, in rows with an output
    total: list[list[float]]  # Sum of the absolute weights of a row, in rows with an output: 1 for softmax
    first_weight: list[list[float]] | None = None
    """Absolute weight on the first token, not divided by the row's sum; None in results of earlier versions."""


def uniform_first(length: int) -> float:
    """Return the share on the first token of uniform attention, in the second half of a sequence of `length` tokens.

    >>> uniform_first(2)
    0.5
    """
    return statistics.fmean(1 / (row + 1) for row in range(int(FIRST_ROW * length), length))


def average_heads(heads: Sequence[Sequence[float]]) -> float:
    return statistics.fmean(value for layer in heads for value in layer)


def measure_shares(model: DecoderOnly, task: TokenTask, batch: TokenBatch) -> tuple[Tensor, HeadShares]:
    """Return the logits (B, T, V) of a batch without padding, and the shares of each head."""
    relevant = task.relevance(batch.inputs) if task.knows_relevance else None
    with record_own(model) as records:
        logits = model(batch.inputs, None)
    rows = batch.is_output if relevant is None else batch.is_output & relevant.any(-1)
    late = torch.zeros_like(rows)
    late[:, int(FIRST_ROW * rows.shape[1]) :] = True
    found: dict[str, Any] = defaultdict(list)
    for name in model.cross_layers:
        weights = records[name].weights.double().abs()
        sums = weights.sum(-1)
        shares = weights / sums.clamp(min=torch.finfo(torch.float32).tiny).unsqueeze(-1)
        kept = sums > 0  # rows without any weight have no shares
        if relevant is not None:
            found["relevant"].append(_mean((shares * relevant.unsqueeze(1)).sum(-1), rows, kept))
        found["first"].append(_mean(shares[..., 0], late, kept))
        found["first_weight"].append(_mean(weights[..., 0], late, torch.ones_like(kept)))
        found["entropy"].append(_mean(torch.special.entr(shares).sum(-1), rows, kept))
        found["total"].append(_mean(sums, rows, torch.ones_like(kept)))
    return logits, HeadShares(relevant=found.pop("relevant", None), **found)


def _mean(values: Tensor, rows: Tensor, kept: Tensor) -> list[float]:
    counted = rows.unsqueeze(1) & kept
    sums, counts = (values * counted).sum((0, 2)), counted.sum((0, 2)).clamp(min=1)
    return [round(number, 6) for number in (sums / counts).tolist()]


@dataclass(frozen=True, kw_only=True)
class ProbeMeasures:
    """Measurements of a trained model on one test."""

    score: float
    """Fraction of correct outputs, or the explained fraction of the variance (1: perfect, 0: zeros)."""
    loss: float  # Mean loss of an output: nats, or half the squared error of real outputs
    shares: HeadShares  # Where the weight of each head goes


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Measurements of one training run."""

    parameters: int  # Number of parameters
    seconds: float  # CPU time of the training in seconds
    train_loss: float  # Mean loss of the last tenth of the training steps
    normalized: bool  # Whether each row of weights sums to 1
    tests: dict[str, ProbeMeasures] = field(default_factory=dict)
    """Results by the name of the test; the name "" is the test at the length of training."""


def train_probe(mechanism: str, probe: CardProbe, seed: int, *, steps: int | None = None) -> ProbeResult:
    """Train a model with a mechanism (a text of `Mechanism`) on a probe, and return its measurements. `steps`: instead
    of the probe's. A repeated call returns the same numbers, except for `seconds`."""
    with one_thread():  # sums depend on the number of threads
        task = probe.build_task()
        model = build_model(mechanism, probe, task, seed)
        began = time.process_time()
        loss = _train(model, probe, task, seed, probe.steps if steps is None else steps)
        seconds = time.process_time() - began
        tests = {name: _test(model, probe, task, seed, length) for name, length in probe.tests.items()}
    return ProbeResult(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        seconds=round(seconds, 3),
        train_loss=loss,
        normalized=all(layer.self_attention.normalized for layer in model.decoder.layers),  # type: ignore[union-attr]
        tests=tests,
    )


def build_model(mechanism: str, probe: CardProbe, task: TokenTask, seed: int) -> DecoderOnly:
    """Return the model of a probe, with the initial values of the softmax model where they fit."""
    sizes: dict[str, Any] = dict(task.sizes)
    model, baseline = (_seeded(probe, text, sizes, seed) for text in (mechanism, BASELINE))
    shared, own = baseline.state_dict(), model.state_dict()
    fitting = {name: value for name, value in shared.items() if name in own and own[name].shape == value.shape}
    model.load_state_dict(fitting, strict=False)
    return model


def _seeded(probe: CardProbe, mechanism: str, sizes: dict[str, Any], seed: int) -> DecoderOnly:
    config = probe.build_config(mechanism)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, f"card/{probe.name}/model"))
        return DecoderOnly(config, **sizes)


def _train(model: DecoderOnly, probe: CardProbe, task: TokenTask, seed: int, steps: int) -> float:
    recipe = Recipe(lr=probe.lr, encoder_lr=probe.lr, output_lr=1.0, betas=(0.9, 0.98), warmup=WARMUP, clip=CLIP)
    optimizer = make_optimizer(model.train(), recipe)
    recent: list[float] = []
    for step, batch in enumerate(_batches(probe, task, seed, steps)):
        optimizer.zero_grad()
        loss = mean_loss(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step(probe.lr * recipe.schedule(step, steps))
        if step >= int(0.9 * steps):
            recent.append(loss.item())
    return math.fsum(recent) / len(recent)


def mean_loss(model: DecoderOnly, batch: TokenBatch) -> Tensor:
    """Return the mean loss of an output: nats, or half the squared error of real outputs."""
    losses, _ = output_losses(model(batch.inputs, batch.mask), batch.targets, batch.is_output)
    return losses.sum() / batch.tokens


def _batches(probe: CardProbe, task: TokenTask, seed: int, steps: int) -> Iterator[TokenBatch]:
    generator = make_generator(seed, f"card/{probe.name}/train")
    for begin in range(0, steps, CHUNK):
        count = min(CHUNK, steps - begin)
        drawn = task.sample(probe.batch * count, generator)
        masks = (None,) * count if drawn.mask is None else drawn.mask.split(probe.batch)
        parts = zip(drawn.inputs.split(probe.batch), drawn.targets.split(probe.batch), masks, strict=True)
        yield from (TokenBatch(*part) for part in parts)


@torch.no_grad()
def _test(model: DecoderOnly, probe: CardProbe, task: TokenTask, seed: int, length: int | None) -> ProbeMeasures:
    generator = make_generator(seed, f"card/{probe.name}/test/{length}")
    batch = task.sample(probe.test_sequences, generator, sample_len=length, unseen=True)
    logits, shares = measure_shares(model.eval(), task, batch)
    losses, correct = output_losses(logits, batch.targets, batch.is_output)
    loss = float(losses.double().sum()) / batch.tokens
    if batch.targets.is_floating_point():
        variance = float(batch.targets[batch.is_output].double().square().mean())
        score = 1 - 2 * loss / variance
    else:
        score = float(correct.sum()) / batch.tokens
    return ProbeMeasures(score=_rounded(score), loss=_rounded(loss), shares=shares)


def _rounded(value: float | Tensor) -> float:
    return round(float(value), 6)


# The cells of the cards: one mechanism, probe and seed each, stored in one JSON file.
#
#     DIR/MECHANISM/PROBE-seed-N-DIGEST.json
#
# The digest covers all settings of the probe, and the source code of custom parts. Cells whose file exists are
# not trained again.

LARGEST = 1 << 20  # Maximum size of a file, in bytes
HERE = Local()
Results = Mapping[tuple[str, str], Sequence[ProbeResult]]
"""For each mechanism and probe, one result per seed, in the order of the seeds."""


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a file."""

    mechanism: str
    probe: str
    seed: int
    settings: dict[str, Any]
    result: ProbeResult


@dataclass(frozen=True)
class CardCell:
    """A training run to measure."""

    mechanism: str
    probe: str
    seed: int
    folder: Path  # Folder of all cards
    steps: int | None = None  # Number of training steps instead of the probe's own

    @property
    def path(self) -> Path:
        digest = PROBES[self.probe].digest(self.steps) + code_digest(self.mechanism)
        return self.folder / file_name(self.mechanism) / f"{self.probe}-seed-{self.seed}-{digest}.json"

    def read(self) -> ProbeResult | None:
        if not is_file(self.path):
            return None
        remedy = "delete it to measure again"
        return read_json(self.path, _Stored, remedy, most=LARGEST, finite=False).result


def measure_cell(cell: CardCell) -> ProbeResult:
    probe = PROBES[cell.probe]
    result = train_probe(cell.mechanism, probe, cell.seed, steps=cell.steps)
    refuse_links(cell.path.parent, below=cell.folder)
    make_folder(cell.path.parent)
    stored = _Stored(cell.mechanism, cell.probe, cell.seed, probe.settings(cell.steps), result)
    write_json(cell.path, msgspec.to_builtins(stored), indent=1)
    return result


@dataclass(frozen=True)
class CardJob:
    """Cells of one mechanism and probe, which a backend measures one after another."""

    cells: tuple[CardCell, ...]

    @property
    def folder(self) -> Path:
        return self.cells[0].path.parent / self.cells[0].probe

    @property
    def label(self) -> str:
        return f"{self.cells[0].mechanism}, {self.cells[0].probe}"

    @property
    def stored(self) -> dict[str, Any]:
        return {"model": {"attention": self.cells[0].mechanism}}

    @property
    def saved_state(self) -> str:
        return f"seed {sum(is_file(cell.path) for cell in self.cells)} of {len(self.cells)}"

    def absolute(self) -> "CardJob":
        folder = self.cells[0].folder.absolute()
        return CardJob(tuple(dataclasses.replace(cell, folder=folder) for cell in self.cells))

    def measure(self, *, trust_code: bool = False) -> list[ProbeResult]:
        """Measure the cells without a result, and return the results of all cells."""
        del trust_code  # the name of a mechanism counts as trust
        return [cell.read() or measure_cell(cell) for cell in self.cells]


def measure_cells(
    pairs: Iterable[tuple[str, str]], seeds: int, folder: Path, *, steps: int | None = None, on: Backend = HERE
) -> Results:
    """Measure all seeds of pairs of a mechanism and a probe. `on`: the backend. Stored results are reused, so an
    interrupted call continues where it stopped."""
    pairs = list(dict.fromkeys(pairs))
    for mechanism, probe in dict(reversed(pairs)).items():
        build_model(mechanism, PROBES[probe], PROBES[probe].build_task(), seed=0)  # raises if a part does not fit
    cells = [CardCell(*pair, seed, folder, steps) for pair in pairs for seed in range(seeds)]
    results = {cell: cell.read() for cell in cells}
    missing = [cell for cell in cells if results[cell] is None]
    say_reused(len(cells) - len(missing), len(cells), folder, show=True)
    if missing:
        make_folder(folder)
        with counting_bar("card", len(cells) - len(missing), len(cells), show=True) as advance:
            # On a cluster, where a job takes seconds to start, one job has all cells of a mechanism and a probe.
            groups: dict[Any, list[CardCell]] = {}
            for cell in missing:
                groups.setdefault(cell if isinstance(on, Local) else (cell.mechanism, cell.probe), []).append(cell)
            jobs = [CardJob(tuple(group)) for group in groups.values()]
            for job, measured in on.run(jobs, partial(print_status, show=True)):
                for cell, result in zip(job.cells, measured, strict=True):
                    results[cell] = result
                    advance()
    by_pair: dict[tuple[str, str], list[ProbeResult]] = {}
    for cell, known in results.items():
        if known is None:
            raise MachineError(f"no result of {cell.mechanism} on {cell.probe}: repeat the command")
        by_pair.setdefault((cell.mechanism, cell.probe), []).append(known)
    return by_pair


def file_name(mechanism: str) -> str:
    """Return a file name for the text of a mechanism.

    >>> file_name("window:8,sink")
    'window-8+sink'
    """
    plain = mechanism.replace(",", "+").replace(":", "-")
    return "".join(letter if letter.isalnum() or letter in "+-_." else "-" for letter in plain)


def code_digest(mechanism: str) -> str:
    """Return a digest of the code of custom parts with a hyphen before it; empty without custom parts."""
    digests = code_digests({"options": {"attention": mechanism}})
    return f"-{json_digest(digests)[:12]}" if digests else ""

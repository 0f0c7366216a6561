"""The cells of the cards: one mechanism, probe and seed each, stored in one JSON file.

    DIR/MECHANISM/PROBE-seed-N-DIGEST.json

The digest covers all settings of the probe, and the source code of custom parts. Cells whose file exists are
not trained again.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from regard.errors import MachineError
from regard.io import is_file, json_digest, make_folder, read_json, refuse_links, write_json
from regard.progress import counting_bar, print_status
from regard.sweep.backends import Backend, Local, say_reused
from regard.training.trust_code import code_digests
from regard_lab.cards.probe_training import ProbeResult, build_model, train_probe
from regard_lab.cards.probes import PROBES

LARGEST = 1 << 20
"""Maximum size of a file, in bytes."""
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
    folder: Path
    """Folder of all cards."""
    steps: int | None = None
    """Number of training steps instead of the probe's own."""

    @property
    def path(self) -> Path:
        digest = PROBES[self.probe].digest(self.steps) + code_digest(self.mechanism)
        return self.folder / file_name(self.mechanism) / f"{self.probe}-seed-{self.seed}-{digest}.json"

    def read(self) -> ProbeResult | None:
        """Return the stored result, or None. Raises `InputError` for a damaged file."""
        if not is_file(self.path):
            return None
        remedy = "delete it to measure again"
        return read_json(self.path, _Stored, remedy, most=LARGEST, finite=False).result


def measure_cell(cell: CardCell) -> ProbeResult:
    """Train and measure a cell, and store the result."""
    probe = PROBES[cell.probe]
    result = train_probe(cell.mechanism, probe, cell.seed, steps=cell.steps)
    refuse_links(cell.path.parent, below=cell.folder)
    make_folder(cell.path.parent)
    content = {
        "mechanism": cell.mechanism,
        "probe": cell.probe,
        "seed": cell.seed,
        "settings": probe.settings(cell.steps),
        "result": dataclasses.asdict(result),
    }
    write_json(cell.path, content, indent=1)
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
        """Return the same job with an absolute folder."""
        folder = self.cells[0].folder.absolute()
        return CardJob(tuple(dataclasses.replace(cell, folder=folder) for cell in self.cells))

    def measure(self, *, trust_code: bool = False) -> list[ProbeResult]:
        """Measure the cells without a result, and return the results of all cells."""
        del trust_code  # the name of a mechanism counts as trust
        return [cell.read() or measure_cell(cell) for cell in self.cells]


def measure_cells(
    pairs: Iterable[tuple[str, str]], seeds: int, folder: Path, *, steps: int | None = None, on: Backend = HERE
) -> Results:
    """Measure all seeds of pairs of a mechanism and a probe. `on`: the backend.

    Stored results are reused, so an interrupted call continues where it stopped. Raises `InputError` before any
    training for a mechanism that does not fit, and `MachineError` if a process was terminated.
    """
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
            for job, measured in on.run(_make_jobs(missing, on), partial(print_status, show=True)):
                for cell, result in zip(job.cells, measured, strict=True):
                    results[cell] = result
                    advance()
    by_pair: dict[tuple[str, str], list[ProbeResult]] = {}
    for cell, known in results.items():
        if known is None:
            raise MachineError(f"no result of {cell.mechanism} on {cell.probe}: repeat the command")
        by_pair.setdefault((cell.mechanism, cell.probe), []).append(known)
    return by_pair


def _make_jobs(cells: Sequence[CardCell], on: Backend) -> list[CardJob]:
    """Return one job for each cell on this machine. On a cluster, where a job takes seconds to start, one job has
    all cells of a mechanism and a probe."""
    groups: dict[Any, list[CardCell]] = {}
    for cell in cells:
        key = cell if isinstance(on, Local) else (cell.mechanism, cell.probe)
        groups.setdefault(key, []).append(cell)
    return [CardJob(tuple(group)) for group in groups.values()]


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

"""The cells of the bench: one method on one model with one seed, stored in one JSON file.

    DIR/results/KIND/MODEL/METHOD-seed-N-DIGEST.json

The digest covers the parameters of the model, the known answer, the source code of the method and of the scores,
the number of samples and the version of Regard. Cells whose file exists are not measured again.
"""

import hashlib
import inspect
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from regard.errors import InputError
from regard.interpret.attribution.trial import LEVELS, Background
from regard.io.reading import is_file, read_json
from regard.io.writing import make_folder, refuse_links, write_json
from regard.plugins import PluginError
from regard.training.tensor_file import digest_tensors
from regard.version import __version__
from regard_lab.bench import rankings
from regard_lab.bench.known_models import KnownModel
from regard_lab.bench.methods import ChosenMethod
from regard_lab.bench.rankings import LevelError, Ranking, Subjects, rank_edges, rank_heads, rank_inputs

LARGEST = 1 << 22
"""Maximum size of a file, in bytes."""


class AurocScore(msgspec.Struct, forbid_unknown_fields=True):
    """How well a method ranks for one kind of truth."""

    level: str
    truth: str
    values: list[float]
    """AUROC of each sample for inputs, in the order of the samples; one AUROC for heads and for edges."""
    seconds: float
    """CPU time of the rankings at this level in seconds."""
    worst: dict[str, Any] | None
    """The ranking and the truth of the sample with the lowest AUROC, if the mean is below `FAILURE`."""


class Cell(msgspec.Struct, forbid_unknown_fields=True):
    """The measurements of one method on one model with one seed."""

    method: str
    model: str
    kind: str
    family: str
    seed: int
    samples: int
    scores: list[AurocScore]
    left_out: dict[str, str]
    """Levels that the method cannot rank on this model, with the reason."""


def draw_inputs(known: KnownModel, samples: int) -> Subjects:
    known.subject.model.eval()
    inputs = known.subject.unseen(samples, known.seed, purpose="bench")
    return Subjects(known, inputs, Background(known.subject, seed=known.seed))


def measure_cell(subjects: Subjects, method: ChosenMethod) -> Cell:
    """Measure one method on one model: at each level that the known answer covers and the method supports."""
    measured: list[AurocScore] = []
    left_out: dict[str, str] = {}
    known = subjects.known
    rank = {"inputs": rank_inputs, "heads": rank_heads, "edges": rank_edges}
    for level in LEVELS:
        began = time.process_time()
        try:
            results: Sequence[Ranking] = rank[level](subjects, method)
        except LevelError:
            continue
        except PluginError:  # a user's method that fails is an error, and not a level without scores
            raise
        except InputError as error:
            left_out[level] = str(error)
            continue
        seconds = round(time.process_time() - began, 3)
        measured += [AurocScore(level=level, seconds=seconds, **ranking._asdict()) for ranking in results]
    return Cell(
        method=method.name,
        model=known.name,
        kind=known.kind,
        family=known.family,
        seed=known.seed,
        samples=len(subjects.inputs),
        scores=measured,
        left_out=left_out,
    )


def read_or_measure(subjects: Subjects, method: ChosenMethod, folder: Path) -> Cell:
    """Return the stored cell of a method on a model, or measure and store it. Raises `InputError` for a damaged
    file."""
    path = cell_path(subjects, method, folder)
    if is_file(path):
        return read_json(path, Cell, "delete it to measure again", most=LARGEST, finite=False)
    cell = measure_cell(subjects, method)
    refuse_links(path.parent, below=folder)
    make_folder(path.parent)
    write_json(path, msgspec.to_builtins(cell), indent=1)
    return cell


def cell_path(subjects: Subjects, method: ChosenMethod, folder: Path) -> Path:
    """Return the file of a cell."""
    known, samples = subjects.known, len(subjects.inputs)
    weights = digest_tensors(known.subject.model.state_dict())
    circuit = known.circuit
    answer = None
    if circuit is not None:
        heads = [sorted(truth.items()) for truth in (circuit.needed, circuit.used, circuit.sufficient)]
        answer = [*heads, sorted(circuit.edges)]
    code = [inspect.getsource(rankings)]
    content = "\0".join([__version__, *code, weights, repr(answer), method.digest, str(samples)])
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    name = method.name.replace(":", "-")  # Windows does not permit a colon
    return folder / "results" / known.kind / known.name / f"{name}-seed-{known.seed}-{digest}.json"

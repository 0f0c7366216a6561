"""Files of a training on their way between machines that share no disk: its folder, and code of the user's own.

Both travel as bytes by relative name. Files of a folder stand in the order in which they are to be written, so
that whoever is killed while writing leaves a run to go on with: a state of the training comes last.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from regard.errors import InputError
from regard.io import holding, make_folder, new_folder, write_file
from regard.io.reading import numbered
from regard.plugins import find_own, module_of, use_sent
from regard.runs.train import PREPARED
from regard.sweep.job import MEASURED, Job, Measured, measure
from regard.tasks import use_copy
from regard.training import RunFolder, trust

Files = dict[str, bytes]
Stamps = dict[str, tuple[int, int, int]]
"""By name what tells a file from what stood there before: inode, time of its last change, bytes."""
LARGEST = 1 << 20
"""Bytes of a Python file that travels, at most."""


def pack(folder: Path, before: Mapping[str, tuple[int, int, int]]) -> tuple[Files, Stamps]:
    """Return the files of a job's folder that differ from those of the stamps `before`, and the stamps of all.

    Raises `FileNotFoundError` where one is replaced in the same moment: try again later.
    """
    names = [
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    # States first: whatever else is read after them is at least as new, as a training that goes on needs it.
    names.sort(key=lambda name: ("trainer" not in name.parts, name))
    files, stamps = Files(), Stamps()
    for name in names:
        if name.parts[0] == PREPARED:  # made again from the text
            continue
        found = (folder / name).stat()
        stamps[str(name)] = (found.st_ino, found.st_mtime_ns, found.st_size)
        if before.get(str(name)) != stamps[str(name)]:
            files[str(name)] = (folder / name).read_bytes()
    return dict(reversed(files.items())), stamps


def unpack(files: Files, job: Job) -> None:
    """Write what came back into a job's folder; raises `MachineError` where the disk refuses."""
    run = job.run
    inside = {name: content for name, content in files.items() if name != MEASURED}
    if inside and run.exists():
        _write(inside, job.folder)
        run.forget_older()
    elif inside:
        with new_folder(run.path) as building:
            _write({str(Path(*Path(name).parts[1:])): content for name, content in inside.items()}, building)
    if MEASURED in files:
        write_file(job.folder / MEASURED, files[MEASURED])


def _write(files: Files, folder: Path) -> None:
    for name, content in files.items():
        make_folder((folder / name).parent, below=folder)
        write_file(folder / name, content)


@contextmanager
def claim_run(job: Job) -> Iterator[None]:
    """Keep others from changing a job's run in the block, in which it is trained elsewhere.

    Raises `InputError` where somebody does, or something else is in the way.
    """
    with holding(job.run.path):
        if not job.interrupted() and job.run.path.exists():
            raise InputError(f"{str(job.run.path)!r} exists and is not a run: choose another --savepath")
        trust(job.stored)  # as whoever trains here trusts the code that he names
        yield


@dataclass(frozen=True)
class Code:
    """Python files of a user's own."""

    folders: list[Files]
    """The files of each folder that code is in; that of the task's file comes first."""
    task: tuple[str, str] | None
    """The task's file, and the name of its copy; None for a task of Regard's."""


def collect_code(job: Job) -> Code:
    """Return the code that a job names: the file of its task, and modules or packages of the user's own, with the
    Python files beside them. What is installed does not travel."""
    task = Path(job.stored["on"])
    own = task.suffix == ".py"
    roots: dict[Path, set[Path]] = {task.parent: set()} if own else {}
    for name in [job.stored["kind"], *job.stored["model"].values()]:
        for place in _places(module_of(name) if isinstance(name, str) else None):
            roots.setdefault(place.parent, set()).update(place.rglob("*.py"))
    folders = [
        {
            str(file.relative_to(root)): file.read_bytes()
            for file in sorted({*root.glob("*.py"), *packaged})
            if file.stat().st_size <= LARGEST
        }
        for root, packaged in roots.items()
    ]
    return Code(folders, task=(job.stored["on"], task.name) if own else None)


def _places(module: str | None) -> list[Path]:
    """Return the file of a module, or the folders of the package that it is in; none of what is installed."""
    if module is None or module.partition(".")[0] == "regard":
        return []
    spec = find_own(module.partition(".")[0])
    if spec is None:
        return []
    found = [Path(each).absolute() for each in spec.submodule_search_locations or [spec.origin or ""]]
    return [path for path in found if not {"site-packages", "dist-packages"} & set(path.parts)]


Sent = tuple[list[Path], tuple[str, Path] | None]
"""Folders of code, and the task's file with its copy."""


def write_code(code: Code, place: Path) -> Sent:
    """Write code into folders of `place`; returns these, and the task's file with its copy."""
    folders = [place / f"code-{number}" for number in range(len(code.folders))]
    for files, folder in zip(code.folders, folders, strict=True):
        _write(files, folder)
    return folders, code.task and (code.task[0], folders[0] / code.task[1])


def measure_with_code(sent: Sent, job: Job) -> Measured:
    """Measure a job as `measure` does, with code that was sent here; its sender trusts it."""
    folders, copy = sent
    use_sent(folders)
    if copy is not None:
        use_copy(*copy)
    return measure(job, trust_code=True)


def read_last_step(run: RunFolder) -> int:
    """Return the step that a run goes on from; 0 where there is none."""
    files = numbered(run.path / "trainer")
    return int(files[-1].stem.removeprefix("step-")) if files else 0

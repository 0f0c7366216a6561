"""Transfer the files of a training between machines without a shared disk: its folder, and the user's own code.

Files are sent as bytes by relative name. The files of a folder are sorted in the order of writing, with the
training state last, so that a process that is killed while writing leaves a run that can be resumed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from regard.errors import InputError
from regard.io import hold_lock, make_folder, new_folder, write_file
from regard.io.reading import list_steps
from regard.plugins import add_plugin_folders, find_plugin, plugin_module
from regard.runs.training import PREPARED
from regard.sweep.job import MEASURED, Job, Measured, measure
from regard.tasks import use_task_copy
from regard.training import RunFolder, trust
from regard.training.checkpoint import remove_older_states

Files = dict[str, bytes]
Stamps = dict[str, tuple[int, int, int]]
"""By file name: inode, modification time and size, to detect changes."""
LARGEST = 1 << 20
"""Largest size in bytes of a Python file that is sent."""


def pack(folder: Path, before: Mapping[str, tuple[int, int, int]]) -> tuple[Files, Stamps]:
    """Return the files of a job's folder that changed since the stamps `before`, and the stamps of all files.

    Raises `FileNotFoundError` if a file is replaced at the same moment; the caller should try again later.
    """
    names = [
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    # Read the training states first: all other files are then at least as new, as a resumed training requires.
    names.sort(key=lambda name: ("trainer" not in name.parts, name))
    files, stamps = Files(), Stamps()
    for name in names:
        if name.parts[0] == PREPARED:  # the receiver prepares the text again
            continue
        status = (folder / name).stat()
        stamps[str(name)] = (status.st_ino, status.st_mtime_ns, status.st_size)
        if before.get(str(name)) != stamps[str(name)]:
            files[str(name)] = (folder / name).read_bytes()
    return dict(reversed(files.items())), stamps


def unpack(files: Files, job: Job) -> None:
    """Write received files into a job's folder; raises `MachineError` if they cannot be written."""
    run = job.run
    inside = {name: content for name, content in files.items() if name != MEASURED}
    if inside and run.exists():
        _write(inside, job.folder)
        remove_older_states(run)
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
    """Lock a job's run in the block, while another machine trains it.

    Raises `InputError` if another process holds the lock, or if the path holds something else than a run.
    """
    with hold_lock(job.run.path):
        if not job.interrupted() and job.run.path.exists():
            raise InputError(f"{str(job.run.path)!r} exists and is not a run: choose another --savepath")
        trust(job.stored)  # naming code counts as trust, as for a local training
        yield


@dataclass(frozen=True)
class Code:
    """The user's own Python files."""

    folders: list[Files]
    """The files of each folder with code; the folder of the task's file comes first."""
    task: tuple[str, str] | None
    """The path of the task's file, and the name of its copy; None for a built-in task."""


def collect_code(job: Job) -> Code:
    """Return the code that a job names: the file of its task, and the user's own modules and packages.

    All Python files in the same folders are included. Installed packages are not sent.
    """
    task = Path(job.stored["on"])
    is_file = task.suffix == ".py"
    roots: dict[Path, set[Path]] = {task.parent: set()} if is_file else {}
    for name in [job.stored["kind"], *job.stored["model"].values()]:
        for path in _find_code(plugin_module(name) if isinstance(name, str) else None):
            roots.setdefault(path.parent, set()).update(path.rglob("*.py"))
    folders = [
        {
            str(file.relative_to(root)): file.read_bytes()
            for file in sorted({*root.glob("*.py"), *packaged})
            if file.stat().st_size <= LARGEST
        }
        for root, packaged in roots.items()
    ]
    return Code(folders, task=(job.stored["on"], task.name) if is_file else None)


def _find_code(module: str | None) -> list[Path]:
    """Return the file of a module, or the folders of its package; empty for installed packages."""
    if module is None or module.partition(".")[0] == "regard":
        return []
    spec = find_plugin(module.partition(".")[0])
    if spec is None:
        return []
    paths = [Path(path).absolute() for path in spec.submodule_search_locations or [spec.origin or ""]]
    return [path for path in paths if not {"site-packages", "dist-packages"} & set(path.parts)]


SentCode = tuple[list[Path], tuple[str, Path] | None]
"""The written folders of code, and the path of the task's file with the path of its copy."""


def write_code(code: Code, folder: Path) -> SentCode:
    """Write code into subfolders of `folder`; return these subfolders, and the task's file with its copy."""
    folders = [folder / f"code-{number}" for number in range(len(code.folders))]
    for files, target in zip(code.folders, folders, strict=True):
        _write(files, target)
    return folders, code.task and (code.task[0], folders[0] / code.task[1])


def measure_with_code(sent: SentCode, job: Job) -> Measured:
    """Measure a job with code that a trusted sender transferred to this machine."""
    folders, copy = sent
    add_plugin_folders(folders)
    if copy is not None:
        use_task_copy(*copy)
    return measure(job, trust_code=True)


def read_last_step(run: RunFolder) -> int:
    """Return the step of the last saved training state; 0 without one."""
    files = list_steps(run.path / "trainer")
    return int(files[-1].stem.removeprefix("step-")) if files else 0

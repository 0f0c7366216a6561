"""The site of commands: a folder with small runs of every kind, texts, and odd files.

Each trial leaves the site unchanged: changes are checked and then reverted.
"""

import contextlib
import hashlib
import os
import pkgutil
import shutil
import stat
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import torch

import regard
from tests.faults.children import run
from tests.faults.planted import extra_names, plant
from tests.german import write

Tree = dict[str, tuple[int, ...]]
TINY: dict[str, Any] = {"hidden": 8, "heads": 2, "inner": 8, "enc_layers": 1, "dec_layers": 1}
TRAININGS: dict[str, dict[str, Any]] = {
    "counting": {"hidden": 8, "snapshots": 2},
    "signal2": {"hidden": 8, "heads": 2, "snapshots": 2},
    "recall": {"model": "pooling", "hidden": 8},
    "copy": {"model": "recurrent", "hidden": 8, "embedding": 4, "snapshots": 2},
    "dates": {"model": "transformer", **TINY},
    "translation": {**TINY, "vocab_size": 60, "tokens": 200, "validate_every": 2},
}
"""A training command for each kind of model and run."""
ODD = {"antigravity", "ensurepip", "idlelib", "lib2to3", "this", "tkinter", "turtle", "turtledemo", "__main__"}
"""Modules of the standard library that open a window or run a program."""
LINES = [
    "ABCABC\n3. Mai 1979\nHeute läuft der kleine Hund.\n",
    "Heute läuft der kleine Hund.\tThe small dog runs today.\nABC\tABC\nno tab\n",
    "",
    "\n\n\n",
    "x" * 30_000 + "\n",
    "\ufeffABC\r\nA\u2028B\x00C\n",
]


LATE = (
    *("ctranslate2.specs", "h11._impl", "torch._dynamo", "transformers.models.auto.modeling_auto"),
    *("transformers.models.auto.tokenization_auto", "uvicorn.protocols.http.h11_impl"),
)
"""Lazy imports of commands, if installed."""


class _Missing:
    """Import hook that stores the names of missing top-level modules and never finds a module."""

    names: ClassVar[set[str]] = set()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if path is None:
            self.names.add(name)


def warm_up() -> None:
    """Import all modules that commands may import: forks of this process may have no access to them."""
    sys.meta_path.append(_Missing())
    torch.set_num_threads(1)
    sys.dont_write_bytecode = True
    for module in pkgutil.walk_packages(regard.__path__, "regard."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    for name in sorted(sys.stdlib_module_names - ODD):
        _import_whole(name)
    for name in ("agg", "svg", "pdf"):
        import_module(f"matplotlib.backends.backend_{name}")
    for name in LATE:
        with contextlib.suppress(ImportError):
            import_module(name)


def _import_whole(name: str) -> None:
    """Import a package of the standard library with all its submodules that exist on this machine."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = import_module(name)
        for inside in pkgutil.iter_modules(getattr(module, "__path__", [])):
            if inside.name not in ("__main__", "mbcs", "oem") and not inside.name.startswith("test"):
                _import_whole(f"{name}.{inside.name}")


def make_ground(folder: Path) -> Path:
    """Create the site in `folder` in a child, because a process that has trained cannot be forked safely."""
    ground = folder / "ground"
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    (ground / "text").mkdir(parents=True)
    ended = run(lambda told: _train(ground), folder, patience=300)
    assert ended.status == 0, ended
    lay_out(ground)
    # Missing modules that commands or their dependencies try to import
    plant(ground, {name for name in _Missing.names | extra_names() if find_spec(name) is None})
    for index, text in enumerate(LINES):
        (ground / "text" / f"lines{index}").write_text(text, encoding="utf-8", newline="")
    return ground


def lay_out(folder: Path) -> None:
    """Create the files of `tests.faults.lines.PATHS`."""
    things = folder / "things"
    for name in ("folder", "closed", "folder.png"):
        (things / name).mkdir(parents=True)
    (things / "file").write_text("ABC\n")
    (things / "secret").write_text("ABC\n")
    (things / "bytes").write_bytes(bytes(range(256)) * 4)
    (things / "closed" / "inside").write_text("ABC\n")
    os.mkfifo(things / "pipe")
    for name, target in {
        "link": "file",
        "link.png": "picture.png",
        "dangling": "nowhere",
        "loop": "loop",
        "null": os.devnull,
        "null.png": os.devnull,
    }.items():
        (things / name).symlink_to(target)
    (things / "picture.png").write_bytes(b"not yet")


def close(folder: Path) -> None:
    """Remove the permissions that `tests.faults.lines.PATHS` names."""
    (folder / "things" / "secret").chmod(0o000)
    (folder / "things" / "closed").chmod(0o000)


def _train(ground: Path) -> int:
    """Train all runs, and trigger each lazy import once."""
    from regard.cli import main

    os.chdir(ground)
    text = write(Path("text"))
    for task, flags in TRAININGS.items():
        given = {**flags, **(text if task == "translation" else {"batchsize": 4}), "steps": 4}
        regard.train(task, **given, savepath="models", progress=False)
    return main(["plot", "positions", "--output", "/dev/null/no.png"]) * 0


COMPILED = {"TORCHINDUCTOR_CACHE_DIR": "home/compiled"}
"""Folder of PyTorch's compiled code; PyTorch reads it before a trial changes the user."""


@contextlib.contextmanager
def at_home(folder: Path) -> Iterator[None]:
    """Set the process's home, caches and temporary files to `folder`."""
    for name, inside in {"HOME": "home", "XDG_STATE_HOME": "home/state", "TMPDIR": "tmp", **COMPILED}.items():
        os.environ[name] = str(folder / inside)
    os.environ.pop("DISPLAY", None)
    import tempfile

    tempfile.tempdir = None
    yield


class Site:
    """A copy of the site, restored after each trial."""

    def __init__(self, ground: Path, folder: Path) -> None:
        self.ground, self.folder = ground, folder
        self.at = folder / "site"
        for name in ("home", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.put_back()

    def put_back(self) -> None:
        """Restore the copy."""
        for path in (self.at, self.folder / "tmp"):
            if path.exists():
                _open_up(path)
                shutil.rmtree(path)
        (self.folder / "tmp").mkdir()
        shutil.copytree(self.ground, self.at, symlinks=True, ignore=lambda folder, names: set(names) & {"pipe"})
        os.mkfifo(self.at / "things" / "pipe")
        close(self.at)
        self.before = tree(self.at)
        self.content = content(self.at)

    def changes(self) -> tuple[set[str], set[str]]:
        """Return new, missing and changed files, and remaining temporary files."""
        after = tree(self.at)
        seen = {
            name
            for name in self.before.keys() | after.keys()
            if self.before.get(name) != after.get(name)
            and not (name in self.content and digest(self.at / name) == self.content[name])
        }
        left = {str(path) for path in (self.folder / "tmp").iterdir() if not path.name.startswith("torchinductor_")}
        return seen, left

    def same(self) -> bool:
        """Return whether nothing has changed."""
        return tree(self.at) == self.before and not any((self.folder / "tmp").iterdir())


def tree(folder: Path) -> Tree:
    """Return the state of a folder: the mode and inode of each entry, and the size and time of each file."""
    found: Tree = {}
    for inside, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = f"{inside}/{name}"
            told = os.lstat(path)
            is_file = stat.S_ISREG(told.st_mode)
            found[path[len(str(folder)) + 1 :]] = (
                told.st_mode,
                *((told.st_ino, told.st_size, told.st_mtime_ns) if is_file else ()),
            )
    return found


def content(folder: Path) -> dict[str, str]:
    """Return a digest of each readable file in a folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): digest(path) for path in files if os.access(path, os.R_OK)}


def digest(path: Path) -> str:
    """Return a digest of a file; empty if the file is not readable."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _open_up(folder: Path) -> None:
    for inside, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(inside, name)
            if not path.is_symlink():
                path.chmod(0o700)

"""Calls of other libraries: what they raise becomes one line, and nothing is sent to another machine.

transformers = import_library("transformers", "models of Hugging Face", "hub")
with calling("transformers", f"{str(folder)!r} cannot be loaded", "copy the folder anew"), offline():
    model = transformers.AutoModel.from_pretrained(folder)
"""

import errno
import os
import re
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from regard.errors import InputError, MachineError, RegardError, one_line

LONGEST = 250
"""Characters of what a library says, at most."""
MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Errors of the machine, not of a file."""
QUIET = {
    "ORT_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Variables that stop libraries from sending usage reports; they must be set before the library is imported."""
SWITCH = "HF_HUB_OFFLINE"
ON_THE_HUB = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""An owner or a name there."""


NO_MEMORY = re.compile("memory|failed to map segment|bad_alloc|can't start new thread")
"""What libraries say where memory is short, whatever they raise."""


def is_panic(error: BaseException) -> bool:
    """Return whether an error is a panic of a library in Rust, which Python's `Exception` does not include."""
    return type(error).__name__ == "PanicException"


def is_memory(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, says that memory ran out."""
    while error is not None:
        short = isinstance(error, ImportError | RuntimeError | SystemError) and NO_MEMORY.search(str(error))
        if short or isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        error = error.__cause__ or error.__context__
    return False


def broken_library(error: BaseException) -> str | None:
    """Return the library whose import failed with an error; None for any other error.

    The import failed if the code of a module outside of Regard was running at its top level, if a module is
    missing, or if its file is not valid Python.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return _root_of_file(error.filename)
    broken = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if root == "regard":
            broken = None
        elif frame.f_code.co_name == "<module>" and broken is None:
            broken = root
    if broken is None and isinstance(error, ModuleNotFoundError) and error.name:
        broken = error.name.partition(".")[0]
    return None if broken in (None, "regard", "__main__") else broken


def _root_of_file(path: str) -> str:
    """Return the name of the package, or of the module, that a file belongs to."""
    found = Path(path)
    while (found.parent / "__init__.py").exists():
        found = found.parent
    return found.stem


def message_of(error: BaseException) -> str:
    """Return the kind and text of an error in one short line."""
    return one_line(error, LONGEST)


@contextmanager
def calling(library: str, what: str, advice: str, *, prints: bool = False) -> Iterator[None]:
    """Turn any error of a library into one line: `what: library says ...; advice`.

    `what` names the file and what failed, such as `'folder' cannot be loaded`. `prints`: whether the library
    prints progress that is shown at once; else what it prints is shown at the end. Raises `InputError` for errors
    and panics of the library, `MachineError` where the machine has no memory or no space. Errors of ours pass.
    """
    try:
        with nullcontext() if prints else _panics_unprinted():
            yield
    except RegardError:
        raise
    except BaseException as error:
        if not (isinstance(error, Exception | SystemExit) or is_panic(error)):
            raise
        said = f"{library} says {message_of(error)}"
        if is_memory(error):
            raise MachineError(f"{what}: out of memory ({said})") from error
        if isinstance(error, OSError) and error.errno in MACHINE:
            raise MachineError(f"{what}: {said}") from error
        raise InputError(f"{what}: {said}; {advice}") from error


def import_library(module: str, purpose: str, extra: str) -> Any:
    """Import a module that an extra of Regard installs.

    Raises `InputError`: how to install the extra where it is missing, what the import said where it is broken.
    """
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    root = module.partition(".")[0]
    install = f"pip install 'regard[{extra}]'"
    advice = f"install it anew, pip install --force-reinstall {root}"
    with calling(root, f"{purpose} cannot be used, importing {root} fails", advice):
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if sys.modules.get(root) is not None and "." in (error.name or "."):  # a part of it is missing
                raise
            lacks = "" if (error.name or root).startswith(root) else f" ({error.name} is missing)"
            raise InputError(f"{purpose} needs {root}{lacks}: {install}") from None


@contextmanager
def offline() -> Iterator[None]:
    """Let Hugging Face's libraries ask nothing of the network: a local folder is read."""
    modules = [sys.modules.get(name) for name in ("huggingface_hub.constants", "datasets.config")]
    switched = [module for module in modules if module is not None and not getattr(module, SWITCH)]
    for module in switched:
        setattr(module, SWITCH, True)
    try:
        yield
    finally:
        for module in switched:
            setattr(module, SWITCH, False)


@contextmanager
def _panics_unprinted() -> Iterator[None]:
    """Keep what Rust prints of a panic, with its backtrace, from standard error; all else is printed at the end.

    Only where no other thread runs, since the descriptor belongs to the whole process.
    """
    if threading.active_count() > 1:
        yield
        return
    try:
        sys.stderr.flush()
        stderr = os.dup(2)
    except (OSError, ValueError, AttributeError):  # it is closed
        yield
        return
    in_memory = hasattr(os, "memfd_create")  # which is ten times as fast
    with open(os.memfd_create("stderr"), "r+b") if in_memory else tempfile.TemporaryFile() as kept:  # noqa: PTH123
        os.dup2(kept.fileno(), 2)
        panicked = False
        try:
            yield
        except BaseException as error:
            panicked = is_panic(error)
            raise
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            kept.seek(0)
            with suppress(OSError):
                os.write(2, b"" if panicked else kept.read())


def check_hub_name(name: str) -> None:
    """Raise `InputError` for the name of a missing folder that no model or data set on the Hub can have.

    With a folder `models` here, `models/gpt` is such a name too: a typing error is not sent to another machine.
    """
    path, parts = Path(name), name.split("/")
    if len(parts) > 2 or not all(map(ON_THE_HUB.fullmatch, parts)):
        raise InputError(f"folder {name!r} does not exist, and nothing on the Hub has such a name: check it")
    if len(parts) == 2 and path.parent.exists():
        raise InputError(
            f"folder {name!r} does not exist, {parts[0]!r} does: check the name ({name!r} was not asked of the"
            f" Hub; to download that, go to a folder without {parts[0]!r})"
        )

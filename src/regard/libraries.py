"""Calls of other libraries. Errors of these libraries are converted to one line, and their usage reports and
network access are disabled.

transformers = import_library("transformers", "models of Hugging Face", "hub")
with library_errors("transformers", f"{str(folder)!r} cannot be loaded", "copy the folder again"), offline():
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

from regard.errors import PACKAGES, InputError, MachineError, RegardError, is_own, one_line

MAX_MESSAGE = 250  # Largest number of characters of a library's message
MACHINE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
"""Error numbers for a failure of the machine, not of a file."""
NO_TELEMETRY = {"HF_HUB_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0"}
"""Environment variables that prevent libraries from sending usage reports. These variables must be set before
the library is imported."""
OFFLINE_SWITCH = "HF_HUB_OFFLINE"
HUB_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # Pattern of an owner or a name on the Hub
OUT_OF_MEMORY = re.compile("memory|failed to map segment|bad_alloc|can't start new thread")
"""Pattern of library messages for a lack of memory. Libraries raise various exceptions in this case."""


def is_panic(error: BaseException) -> bool:
    """Return whether an error is a panic of a Rust library. Panics are not subclasses of `Exception`."""
    return type(error).__name__ == "PanicException"


def is_memory(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes reports a lack of memory."""
    while error is not None:
        kind = isinstance(error, ImportError | OSError | RuntimeError | SystemError)
        if (
            (kind and OUT_OF_MEMORY.search(str(error)))
            or isinstance(error, MemoryError)
            or getattr(error, "errno", None) == errno.ENOMEM
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def broken_library(error: BaseException) -> str | None:
    """Return the library whose import failed with an error, or None for other errors. An import has failed if
    the error was raised at the top level of a module outside of Regard, if a module is missing, or if its file
    is not valid Python."""
    if isinstance(error, SyntaxError) and error.filename:
        package = Path(error.filename)
        while (package.parent / "__init__.py").exists():
            package = package.parent
        return package.stem
    broken = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if is_own(root):
            broken = None
        elif frame.f_code.co_name == "<module>" and broken is None:
            broken = root
    if broken is None and isinstance(error, ModuleNotFoundError) and error.name:
        broken = error.name.partition(".")[0]
    return None if broken in (None, *PACKAGES, "__main__") else broken


def message_of(error: BaseException) -> str:
    return one_line(error, MAX_MESSAGE)


@contextmanager
def library_errors(library: str, what: str, advice: str, *, prints: bool = False) -> Iterator[None]:
    """Convert any error of a library to one line: `what: library says ...; advice`.

    `what`: the file and the failed action, such as `'folder' cannot be loaded`. `prints`: show output of the library,
    such as a progress bar, immediately instead of at the end. Raises `InputError` for errors and panics of the library,
    and `MachineError` for lack of memory or disk space. Regard's exceptions are not converted.
    """
    try:
        with nullcontext() if prints else _hide_panics():
            yield
    except RegardError:
        raise
    except BaseException as error:
        if not (isinstance(error, Exception | SystemExit) or is_panic(error)):
            raise
        message = f"{library} says {message_of(error)}"
        if is_memory(error):
            raise MachineError(f"{what}: out of memory ({message})") from error
        if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
            raise MachineError(f"{what}: {message}") from error
        raise InputError(f"{what}: {message}; {advice}") from error


def import_library(module: str, purpose: str, extra: str, *, install: str = "") -> Any:
    """Import a module of an optional dependency. `extra`: extra of Regard that installs the dependency.
    `install`: the command that installs it, if no extra can. Raises `InputError` with the command that installs
    a missing library, or with the error of a broken library."""
    os.environ.update({name: os.environ.get(name, value) for name, value in NO_TELEMETRY.items()})
    root = module.partition(".")[0]
    install = install or f"pip install 'regard[{extra}]'"
    advice = f"reinstall it with pip install --force-reinstall {root}"
    with library_errors(root, f"{purpose} cannot be used, because importing {root} fails", advice):
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if sys.modules.get(root) is not None and "." in (error.name or "."):
                raise  # a part of the library is missing
            missing = "" if (error.name or root).startswith(root) else f" ({error.name} is missing)"
            raise InputError(f"{purpose} needs {root}{missing}: {install}") from None


@contextmanager
def offline() -> Iterator[None]:
    """Disable network access of Hugging Face libraries in the block, for reading a local folder."""
    modules = [sys.modules.get(name) for name in ("huggingface_hub.constants", "datasets.config")]
    switched = [module for module in modules if module is not None and not getattr(module, OFFLINE_SWITCH)]
    for module in switched:
        setattr(module, OFFLINE_SWITCH, True)
    try:
        yield
    finally:
        for module in switched:
            setattr(module, OFFLINE_SWITCH, False)


@contextmanager
def _hide_panics() -> Iterator[None]:
    """Suppress the backtrace that Rust prints for a panic. Other output to standard error appears at the end. In a
    process with several threads, this function does nothing, because all threads share the file descriptor."""
    if threading.active_count() > 1:
        yield
        return
    try:
        sys.stderr.flush()
        stderr = os.dup(2)
    except (OSError, ValueError, AttributeError):  # standard error is closed
        yield
        return
    in_memory = hasattr(os, "memfd_create")  # ten times as fast as a temporary file
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
    """Raise `InputError` if `name`, which is not a local folder, cannot be a name on the Hub. If a folder `models`
    exists, `models/gpt` also raises an error, so that a misspelled path is not sent to another machine."""
    path, parts = Path(name), name.split("/")
    if len(parts) > 2 or not all(map(HUB_NAME.fullmatch, parts)):
        raise InputError(
            f"folder {name!r} does not exist, and it cannot be a name on the Hugging Face Hub: check the name"
        )
    if len(parts) == 2 and path.parent.exists():
        raise InputError(
            f"folder {name!r} does not exist, {parts[0]!r} does: check the name (Regard did not ask the Hub for "
            f"{name!r}; to download that model, change to a folder without {parts[0]!r})"
        )

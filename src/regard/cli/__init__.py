"""The command line: the module of a command is imported when the command runs.

`regard --help` therefore runs without loading PyTorch.
"""

import errno
import gc
import importlib
import io
import os
import sys
import warnings
from contextlib import nullcontext
from typing import Any

from regard.cli.help import stored_page, wants_help
from regard.cli.terminal import escape_output, open_streams, print_message, raw_output
from regard.errors import RegardError, unknown_choice
from regard.progress import status_lines

OUTPUT_FAILS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}
"""Error numbers of a failed write to standard output. `regard.io` reports failed writes to files."""
GROUPS = {
    "train": {
        "train": ("regard.cli.train", "train a model on a task"),
        "tasks": ("regard.cli.data", "list the tasks, with an example of each"),
        "test": ("regard.cli.test", "test a trained model and show its attention"),
        "prune": ("regard.cli.convert", "remove the least important attention heads"),
        "average": ("regard.cli.convert", "average the best models of a training run"),
    },
    "look": {
        "show": ("regard.cli.look", "explore the attention of a run on an interactive page"),
        "look": ("regard.cli.look", "inspect the attention of a Hugging Face model"),
        "plot": ("regard.cli.look", "draw a figure for a paper"),
    },
    "explain": {
        "explain": ("regard.cli.explain", "compute an attention weight step by step"),
        "examine": ("regard.cli.explain", "test whether attention is meaningful"),
        "circuit": ("regard.cli.explain", "score edges, and measure the faithfulness of circuits"),
        "timeline": ("regard.cli.explain", "follow the roles of heads through training"),
    },
    "compare": {
        "compare": ("regard.cli.compare", "compare variants over several seeds, or two models"),
        "card": ("regard_lab.cli.card", "measure an attention mechanism beside softmax"),
        "bench": ("regard_lab.cli.bench", "measure explanation methods on models whose answer is known"),
    },
    "translate": {
        "translate": ("regard.cli.translate", "answer or translate texts, one per line"),
        "generate": ("regard.cli.translate", "continue a prompt with a language model"),
        "align": ("regard.cli.align", "align the words of source and target sentences"),
        "score": ("regard.cli.translate", "compute the log-probability of sentence pairs"),
        "trust": ("regard_lab.cli.trust", "calibrate the doubt of translations on planted faults"),
        "data": ("regard.cli.data", "download a data set"),
        "clean": ("regard.cli.data", "filter sentence pairs that are not translations"),
    },
    "learn": {
        "learn": ("regard_course.cli.learn", "open the course, or write it as a website or as notebooks"),
        "check": ("regard_course.cli.check", "check your solutions to the exercises of the course"),
        "write": ("regard_course.cli.write", "write attention as a program: puzzles, and found models"),
    },
    "exchange": {
        "export": ("regard.cli.convert", "export a trained model to another program"),
        "import": ("regard.cli.convert", "import a model from another program"),
    },
}
"""The module and the summary of each command, in groups. The function `run_COMMAND` takes the words after it."""
COMMANDS = {name: module for group in GROUPS.values() for name, (module, _) in group.items()}
HELP = """usage: regard COMMAND ...

Train attention models, and test whether attention explains their answers.

{groups}

Flags: regard COMMAND --help. Example: regard train signal2; regard test signal2
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: `sys.argv`) and return its exit status.

    The status is 0 for success, 1 for a failure of the machine or of Regard, 2 for bad input, and 130 after an
    interrupt. With REGARD_DEBUG=1 in the environment, internal errors are raised with their traceback.
    """
    is_program = argv is None and len(sys.argv) > 1
    if argv is None:
        argv = sys.argv[1:]
        os.environ["PYTHONSAFEPATH"] = "1"  # keeps the current directory off the import path of child processes
        open_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # characters outside the terminal's encoding
    try:
        try:
            with escape_output(), status_lines(argv[0]) if is_program else nullcontext():
                status = _dispatch(argv)
        finally:  # also after the SystemExit of --help
            sys.stdout.flush()
    except BrokenPipeError:
        # The process that reads the pipe has exited, as in `regard test ... | head`.
        return _leave_output(1)
    except OSError as error:
        action = "use a standard stream" if error.errno == errno.EBADF else "write the output"
        print_message(f"cannot {action}: {error.strerror}; saved files are intact")
        return _leave_output(1)
    return status


def _leave_output(status: int) -> int:
    """Return `status`, and discard buffered output: the interpreter would try to flush it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        lines = [
            line
            for title, group in GROUPS.items()
            for line in (f"{title}:", *(f"  {name:11}{summary}" for name, (_, summary) in group.items()))
        ]
        sys.stdout.write(HELP.format(groups="\n".join(lines)))
        return 0
    if argv[0] == "--version":
        from regard.version import __version__

        sys.stdout.write(f"regard {__version__}\n")
        return 0
    if argv[0] not in COMMANDS:
        return _fail(str(unknown_choice("command", argv[0], COMMANDS)), 2)
    if wants_help(argv) and (page := stored_page(argv[0], argv[1:])) is not None:
        raw_output().write(page.text(argv))
        return 0
    return _guarded(argv[0], argv[1:])


def _guarded(command: str, argv: list[str]) -> int:
    # The module is imported before the command runs, because an import may fail once memory has run out.
    from regard.libraries import broken_library, is_memory, message_of

    try:
        with warnings.catch_warnings():
            # One line, without the location in the code
            warnings.showwarning = lambda message, *_, **__: print_message(f"warning: {message}")
            find_command(command)(argv)
    except RegardError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        raise
    except Exception as error:
        if is_memory(error):
            return _fail("out of memory: choose a smaller hidden, batchsize, enc_layers or max_len", 1)
        if isinstance(error, OSError) and error.filename is None and error.errno in OUTPUT_FAILS:
            raise
        if os.environ.get("REGARD_DEBUG") == "1":
            raise
        if (library := broken_library(error)) is not None:
            advice = f"reinstall it with pip install --force-reinstall {library}"
            return _fail(f"importing {library} fails: {message_of(error)}; {advice}", 1)
        return _fail(_unexpected(command, argv, error), 1)
    return 0


def find_command(command: str) -> Any:
    """Import the module of a command, with its dependencies, and return the command's function."""
    # Garbage collection is off during the import: modules are never garbage, and scanning PyTorch's objects
    # takes longer than importing Regard.
    pause = "torch" not in sys.modules and gc.isenabled()
    if pause:
        gc.disable()
    try:
        return getattr(importlib.import_module(COMMANDS[command]), f"run_{command}")
    finally:
        if pause:
            gc.freeze()
            gc.enable()


def _unexpected(command: str, argv: list[str], error: Exception) -> str:
    """Return the message of an internal error, with the file of its traceback."""
    import tempfile
    import traceback

    from regard.version import __version__

    summary = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    report = [f"regard {__version__}, Python {sys.version}", f"argv: {[command, *argv]!r}", traceback.format_exc()]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="regard-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write("\n".join(report))
        hint = f"the traceback is in {file.name}: please report the error and attach that file"
    except OSError:
        hint = "set REGARD_DEBUG=1 to see the traceback, and please report the error"
    return f"internal error, {summary}; {hint} (docs/reference/reliability.md)"


def _fail(message: str, status: int) -> int:
    print_message(message)
    return status

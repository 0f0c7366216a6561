"""The command line: one module for each command, imported when it is called.

So `regard --help` answers without loading PyTorch.
"""

import errno
import gc
import io
import os
import sys
import warnings
from typing import Any

from regard.cli.terminal import escaping, open_streams
from regard.cli.words import say
from regard.errors import RegardError, unknown_choice

OUTPUT_FAILS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF}
"""What writing to an output that is no file of ours fails with; of our files, `files.cannot_write` tells."""
COMMANDS = {
    "train": "train a model on a task",
    "test": "test a trained model, and see what it attends to",
    "show": "open a page to explore what a model attends to",
    "look": "look inside any model of Hugging Face's, touch it, and doubt it",
    "examine": "ask whether attention means anything",
    "explain": "show how a weight came about, number by number",
    "prune": "take out the heads that matter least",
    "translate": "answer texts with a trained model, one a line",
    "align": "say which words of a translation come from which",
    "score": "give the log-probability of pairs",
    "compare": "train variants over several seeds, and compare them",
    "learn": "open the course, or write it as a site or notebooks",
    "check": "check your own code: attention, layers, a Transformer, searches",
    "tasks": "list the tasks, each with an example",
    "data": "fetch a data set",
    "clean": "leave out of a corpus what is no translation",
    "export": "hand a trained model to another program",
    "import": "make a run of another program's model",
    "draw": "draw a trained model: parts, shapes, attention",
    "positions": "draw positions: waves and similarity",
}
MODULES = {"import": "importing"}
"""Of commands that no module can be called."""

HELP = """usage: regard COMMAND ...

Train a model whose heart is attention, see what it attends to, and test whether
that means anything.

commands:
{commands}

`regard COMMAND --help` explains a command's flags, with their defaults.

  regard train signal2        train on the task Signal 2, into models/signal2
  regard test signal2         test that run, and print what each head looks at
  regard train dates          train on dates, from "3. Mai 1979" to 1979-05-03
  regard translate dates "3. Mai 1979" --plot
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's) and return its exit status.

    0 success; 1 the machine failed, or Regard did; 2 bad input; 130 interrupted. With REGARD_DEBUG=1 in the
    environment, what nobody thought of is shown with its traceback.
    """
    if argv is None:
        argv = sys.argv[1:]
        os.environ["PYTHONSAFEPATH"] = (
            "1"  # processes that this one starts have no current directory on their path
        )
        open_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for what a terminal's encoding has no sign
    try:
        try:
            with escaping():
                status = _answer(argv)
        finally:  # whoever asks for help leaves as well
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away (`regard test ... | head`): nothing more to say, to anyone.
        return _leave_output(1)
    except OSError as error:
        what = "use a standard stream" if error.errno == errno.EBADF else "write the output"
        say(f"cannot {what}: {error.strerror}; what was saved in files is intact")
        return _leave_output(1)
    return status


def _leave_output(status: int) -> int:
    """Return `status`, with what could not be written out of the way of the interpreter's end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _answer(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(HELP.format(commands="\n".join(f"  {name:11}{does}" for name, does in COMMANDS.items())))
        return 0
    if argv[0] == "--version":
        from regard.version import __version__

        sys.stdout.write(f"regard {__version__}\n")
        return 0
    if argv[0] not in COMMANDS:
        return _fail(str(unknown_choice("command", argv[0], COMMANDS)), 2)
    return _guarded(argv[0], argv[1:])


def _guarded(command: str, argv: list[str]) -> int:
    """Run a command, turning what can go wrong outside of Regard's code into one line and a status."""
    # Now, since they could not be imported once memory has run out.
    from regard.libraries import broken_library, is_memory, message_of

    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            _load(command).run(argv)
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
            advice = f"install it again, pip install --force-reinstall {library}"
            return _fail(f"importing {library} fails: {message_of(error)}; {advice}", 1)
        return _fail(_unexpected(command, argv, error), 1)
    return 0


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Show a warning in one line, without the place in the code that it comes from."""
    say(f"warning: {message}")


def _load(command: str) -> Any:
    """Import a command's module, with all that it needs."""
    began = "torch" not in sys.modules and gc.isenabled()
    if began:  # modules stay, and to look for garbage among PyTorch's takes longer than to import all of Regard's
        gc.disable()
    try:
        return __import__(f"regard.cli.{MODULES.get(command, command)}", fromlist=["run"])
    finally:
        if began:
            gc.freeze()
            gc.enable()


def _unexpected(command: str, argv: list[str], error: Exception) -> str:
    """Say what went wrong that nobody thought of, and where its traceback has been written."""
    import tempfile
    import traceback

    from regard.version import __version__

    said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    told = [f"regard {__version__}, Python {sys.version}", f"argv: {[command, *argv]!r}", traceback.format_exc()]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="regard-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write("\n".join(told))
        kept = f"its traceback is in {file.name}: please report it with that file"
    except OSError:
        kept = "set REGARD_DEBUG=1 to see its traceback, and please report it"
    return f"a fault of Regard's own, {said}; {kept} (docs/reliability.md)"


def _fail(message: str, status: int) -> int:
    say(message)
    return status

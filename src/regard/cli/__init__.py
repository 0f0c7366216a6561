"""The command line: one module for each command, imported when it is called.

So `regard --help` answers without loading PyTorch.
"""

import importlib
import os
import sys
from pathlib import Path

from regard.errors import RegardError

COMMANDS = {
    "train": "train a model on a task",
    "test": "test a trained model, and see what it attends to",
    "show": "open a page to explore what a model attends to",
    "examine": "ask whether attention means anything",
    "prune": "take out the heads that matter least",
    "translate": "answer texts with a trained model, one a line",
    "score": "give the log-probability of pairs",
    "compare": "train variants over several seeds, and compare them",
    "check": "check your own code: attention, layers, a Transformer, searches",
    "tasks": "list the tasks, each with an example",
    "data": "fetch a data set",
    "export": "hand a trained model to another program",
    "positions": "draw positions: waves and similarity",
}

HELP = """usage: regard COMMAND ...

Train a model whose heart is attention, see what it attends to, and test whether that means anything.

commands:
{commands}

`regard COMMAND --help` explains a command's flags, with their defaults.

  regard train signal2        train on the task Signal 2, into models/signal2
  regard test signal2         test that run, and print what each head attended to
  regard train dates          train on dates, from "3. Mai 1979" to 1979-05-03
  regard translate dates "3. Mai 1979" --plot
"""


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's) and return its exit status.

    0 success; 1 the machine failed; 2 bad input; 130 interrupted.
    """
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help"):
        sys.stdout.write(HELP.format(commands="\n".join(f"  {name:11}{does}" for name, does in COMMANDS.items())))
        return 0
    if argv[0] == "--version":
        from regard.version import __version__

        sys.stdout.write(f"regard {__version__}\n")
        return 0
    if argv[0] not in COMMANDS:
        return _fail(f"command {argv[0]!r} is unknown: choose {', '.join(COMMANDS)}", 2)
    return _guarded(argv[0], argv[1:])


def _guarded(command: str, argv: list[str]) -> int:
    """Run a command, turning what can go wrong outside of Regard's code into one line and a status."""
    sys.path.append(str(Path.cwd()))  # where a module of the user's own is looked for, last of all
    try:
        importlib.import_module(f"regard.cli.{command}").run(argv)
    except RegardError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader went away (`regard test ... | head`): nothing more to say, to anyone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "memory" in str(error):
            return _fail("out of memory: choose a smaller hidden, batchsize, enc_layers or max_len", 1)
        raise
    return 0


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"regard: {' '.join(message.split())}\n")
    return status

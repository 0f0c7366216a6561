"""Signal 2 from training to an attention map, as in `make demo`.

Three signals say which letters to count, and a model with four heads learns the task. The script then shows what
each output attends to, and whether its answer depends on it.
"""

import time
from pathlib import Path

from rich.console import Console

import regard
from regard.viz.terminal import heatmap

FOLDER = Path("demo")


def main() -> None:
    """Train, test, show one sample, and save it as a picture and as a page."""
    begin = time.monotonic()
    run = regard.train("signal2", savepath=FOLDER, overwrite=True)
    print(f"Trained in {time.monotonic() - begin:.0f} s.\n")
    print(run.test(), "\n")
    attention = run.attend("BCCCBAABACCCA")
    print(attention, "\n")
    Console().print(heatmap(attention))
    for name in ("attention.png", "attention.html"):
        print("Saved", attention.save(run.folder / name))
    print(f"\nTest it again:  .venv/bin/regard test signal2 --savepath {FOLDER} --input CABBACABBACAB")


if __name__ == "__main__":
    main()

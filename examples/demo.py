"""Train a model on Signal 2 and view its attention, as in `make demo`.

Three signals name the letters that a model with four heads must count. The script trains and tests the model,
prints the attention map of a sample, and saves the map as a picture and as a page.
"""

import time
from pathlib import Path

from rich.console import Console

import regard
from regard.viz.terminal import heatmap

FOLDER = Path("demo")


def main() -> None:
    """Train and test the model, and save the attention map of a sample."""
    begin = time.monotonic()
    run = regard.train("signal2", savepath=FOLDER, overwrite=True)
    print(f"Trained in {time.monotonic() - begin:.0f} s.\n")
    print(run.test(), "\n")
    attention = run.attend("BCCCBAABACCCA")
    print(attention, "\n")
    Console().print(heatmap(attention))
    for name in ("attention.png", "attention.html"):
        print("Saved", attention.save(run.folder / name))
    print(f"\nTest again:  .venv/bin/regard test signal2 --savepath {FOLDER} --input CABBACABBACAB")


if __name__ == "__main__":
    main()

"""Signal 2 from nothing to an attention map: what `make demo` runs, and what Regard does in ten lines.

Three signals say which letters to count. The model learns it with four heads; then look at what each
output attended to, and whether that is what its answer depends on.
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

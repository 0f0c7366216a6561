"""`regard plot KIND RUN|FOLDER`: figures for papers."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from regard.cli.parsing import read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import open_on_screen
from regard.errors import InputError
from regard.interpret.figures import FIGURE_KINDS, plot
from regard.io.reading import is_folder, read_text
from regard.training.run_folder import is_run_folder
from regard.viz.attention_map import PICTURES, check_extension


@dataclass(frozen=True, kw_only=True)
class PlotFlags:
    """Draw a figure for a paper, and write its caption and its data to files next to the figure. MODEL: a run
    (a task's name, or a folder), or an external model (a folder written by save_pretrained, or a name on the
    Hugging Face Hub). Without MODEL, positions draws the sinusoidal encoding."""

    output: Annotated[Path | None, arg(aliases=["-o"])] = None
    """Output file: .pdf, .svg or .png. Default: FIGURE.pdf. Its caption and data get the same name."""
    width: Literal["3.3", "6.9"] | None = None
    """Width of the figure in inches. Default: 6.9 for heads, importance and positions, else 3.3."""
    style: str | None = None
    """Matplotlib style sheet (a file, or the name of a built-in style) that overrides the style of Regard."""
    text: str | None = None
    """Input of the model. Default for a run: an input that its task generates."""
    image: Path | None = None
    """Image file, for a vision model."""
    examples: Path | None = None
    """File of texts to average over, one per line (source ||| target for encoder-decoders)."""
    layer: str | None = None
    """Layer: a number or a name. Default: all layers, or the layer that the caption names."""
    head: int | None = None
    """Head of an alignment. Default: the head that the caption names."""
    samples: int | None = None
    """Number of inputs to average over. Default: all texts of --examples, or 100 unseen inputs; for importance,
    1,000 unseen inputs, or 500 of a sequence-to-sequence model."""
    seed: int = 0
    """Seed of drawn inputs."""
    dimensions: int = 64
    """Number of dimensions of the sinusoidal encoding."""
    length: int = 100
    """Number of positions."""
    download: bool = False
    """Download an external model from the Hugging Face Hub if it is not in the local cache."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Write the figure, and print its caption and the paths of all files."""
    [kind, *names], flags = read_command(
        PlotFlags, argv, "regard plot FIGURE [MODEL]", example="heads signal2 -o heads.pdf", choices=FIGURE_KINDS
    )
    path = flags.output or Path(f"{kind}.pdf")
    check_extension(path, PICTURES)
    if flags.text is not None and flags.image is not None:
        raise InputError("--text and --image exclude each other: leave out one of them")
    lines = [] if flags.examples is None else read_text(flags.examples, "give a file of texts").splitlines()
    figure = plot(
        kind,
        _load(names[0], flags) if names else None,
        inputs=[*filter(None, (flags.text, flags.image)), *filter(str.strip, lines)],
        layer=flags.layer,
        head=flags.head,
        samples=flags.samples,
        seed=flags.seed,
        width=None if flags.width is None else float(flags.width),
        style=flags.style,
        dimensions=flags.dimensions,
        length=flags.length,
    )
    figure.save(path)
    caption, data = figure.files_beside(path)
    sys.stdout.write(f"{figure.caption}\nSaved {path}, {caption} and {data}\n")
    open_on_screen(path)


def _load(name: str, flags: PlotFlags) -> Any:
    """Return the run or the external model that the flags name."""
    storage = flags.storage
    if is_run_folder(Path(name)) or is_run_folder(storage.savepath / name):
        return storage.load(name)
    if not is_folder(Path(name)) and not flags.download and "/" not in name:
        return storage.load(name)  # raises an error that names the runs
    from regard.external.loading import look

    return look(name, trust_code=storage.trust_code, download=flags.download)

"""Commands that show attention: `regard look`, `regard show` and `regard plot`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from regard.cli.parsing import PageFlags, read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import open_on_screen, print_table, say_saved
from regard.errors import InputError
from regard.fast.memory import keep_memory
from regard.io import is_file, is_folder, read_text, write_json
from regard.runs.loading import SAVEPATH
from regard.training.run_folder import is_run_folder
from regard.viz.attention_map import PAGE, PICTURES, AttentionMap, check_extension
from regard.viz.page import write_page
from regard.viz.subject import check_comparable, layer_named

if TYPE_CHECKING:
    from regard.runs.run_types import AnyRun


@dataclass(frozen=True, kw_only=True)
class LookFlags(PageFlags):
    """Inspect the attention of any Hugging Face model. A page shows the prediction and attention for any text that you
    type. On the page you can disable heads and change weights. With --plot or --json, the attention for one text is
    written to a file instead. FOLDER: a folder written by save_pretrained, or a model name on the Hugging Face Hub. The
    model is read from the local cache, or downloaded with --download. Needs the extras hub and serve."""

    text: str | None = None
    """First input of the model. For an encoder-decoder, the source."""
    target: str | None = None
    """Target text for an encoder-decoder. Default: the output that the model generates."""
    generate: int = 0
    """Maximum number of tokens to generate. 0: one token, or a complete answer for encoder-decoders."""
    image: Path | None = None
    """Image file, for a vision model."""
    compare_with: tuple[str, ...] = ()
    """Further models with the same input, shown side by side: folders, or names on the Hub."""
    examples: Path | None = None
    """File of texts for head importance, one per line (source ||| target for encoder-decoders). Default: the
    displayed text."""
    layers: str | None = None
    """Layers to write, separated by commas: numbers such as 0,5, or names. Default: all."""
    heads: str | None = None
    """Heads to write, separated by commas, such as 0,3. Default: all."""
    plot: Path | None = None
    """Write a picture or page to this file: .png, .svg, .pdf or .html. No server is started."""
    json: Path | None = None
    """Write all weights to this JSON file. No server is started."""
    trust_code: bool = False
    """Execute custom code from the model's folder. Read that code first."""
    download: bool = False
    """Download the model from the Hugging Face Hub if it is not in the local cache."""


def run_look(argv: list[str]) -> None:
    from regard.external.loading import look  # slow to import, and not needed to show a run
    from regard.external.model_input import TARGET_SEPARATOR
    from regard.server.serve import check_port, show

    [name], flags = read_command(LookFlags, argv, "regard look FOLDER", example="models/my-model")
    writes = flags.plot is not None or flags.json is not None
    check_port(flags.port)
    _check(flags, writes=writes)
    first: list[Any] = []
    if flags.image is not None:
        first = [flags.image]
    elif flags.text is not None:
        first = [flags.text if flags.target is None else f"{flags.text}{TARGET_SEPARATOR}{flags.target}"]
    inputs = [*first, *_read_texts(flags.examples)]
    names = (name, *flags.compare_with)
    for model in names:
        if not is_folder(Path(model)) and is_run_folder(Path(SAVEPATH) / model):
            raise InputError(
                f"{model!r} is not a folder here, but a run in {SAVEPATH!r}: open it with `regard show {model}`"
            )
    keep_memory()
    subject, *others = (
        look(model, inputs=inputs, generate=flags.generate, trust_code=flags.trust_code, download=flags.download)
        for model in names
    )
    if not writes:
        show(subject, port=flags.port, host=flags.host, browser=flags.browser, compare_with=others)
        raise KeyboardInterrupt  # the server returns only after Ctrl-C
    check_comparable(subject, others)
    attention = _select(subject.attend(inputs[0]), flags)
    _write(attention, [(other.name, _select(other.attend(inputs[0]), flags)) for other in others], flags)
    for shown in (subject, *others):
        if shown.left_out:
            sys.stdout.write(f"{shown.name}: {shown.left_out}\n")


def _check(flags: LookFlags, *, writes: bool) -> None:
    if flags.plot is not None:
        check_extension(flags.plot)
    if flags.compare_with and writes and (flags.plot is None or flags.plot.suffix.lower() != PAGE):
        raise InputError("--compare_with needs a page: give --plot FILE.html, or leave out --plot and --json")
    if flags.text is not None and flags.image is not None:
        raise InputError("--text and --image exclude each other: leave out one of them")
    if flags.target is not None and flags.text is None:
        raise InputError("--target needs a source: give --text too")
    if writes and flags.text is None and flags.image is None:
        flag = "--plot" if flags.plot is not None else "--json"
        raise InputError(f"{flag} needs an input: give --text or --image")


def _select(attention: AttentionMap, flags: LookFlags) -> AttentionMap:
    names = None
    if flags.layers is not None:
        names = [layer_named(layer.strip(), list(attention.layers)) for layer in flags.layers.split(",")]
    heads = None if flags.heads is None else [_parse_head(head) for head in flags.heads.split(",")]
    return attention.select(layers=names, heads=heads)


def _parse_head(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 9:
        raise InputError(f"heads {text!r} is not an integer: give integers separated by commas, such as 0,3")
    return int(text)


def _write(attention: AttentionMap, others: Sequence[tuple[str, AttentionMap]], flags: LookFlags) -> None:
    print_table(attention.table())
    if attention.note:
        sys.stdout.write(f"Note: {attention.note}\n")
    if flags.json is not None:
        write_json(flags.json, attention.json())
        say_saved(flags.json)
    if flags.plot is not None:
        saved = write_page(flags.plot, [attention], beside=others) if others else attention.save(flags.plot)
        omitted = len(attention.layers) - len(attention.plotted_layers) if saved.suffix.lower() != PAGE else 0
        hint = (
            f", with the layers that attend to the input; for the other {omitted} layers use --layers or a page"
            if omitted
            else ""
        )
        sys.stdout.write(f"Saved {saved}{hint}\n")
        open_on_screen(flags.plot)


def _read_texts(path: Path | None) -> list[str]:
    if path is None:
        return []
    return [*filter(str.strip, read_text(path, "give a file of texts").splitlines())]


@dataclass(frozen=True, kw_only=True)
class ShowFlags(PageFlags):
    """Open a page that shows the prediction, the true answer and the attention for any input that you type.
    On the page you can disable heads and change weights. RUN: a task's name, or the folder of a run, or of
    `regard.watch`, whose page follows the training. Needs the extra serve. Stop with Ctrl-C."""

    compare_with: tuple[str, ...] = ()
    """Additional runs that accept the same inputs, shown side by side: names of tasks, or folders of runs."""
    live: Path | None = None
    """Write one HTML file that computes the attention for typed inputs without a server. Supported are query,
    Transformer and recurrent models with up to 1 million parameters on synthetic tasks."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_show(argv: list[str]) -> None:
    from regard.server.serve import check_port, show

    [name], flags = read_command(ShowFlags, argv, "regard show RUN")
    check_port(flags.port)
    if is_file(Path(name) / "watch.jsonl"):
        from regard.server.watch import show_watch

        if flags.live is not None or flags.compare_with:
            raise InputError(f"{name!r} is the folder of a watch: leave out --live and --compare_with")
        show_watch(Path(name), port=flags.port, host=flags.host, browser=flags.browser)
        raise KeyboardInterrupt  # the server returns only after Ctrl-C
    if flags.live is not None and flags.compare_with:
        raise InputError("--live writes a page for only one run: leave out --compare_with")
    keep_memory()
    shown = flags.storage.load(name)
    if flags.live is not None:
        from regard.runs.live_page import write_live_page  # slow to import, and not needed to show a run

        sys.stdout.write(f"The page is in {write_live_page(shown, flags.live)}\n")
        return
    others = [flags.storage.load(other) for other in flags.compare_with]
    for loaded in (shown, *others):
        loaded.about()  # refuses an edited examination before the server starts
    _check_same_inputs(shown, others)
    show(shown, port=flags.port, host=flags.host, browser=flags.browser, compare_with=others)
    raise KeyboardInterrupt  # the server returns only after Ctrl-C


def _check_same_inputs(shown: AnyRun, others: list[AnyRun]) -> None:
    try:
        sample = shown.draw(seed=0)
    except InputError:  # the task's text is missing, so there is no sample to check with
        return
    for other in others:
        try:
            other.check(sample)
        except InputError as error:
            raise InputError(
                f"{other.where!r} does not accept {sample!r}, a sample of {shown.where!r}: {error}"
            ) from None


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


def run_plot(argv: list[str]) -> None:
    from regard.interpret.figures import FIGURE_KINDS, plot

    [kind, *names], flags = read_command(
        PlotFlags, argv, "regard plot FIGURE [MODEL]", example="heads signal2 -o heads.pdf", choices=FIGURE_KINDS
    )
    path = flags.output or Path(f"{kind}.pdf")
    check_extension(path, PICTURES)
    if flags.text is not None and flags.image is not None:
        raise InputError("--text and --image exclude each other: leave out one of them")
    same = ("layer", "head", "samples", "seed", "style", "dimensions", "length")
    figure = plot(
        kind,
        _load_model(names[0], flags) if names else None,
        inputs=[*filter(None, (flags.text, flags.image)), *_read_texts(flags.examples)],
        width=None if flags.width is None else float(flags.width),
        **{name: getattr(flags, name) for name in same},
    )
    figure.save(path)
    caption, data = figure.files_beside(path)
    sys.stdout.write(f"{figure.caption}\nSaved {path}, {caption} and {data}\n")
    open_on_screen(path)


def _load_model(name: str, flags: PlotFlags) -> Any:
    storage = flags.storage
    is_run = is_run_folder(Path(name)) or is_run_folder(storage.savepath / name)
    if is_run or not (is_folder(Path(name)) or flags.download or "/" in name):
        return storage.load(name)  # without a run, it raises an error that names the runs
    from regard.external.loading import look

    return look(name, trust_code=storage.trust_code, download=flags.download)

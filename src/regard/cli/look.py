"""`regard look FOLDER`: inspect the attention of a Hugging Face model."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.cli.parsing import read_command
from regard.cli.terminal import open_on_screen, print_table
from regard.errors import InputError
from regard.external.loading import look
from regard.external.model_input import TARGET_SEPARATOR
from regard.fast.memory import keep_memory
from regard.io.reading import is_folder, read_text
from regard.io.writing import write_json
from regard.runs.loading import SAVEPATH
from regard.server.serve import check_port, show
from regard.training.run_folder import is_run_folder
from regard.viz.attention_map import PAGE, AttentionMap, check_extension
from regard.viz.page import write_page
from regard.viz.subject import check_comparable, layer_named


@dataclass(frozen=True, kw_only=True)
class LookFlags:
    """Inspect the attention of any Hugging Face model. A page shows the prediction and attention for any text
    that you type. On the page you can disable heads and change weights. With --plot or --json, the attention
    for one text is written to a file instead. FOLDER: a folder written by save_pretrained, or a model name on
    the Hugging Face Hub. The model is read from the local cache, or downloaded with --download. Needs the
    extras hub and serve."""

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
    port: int | None = None
    """Port of the page, 1 to 65535. Default: 8137, or a free port if 8137 is in use."""
    host: str = "127.0.0.1"
    """Address to listen on; see `regard show --help`."""
    browser: bool = True
    """Open the page in a browser."""


def run(argv: list[str]) -> None:
    """Show the model in a page, or write its attention to files."""
    [name], flags = read_command(LookFlags, argv, "regard look FOLDER", example="models/my-model")
    writes = flags.plot is not None or flags.json is not None
    _check(flags, writes=writes)
    first = [flags.image] if flags.image is not None else [_joined_text(flags)] if flags.text is not None else []
    lines = [] if flags.examples is None else read_text(flags.examples, "give a file of texts").splitlines()
    inputs = [*first, *filter(str.strip, lines)]
    names = (name, *flags.compare_with)
    for model in names:
        if not is_folder(Path(model)) and is_run_folder(Path(SAVEPATH) / model):
            raise InputError(
                f"{model!r} is not a folder here, but a run in {SAVEPATH!r}: open it with `regard show {model}`"
            )
    keep_memory()
    subject, *others = (
        look(
            model,
            inputs=inputs,
            generate=flags.generate,
            trust_code=flags.trust_code,
            download=flags.download,
        )
        for model in names
    )
    if not writes:
        show(subject, port=flags.port, host=flags.host, browser=flags.browser, beside=others)
        raise KeyboardInterrupt  # the server returns only after Ctrl-C
    check_comparable(subject, others)
    attention = _select(subject.attend(inputs[0]), flags)
    _write(attention, [(other.name, _select(other.attend(inputs[0]), flags)) for other in others], flags)
    for shown in (subject, *others):
        if shown.left_out:
            sys.stdout.write(f"{shown.name}: {shown.left_out}\n")


def _check(flags: LookFlags, *, writes: bool) -> None:
    """Raise `InputError` for flags that contradict each other, before the model is loaded."""
    check_port(flags.port)
    if flags.plot is not None:
        check_extension(flags.plot)
    if flags.compare_with and writes and (flags.plot is None or flags.plot.suffix.lower() != PAGE):
        raise InputError("--compare-with needs a page: give --plot FILE.html, or leave out --plot and --json")
    if flags.text is not None and flags.image is not None:
        raise InputError("--text and --image exclude each other: leave out one of them")
    if flags.target is not None and flags.text is None:
        raise InputError("--target needs a source: give --text too")
    if writes and flags.text is None and flags.image is None:
        flag = "--plot" if flags.plot is not None else "--json"
        raise InputError(f"{flag} needs an input: give --text or --image")


def _joined_text(flags: LookFlags) -> str:
    return f"{flags.text}{TARGET_SEPARATOR}{flags.target}" if flags.target is not None else str(flags.text)


def _select(attention: AttentionMap, flags: LookFlags) -> AttentionMap:
    """Return the attention of the layers and heads in `flags`."""
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
    """Print the prediction, and write the requested files."""
    print_table(attention.table())
    if attention.note:
        sys.stdout.write(f"Note: {attention.note}\n")
    if flags.json is not None:
        write_json(flags.json, attention.json())
        sys.stdout.write(f"Saved {flags.json}\n")
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

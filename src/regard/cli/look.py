"""`regard look FOLDER`: look inside a model that was not trained here, touch it, and ask what it rests on."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.attention import short_name
from regard.cli.parsing import first_word, parse, wants_help
from regard.cli.screen import open_on_screen
from regard.cli.terminal import print_table
from regard.errors import InputError, unknown_choice
from regard.external import look
from regard.external.model_input import TARGET_SEPARATOR
from regard.fast.memory import keep_memory
from regard.io import write_json
from regard.io.reading import is_folder, read_text
from regard.runs import SAVEPATH
from regard.server import check_port, show
from regard.training.run_paths import holds_run
from regard.viz import AttentionMap, check_ending
from regard.viz.alike import check_beside
from regard.viz.endings import PAGE
from regard.viz.page import write_page

PROG = "regard look"
DESCRIPTION = (
    "Look inside any model of Hugging Face's: open a page on which you type a text and see prediction and "
    "attention at once, switch heads off, and change weights; or, with --plot or --json, write what it attends "
    "to in one text. FOLDER: as save_pretrained writes it, or the name of a model on the Hugging Face Hub, which "
    "is read from the local cache, or fetched with --download. Needs the extras hub and serve."
)


@dataclass(frozen=True, kw_only=True)
class LookFlags:
    """All flags of the command."""

    text: str | None = None
    """What the model is given first. Of an encoder-decoder, the source."""
    target: str | None = None
    """What an encoder-decoder writes, given the text. None: whatever it writes."""
    generate: int = 0
    """Tokens that the model writes at most. 0: one, or as many as an answer has."""
    image: Path | None = None
    """A picture, for a model that sees."""
    beside: tuple[str, ...] = ()
    """Other models that are given the same, to be looked at beside it: folders, or names on the Hub."""
    texts: Path | None = None
    """File of texts, one a line (source ||| target where there are two), that head importance is asked over.
    None: over the text that is shown."""
    layers: str | None = None
    """Layers to write, with a comma between them, as in 0,5 or their names. None: all."""
    heads: str | None = None
    """Heads to write, with a comma between them, as in 0,3. None: all."""
    plot: Path | None = None
    """File that a picture or page goes to: .png, .svg, .pdf or .html; no page is opened then."""
    json: Path | None = None
    """File that all weights go to, as JSON; no page is opened then."""
    trust_code: bool = False
    """Run code of its own that the folder brings, which you have read."""
    download: bool = False
    """Fetch a model that is named by its name on the Hugging Face Hub, where it is not in the local cache."""
    port: int | None = None
    """Port of the page, 1 to 65535. None: 8137, or another one where that is taken."""
    host: str = "127.0.0.1"
    """Address to listen on; see `regard show --help`."""
    browser: bool = True
    """Open the page in a browser."""


def run(argv: list[str]) -> None:
    """Look as `argv` asks."""
    if wants_help(argv[:1]):
        parse(LookFlags(), argv, prog=f"{PROG} FOLDER", description=DESCRIPTION)
    name, argv = first_word(argv, what="folder", prog=PROG, example="models/my-model")
    flags = parse(LookFlags(), argv, prog=f"{PROG} {name}", description=DESCRIPTION)
    writes = flags.plot is not None or flags.json is not None
    _check(flags, writes=writes)
    first = [flags.image] if flags.image is not None else [_given(flags)] if flags.text is not None else []
    lines = [] if flags.texts is None else read_text(flags.texts, "give a file of texts").splitlines()
    inputs = [*first, *filter(str.strip, lines)]
    for each in (name, *flags.beside):
        if not is_folder(Path(each)) and holds_run(Path(SAVEPATH) / each):
            raise InputError(
                f"{each!r} is no folder here, but a run in {SAVEPATH!r}: open it with `regard show {each}`"
            )
    keep_memory()
    subject, *others = (
        look(
            each,
            inputs=inputs,
            generate=flags.generate,
            trust_code=flags.trust_code,
            download=flags.download,
        )
        for each in (name, *flags.beside)
    )
    if not writes:
        show(subject, port=flags.port, host=flags.host, browser=flags.browser, beside=others)
        raise KeyboardInterrupt  # for only Ctrl-C comes back from there
    check_beside(subject, others)
    found = _chosen(subject.attend(inputs[0]), flags)
    _write(found, [(each.name, _chosen(each.attend(inputs[0]), flags)) for each in others], flags)
    for model in (subject, *others):
        if model.left_out:
            sys.stdout.write(f"{model.name}: {model.left_out}\n")


def _check(flags: LookFlags, *, writes: bool) -> None:
    """Refuse, before anything is loaded, what does not go together."""
    check_port(flags.port)
    if flags.plot is not None:
        check_ending(flags.plot)
    if flags.beside and writes and (flags.plot is None or flags.plot.suffix.lower() != PAGE):
        raise InputError("beside is shown on pages: give --plot FILE.html, or neither --plot nor --json")
    if flags.text is not None and flags.image is not None:
        raise InputError("text and image are given: choose one")
    if flags.target is not None and flags.text is None:
        raise InputError("target is given without its source: give --text too")
    if writes and flags.text is None and flags.image is None:
        raise InputError("nothing is given to look at: give --text or --image")


def _given(flags: LookFlags) -> str:
    return f"{flags.text}{TARGET_SEPARATOR}{flags.target}" if flags.target is not None else str(flags.text)


def _chosen(found: AttentionMap, flags: LookFlags) -> AttentionMap:
    """Return the layers and heads that are asked for."""
    names = None
    if flags.layers is not None:
        names = [_layer(each.strip(), list(found.layers)) for each in flags.layers.split(",")]
    heads = None if flags.heads is None else [_number(each, "heads") for each in flags.heads.split(",")]
    return found.chosen(layers=names, heads=heads)


def _layer(said: str, names: list[str]) -> str:
    """Return the layer of a number, of a name, or of its full name in the model."""
    if said.isdecimal() and int(said) < len(names):
        return names[int(said)]
    for name in (said, short_name(said)):
        if name in names:
            return name
    raise unknown_choice("layers", said, names, other=f"0 to {len(names) - 1}")


def _number(said: str, what: str) -> int:
    if not said.strip().isdecimal() or len(said) > 9:
        raise InputError(f"{what} {said!r} is no whole number: give some with a comma between them, as in 0,3")
    return int(said)


def _write(found: AttentionMap, others: Sequence[tuple[str, AttentionMap]], flags: LookFlags) -> None:
    """Print what was answered, and write the files that are asked for."""
    print_table(found.table())
    if found.note:
        sys.stdout.write(f"Note: {found.note}\n")
    if flags.json is not None:
        write_json(flags.json, found.json())
        sys.stdout.write(f"Saved {flags.json}\n")
    if flags.plot is not None:
        saved = write_page(flags.plot, [found], beside=others) if others else found.save(flags.plot)
        left = len(found.layers) - len(found.drawn) if saved.suffix.lower() != PAGE else 0
        more = f", the layers that read the input; for the other {left} give --layers or a page" if left else ""
        sys.stdout.write(f"Saved {saved}{more}\n")
        open_on_screen(flags.plot)

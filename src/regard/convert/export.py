"""Handing a trained model to another program."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.convert.card import Card, model_card
from regard.convert.certificate import NAME, SENTENCES, Opened, certify, short_enough
from regard.convert.choices import Program
from regard.convert.ctranslate2 import InCTranslate2, for_ctranslate2, write_ctranslate2
from regard.convert.exportable import Exportable
from regard.convert.huggingface import USE as USE_HUGGINGFACE
from regard.convert.huggingface import InHuggingFace, for_huggingface, write_huggingface
from regard.convert.onnx import USE as USE_ONNX
from regard.convert.onnx import InOnnxRuntime, for_onnx, write_onnx
from regard.errors import InputError, unknown_choice
from regard.io import hold_lock, new_folder, write_file, write_json
from regard.progress import print_status


class Converter(NamedTuple):
    """How a run becomes a model of another program."""

    check: Callable[[Exportable], object]
    """Raise `InputError` where the program cannot hold such a run."""
    write: Callable[[Exportable, Path], None]
    """Write it into a folder that is there."""
    open: Callable[[Exportable, Path], Opened]
    """Open what was written, in the other program."""
    card: Card | None = None
    """What is particular of its model card, where one belongs to it."""


PROGRAMS: dict[str, Converter] = {
    "ctranslate2": Converter(for_ctranslate2, write_ctranslate2, InCTranslate2),
    "huggingface": Converter(
        for_huggingface,
        write_huggingface,
        InHuggingFace,
        Card("transformers", USE_HUGGINGFACE, licensed=True),
    ),
    "onnx": Converter(for_onnx, write_onnx, InOnnxRuntime, Card("onnx", USE_ONNX)),
}


def export(
    run: Exportable,
    folder: str | Path | None = None,
    *,
    to: Program = "ctranslate2",
    texts: Sequence[str] | None = None,
    license: str | None = None,
    progress: bool = True,
) -> Path:
    """Write a run's model for another program into a new folder with its `certificate.json`, and return it.

    `folder` None: one named for the program, in the run's. `texts`: sentences that both programs are compared on,
    without those that are too long for the model; None: a hundred of the run's unseen ones. `license`: under
    which others may use the model, for its card (an identifier such as cc-by-4.0); huggingface needs it, onnx
    takes it. Raises `InputError`, with nothing written, where the program cannot run such a model, or computes
    anything else than the run, the folder exists, or the program's extra is not installed; `MachineError` where
    the disk refuses.
    """
    if to not in PROGRAMS:
        raise unknown_choice("program", to, PROGRAMS)
    place = run.folder / to if folder is None else Path(folder)
    if place.exists():
        raise InputError(f"{str(place)!r} exists: choose another --output")
    PROGRAMS[to].check(run)
    card = PROGRAMS[to].card
    if card is not None and card.licensed and not license:
        raise InputError(f"{to} wants a model card, and that a licence: give --license, such as cc-by-4.0")
    sentences = short_enough(run, _unseen(run) if texts is None else texts, progress=progress)
    with hold_lock(place), new_folder(place) as building:
        print_status(f"Writing the model for {to}", show=progress)
        PROGRAMS[to].write(run, building)
        if card is not None:
            write_file(building / "README.md", model_card(run, card, license).encode())
        attest(run, building, to, sentences, progress=progress)
    return place


def attest(run: Exportable, folder: Path, to: Program, texts: Sequence[str], *, progress: bool = True) -> None:
    """Compare a run with its model for another program in `folder` on some texts, and write the certificate
    there; raises `InputError` where they are not the same."""
    certificate = certify(run, PROGRAMS[to].open(run, folder), texts, folder, progress=progress)
    certificate.check()
    write_json(folder / NAME, certificate.json())


def _unseen(run: Exportable) -> list[str]:
    try:
        return [pair[0] for pair in run.unseen(SENTENCES, 0)]
    except InputError as error:
        raise InputError(f"{error}, or give sentences to compare both programs on with --texts") from error

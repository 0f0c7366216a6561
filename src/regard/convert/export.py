"""Export a trained model to another program."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.convert import Program
from regard.convert.certificate import CERTIFICATE_NAME, SENTENCES, certify, select_sentences
from regard.convert.conversion import ConvertedModel, Exportable
from regard.convert.ctranslate2 import CTranslate2Model, get_ctranslate2_parts, write_ctranslate2
from regard.convert.huggingface import USE as USE_HUGGINGFACE
from regard.convert.huggingface import get_huggingface_parts, write_huggingface
from regard.convert.model_card import CardTemplate, model_card
from regard.convert.onnx import USE as USE_ONNX
from regard.convert.onnx import OnnxRuntimeModel, make_onnx_tokenizers, write_onnx
from regard.convert.transformers_model import MarianModel
from regard.errors import InputError, unknown_choice
from regard.io import hold_lock, new_folder, write_file, write_json
from regard.progress import print_status


class Converter(NamedTuple):
    """Functions that export a run to one program."""

    check: Callable[[Exportable], object]
    """Raise `InputError` if the program does not support the run."""
    write: Callable[[Exportable, Path], None]
    """Write the model to an existing folder."""
    open: Callable[[Exportable, Path], ConvertedModel]
    """Open the exported model in the other program."""
    card: CardTemplate | None = None
    """Program-specific parts of the model card; None if the program has no model card."""


PROGRAMS: dict[str, Converter] = {
    "ctranslate2": Converter(get_ctranslate2_parts, write_ctranslate2, CTranslate2Model),
    "huggingface": Converter(
        get_huggingface_parts,
        write_huggingface,
        MarianModel,
        CardTemplate("transformers", USE_HUGGINGFACE, licensed=True),
    ),
    "onnx": Converter(make_onnx_tokenizers, write_onnx, OnnxRuntimeModel, CardTemplate("onnx", USE_ONNX)),
}


def export(
    run: Exportable,
    folder: str | Path | None = None,
    *,
    to: Program = "ctranslate2",
    examples: Sequence[str] | None = None,
    license: str | None = None,
    progress: bool = True,
) -> Path:
    """Export a run to another program, with a `certificate.json`, and return the new folder.

    `folder` defaults to a folder inside the run, named after the program. `examples` are sentences on which both
    programs are compared (default: 100 unseen sentences of the run); sentences that are too long for the model
    are skipped. `license` is an identifier such as cc-by-4.0 for the model card; it is required for huggingface
    and optional for onnx.

    Raises `InputError`, and writes nothing, if the program does not support the model, if its results differ from
    the run's, if the folder exists, or if the program's extra is not installed. Raises `MachineError` if the disk
    cannot be written.
    """
    if to not in PROGRAMS:
        raise unknown_choice("program", to, PROGRAMS)
    target = run.folder / to if folder is None else Path(folder)
    if target.exists():
        raise InputError(f"{str(target)!r} exists: choose another --output")
    PROGRAMS[to].check(run)
    card = PROGRAMS[to].card
    if card is not None and card.licensed and not license:
        raise InputError(f"{to} needs a license for its model card: give --license, such as cc-by-4.0")
    sentences = select_sentences(run, _unseen_sources(run) if examples is None else examples, progress=progress)
    with hold_lock(target), new_folder(target) as building:
        print_status(f"Writing the model for {to}", show=progress)
        PROGRAMS[to].write(run, building)
        if card is not None:
            write_file(building / "README.md", model_card(run, card, license).encode())
        write_certificate(run, building, to, sentences, progress=progress)
    return target


def write_certificate(
    run: Exportable, folder: Path, to: Program, texts: Sequence[str], *, progress: bool = True
) -> None:
    """Compare a run with its exported model in `folder` on `texts`, and write the certificate to the folder.

    Raises `InputError` if their results differ.
    """
    certificate = certify(run, PROGRAMS[to].open(run, folder), texts, folder, progress=progress)
    certificate.check()
    write_json(folder / CERTIFICATE_NAME, certificate.json())


def _unseen_sources(run: Exportable) -> list[str]:
    try:
        return [pair[0] for pair in run.unseen(SENTENCES, 0)]
    except InputError as error:
        raise InputError(f"{error}, or give sentences for the comparison with --examples") from error

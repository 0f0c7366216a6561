"""Export a trained model to another program."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.arguments import public
from regard.convert.certificate import CERTIFICATE_NAME, SENTENCES, certify, select_sentences
from regard.convert.choices import Program
from regard.convert.ctranslate2 import CTranslate2Model, get_ctranslate2_parts, write_ctranslate2
from regard.convert.exportable import Exportable
from regard.convert.huggingface import USE as USE_HUGGINGFACE, get_huggingface_parts, write_huggingface
from regard.convert.language_certificate import certify_language_model, make_prompts, select_prompts
from regard.convert.language_export import (
    USE as USE_LANGUAGE_MODEL,
    check_language_model,
    open_language_model,
    write_language_model,
)
from regard.convert.model_card import CardTemplate, model_card
from regard.convert.transformers_model import MarianModel
from regard.errors import InputError, unknown_choice
from regard.io.folders import new_folder
from regard.io.locking import hold_lock
from regard.io.writing import write_file, write_json
from regard.progress import print_status


class Converter(NamedTuple):
    """Functions that export a run to one program."""

    check: Callable[[Any], object]
    """Raise `InputError` if the program does not support the run."""
    write: Callable[[Any, Path], None]
    """Write the model to an existing folder."""
    open: Callable[[Any, Path], Any]
    """Open the exported model in the other program."""
    card: CardTemplate | None = None
    """Program-specific parts of the model card; None if the program has no model card."""


PROGRAMS: dict[str, Converter] = {
    "ctranslate2": Converter(get_ctranslate2_parts, write_ctranslate2, CTranslate2Model),
    "huggingface": Converter(
        get_huggingface_parts,
        write_huggingface,
        MarianModel,
        CardTemplate("transformers", USE_HUGGINGFACE),
    ),
}
"""Programs for models that generate sequences from a source."""
LANGUAGE_MODEL_PROGRAMS: dict[str, Converter] = {
    "huggingface": Converter(
        check_language_model,
        write_language_model,
        open_language_model,
        CardTemplate("transformers", USE_LANGUAGE_MODEL, pipeline="text-generation"),
    ),
}
"""Programs for language models."""


@public
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
    programs are compared (default: 100 unseen sentences of the run, 20 prompts of a language model); sentences
    that are too long for the model are skipped. `license` is an identifier such as cc-by-4.0 for the model card;
    huggingface requires it.

    Raises `InputError`, and writes nothing, if the program does not support the model, if its results differ from
    the run's, if the folder exists, or if the program's extra is not installed. Raises `MachineError` if the disk
    cannot be written.
    """
    if to not in PROGRAMS:
        raise unknown_choice("program", to, PROGRAMS)
    converter = _find_converter(run, to)
    target = run.folder / to if folder is None else Path(folder)
    if target.exists():
        raise InputError(f"{str(target)!r} exists: choose another --output")
    converter.check(run)
    card = converter.card
    if card is not None and not license:
        raise InputError(f"{to} needs a license for its model card: give --license, such as cc-by-4.0")
    sentences = _select_examples(run, examples, progress=progress)
    with hold_lock(target), new_folder(target) as building:
        print_status(f"Writing the model for {to}", show=progress)
        converter.write(run, building)
        if card is not None:
            write_file(building / "README.md", model_card(run, card, str(license)).encode())
        write_certificate(run, building, to, sentences, progress=progress)
    return target


def write_certificate(
    run: Any, folder: Path, to: Program, texts: Sequence[str], *, progress: bool = True
) -> None:
    """Compare a run with its exported model in `folder` on `texts`, and write the certificate to the folder.

    Raises `InputError` if their results differ.
    """
    compare: Any = certify_language_model if run.task.answers == "tokens" else certify
    certificate = compare(run, _find_converter(run, to).open(run, folder), texts, folder, progress=progress)
    certificate.check()
    write_json(folder / CERTIFICATE_NAME, certificate.json())


def _find_converter(run: Any, to: str) -> Converter:
    """Return the functions that export a run to a program; raises `InputError` if there are none."""
    if run.task.answers == "text":
        return PROGRAMS[to]
    if run.task.answers == "numbers":
        raise InputError(
            f"run {str(run.folder)!r} answers with numbers, not text: only models that generate text or tokens "
            f"can be exported"
        )
    if to not in LANGUAGE_MODEL_PROGRAMS:
        raise InputError(
            f"run {str(run.folder)!r} is a language model, which cannot be exported to {to}: choose "
            f"{', '.join(LANGUAGE_MODEL_PROGRAMS)}"
        )
    return LANGUAGE_MODEL_PROGRAMS[to]


def _select_examples(run: Any, examples: Sequence[str] | None, *, progress: bool) -> list[str]:
    if run.task.answers == "tokens":
        texts = make_prompts(run.task, progress=progress) if examples is None else examples
        return select_prompts(run.task, texts, progress=progress)
    return select_sentences(run, _unseen_sources(run) if examples is None else examples, progress=progress)


def _unseen_sources(run: Exportable) -> list[str]:
    try:
        return [pair[0] for pair in run.unseen(SENTENCES, 0)]
    except InputError as error:
        raise InputError(f"{error}, or give sentences for the comparison with --examples") from error

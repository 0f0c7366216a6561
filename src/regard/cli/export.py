"""`regard export RUN --to ctranslate2 | huggingface | onnx`: hand a trained model to another program."""

import sys
from dataclasses import dataclass
from pathlib import Path

from regard import convert
from regard.cli.lines import read_sentences
from regard.cli.parsing import parse_of_run
from regard.convert import Program
from regard.runs import SAVEPATH, load_translator

PROG = "regard export"
DESCRIPTION = (
    "Hand a trained model to another program: a Transformer to CTranslate2, which serves translations in C++ "
    "(needs the extra export), or to Hugging Face, as a Marian model (needs the extra hub); any model that "
    "writes to ONNX (needs the extra onnx). "
    "A hundred sentences go through both programs: certificate.json says by how much they differ, "
    "and where that is more than 1e-4, nothing is written. RUN: a task's name, or a run's folder."
)


@dataclass(frozen=True, kw_only=True)
class ExportFlags:
    """All flags of the command."""

    to: Program = "ctranslate2"
    """The other program."""
    output: Path | None = None
    """New folder for the model. None: a folder named for the other program, in the run's."""
    texts: Path | None = None
    """File of sentences, one a line, to compare both programs on, in UTF-8, plain or .gz. None: a hundred of the
    run's text for validation, or else for tests."""
    license: str | None = None
    """Licence of the model, for its card: an identifier such as cc-by-4.0. For huggingface it is
    needed, for onnx it may be."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    trust_code: bool = False
    """Run the code of its own that the run names (task, model, score), which nobody has trained with here."""
    trust_edited: bool = False
    """Use the run also where its files were edited or mixed; what differs is said."""


def run(argv: list[str]) -> None:
    """Export as `argv` asks, and say where the model is."""
    name, flags = parse_of_run(ExportFlags(), argv, prog=PROG, description=DESCRIPTION, example="translation")
    run = load_translator(
        name, savepath=flags.savepath, trust_code=flags.trust_code, trust_edited=flags.trust_edited
    )
    texts = None if flags.texts is None else read_sentences(flags.texts)
    folder = convert.export(run, flags.output, to=flags.to, texts=texts, license=flags.license)
    sys.stdout.write(f"Exported to {folder}, for {flags.to}\n{convert.read_certificate(folder).summary()}\n")

"""`regard import FOLDER --from huggingface | joeynmt | fairseq`: make a run of another program's model."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from regard import convert
from regard.cli.lines import read_sentences
from regard.cli.parsing import parse_of_run
from regard.convert import Origin
from regard.runs import SAVEPATH

PROG = "regard import"
DESCRIPTION = (
    "Make a run of another program's model: of a Marian model of Hugging Face's with its tokenizer (needs the "
    "extra hub), of a Transformer that JoeyNMT 2 has trained (needs JoeyNMT), or of one of fairseq's with its "
    "dictionaries and codes (needs the extra hub). A hundred sentences go through "
    "both programs: certificate.json says by how much they differ, and where that is more than 1e-4, nothing is "
    "written. FOLDER: the model's."
)


@dataclass(frozen=True, kw_only=True)
class ImportFlags:
    """All flags of the command."""

    program: Annotated[Origin, tyro.conf.arg(name="from")] = "huggingface"
    """The other program."""
    name: str | None = None
    """Name of the run's folder. None: that of the model's."""
    savepath: Path = Path(SAVEPATH)
    """Folder of runs."""
    texts: Path | None = None
    """File of sentences, one a line, to compare both programs on, in UTF-8, plain or .gz. None: a hundred of the
    text for validation, or else for tests."""
    valid: tuple[Path, ...] = ()
    """Text that examine, prune and explorer ask about: a source and a target file with a line for each sentence,
    or one file of tab-separated pairs; plain or .gz."""
    test: tuple[Path, ...] = ()
    """Text that `regard test` reports on, in the same form."""


def run(argv: list[str]) -> None:
    """Import as `argv` asks, and say where the run is."""
    folder, flags = parse_of_run(
        ImportFlags(), argv, prog=PROG, description=DESCRIPTION, example="opus-mt-de-en", what="folder"
    )
    texts = None if flags.texts is None else read_sentences(flags.texts)
    place = convert.import_model(
        folder,
        program=flags.program,
        savepath=flags.savepath,
        name=flags.name,
        texts=texts,
        valid=flags.valid,
        test=flags.test,
    )
    sys.stdout.write(f"Imported into {place}\n{convert.read_certificate(place).summary()}\n")

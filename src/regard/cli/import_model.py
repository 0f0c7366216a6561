"""`regard import FOLDER`: import a Hugging Face model."""

import sys
from dataclasses import dataclass
from pathlib import Path

from regard.cli.lines import read_sentences
from regard.cli.parsing import read_command
from regard.runs.loading import SAVEPATH


@dataclass(frozen=True, kw_only=True)
class ImportFlags:
    """Import a Hugging Face Marian, GPT-2 or Llama model with its tokenizer as a run (needs the extra hub).
    Both programs process one hundred sentences (20 prompts for a language model), and certificate.json stores
    the largest differences between their outputs. If a difference exceeds its limit, nothing is written.
    FOLDER: the model's folder."""

    name: str | None = None
    """Name of the new run. Default: the name of the model's folder."""
    savepath: Path = Path(SAVEPATH)
    """Directory of the runs."""
    examples: Path | None = None
    """File of sentences for the comparison of both programs, one per line, UTF-8, plain or .gz. Default: 100
    sentences of the validation text, or of the test text; for a language model 20 prompts, of random tokens if
    there is no text."""
    valid: tuple[Path, ...] = ()
    """Validation text, used by examine, prune and the explorer: a source and a target file with one sentence per
    line, or one file of tab-separated pairs; plain or .gz. For a language model: one file of text."""
    test: tuple[Path, ...] = ()
    """Test text for `regard test`, in the same format."""


def run(argv: list[str]) -> None:
    """Import the model and print the run's folder and certificate."""
    [folder], flags = read_command(ImportFlags, argv, "regard import FOLDER", example="opus-mt-de-en")
    from regard.convert.certificate import read_certificate
    from regard.convert.import_model import import_model

    run_folder = import_model(
        folder,
        savepath=flags.savepath,
        name=flags.name,
        examples=None if flags.examples is None else read_sentences(flags.examples),
        valid=flags.valid,
        test=flags.test,
    )
    sys.stdout.write(f"Imported into {run_folder}\n{read_certificate(run_folder).summary()}\n")

"""`regard export RUN --to ctranslate2 | huggingface`: export a trained model."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.cli.lines import read_sentences
from regard.cli.parsing import read_command
from regard.cli.run_flags import RunFlags
from regard.convert.choices import Program


@dataclass(frozen=True, kw_only=True)
class ExportFlags:
    """Export a trained model to another program: a Transformer to CTranslate2, which serves translations in
    C++ (needs the extra export), or to Hugging Face as a Marian model (needs the extra hub); a decoder-only
    language model to Hugging Face as a GPT-2 or Llama model. Both programs process one hundred sentences (20
    prompts for a language model), and certificate.json stores the largest differences between their outputs.
    If a difference exceeds its limit, nothing is written. RUN: a task's name, or the folder of a run."""

    to: Program = "ctranslate2"
    """Target program."""
    output: Path | None = None
    """New folder for the exported model. Default: a folder inside the run, named after the program."""
    examples: Path | None = None
    """File of sentences for the comparison of both programs, one per line, UTF-8, plain or .gz. Default: 100
    sentences of the run's validation text, or of its test text; 20 unseen inputs of a language model."""
    license: str | None = None
    """License of the model for its model card: an identifier such as cc-by-4.0. Required for huggingface."""
    storage: RunFlags = field(default_factory=RunFlags)


def run(argv: list[str]) -> None:
    """Export the model and print its folder and certificate."""
    [name], flags = read_command(ExportFlags, argv, "regard export RUN", example="translation")
    from regard.convert.certificate import read_certificate
    from regard.convert.export import export

    run: Any = flags.storage.load(name)
    examples = None if flags.examples is None else read_sentences(flags.examples)
    folder = export(run, flags.output, to=flags.to, examples=examples, license=flags.license)
    sys.stdout.write(f"Exported to {folder}, for {flags.to}\n{read_certificate(folder).summary()}\n")

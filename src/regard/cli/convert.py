"""Commands that write another model: `regard prune`, `regard average`, `regard export` and `regard import`."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.cli.lines import read_sentences
from regard.cli.parsing import read_command
from regard.cli.run_flags import RunFlags
from regard.cli.terminal import print_table
from regard.convert.exportable import Program
from regard.runs.loading import SAVEPATH


@dataclass(frozen=True, kw_only=True)
class PruneFlags:
    """Remove the least important heads of a run, print the increase in loss, and save the smaller model as a
    new run. RUN: a task's name, or the folder of a run."""

    heads: int = 1
    """Number of heads to remove. Heads are removed one by one. Every layer keeps at least one head."""
    output: Path | None = None
    """Folder of the pruned run. Default: the run's folder with the suffix -pruned."""
    overwrite: bool = False
    """Replace an existing run."""
    seed: int = 0
    """Random seed of the unseen samples (0 or more)."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_prune(argv: list[str]) -> None:
    [name], flags = read_command(PruneFlags, argv, "regard prune RUN")
    from regard.runs.derived_runs import prune

    run = flags.storage.load(name)
    pruning = prune(run, flags.heads, flags.output, seed=flags.seed, overwrite=flags.overwrite)
    print_table(pruning.table(), 110)
    sys.stdout.write(f"The pruned run is in {pruning.run.folder}\n")


@dataclass(frozen=True, kw_only=True)
class AverageFlags:
    """Average the parameters of the models that a run kept during training (regard train --keep), and save
    the mean as a new run. RUN: a task's name, or the folder of a run."""

    output: Path | None = None
    """Folder of the new run. Default: the run's folder with the suffix -averaged."""
    overwrite: bool = False
    """Replace an existing run."""
    storage: RunFlags = field(default_factory=RunFlags)


def run_average(argv: list[str]) -> None:
    [name], flags = read_command(AverageFlags, argv, "regard average RUN", example="translation")
    from regard.runs.derived_runs import average

    averaged = average(flags.storage.load(name), flags.output, overwrite=flags.overwrite)
    steps = ", ".join(f"{step:,}" for step in averaged.config.averaged)
    sys.stdout.write(f"Averaged the models after {steps} steps. The run is in {averaged.folder}\n")


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


def run_export(argv: list[str]) -> None:
    [name], flags = read_command(ExportFlags, argv, "regard export RUN", example="translation")
    from regard.convert.certificate import read_certificate
    from regard.convert.exchange import export

    run: Any = flags.storage.load(name)
    examples = read_sentences(flags.examples)
    folder = export(run, flags.output, to=flags.to, examples=examples, license=flags.license)
    sys.stdout.write(f"Exported to {folder}, for {flags.to}\n{read_certificate(folder).summary()}\n")


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


def run_import(argv: list[str]) -> None:
    [folder], flags = read_command(ImportFlags, argv, "regard import FOLDER", example="opus-mt-de-en")
    from regard.convert.certificate import read_certificate
    from regard.convert.exchange import import_model

    options = {**vars(flags), "examples": read_sentences(flags.examples)}
    run_folder = import_model(folder, **options)
    sys.stdout.write(f"Imported into {run_folder}\n{read_certificate(run_folder).summary()}\n")

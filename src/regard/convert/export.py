"""Export a trained model to another program."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.arguments import public
from regard.convert.certificate import CERTIFICATE_NAME, certify, certify_language_model, select_texts
from regard.convert.ctranslate2 import CTranslate2Model, get_ctranslate2_parts, write_ctranslate2
from regard.convert.exportable import Exportable, Program
from regard.convert.huggingface import (
    USE as USE_HUGGINGFACE,
    MarianModel,
    get_huggingface_parts,
    write_huggingface,
)
from regard.convert.language_models import (
    USE as USE_LANGUAGE_MODEL,
    ConvertedLanguageModel,
    check_language_model,
    load_language_model,
    write_language_model,
)
from regard.data.unknown_tokens import read_unknown
from regard.errors import InputError
from regard.evaluation.bleu import quality
from regard.io import hold_lock, new_folder, write_file, write_json
from regard.progress import print_status
from regard.training.run_folder import RunFolder


class Converter(NamedTuple):
    """Functions that export a run to one program."""

    check: Callable[[Any], object]  # Raise `InputError` if the program does not support the run
    write: Callable[[Any, Path], None]  # Write the model to an existing folder
    open: Callable[[Any, Path], Any]  # Open the exported model in the other program
    use: str = ""
    """Instructions in Markdown for the model card on the Hugging Face Hub; empty for a program without cards."""
    pipeline: str = "translation"  # Name of the model's task on the Hub


PROGRAMS: dict[str, Converter] = {
    "ctranslate2": Converter(get_ctranslate2_parts, write_ctranslate2, CTranslate2Model),
    "huggingface": Converter(get_huggingface_parts, write_huggingface, MarianModel, USE_HUGGINGFACE),
}
"""Programs for models that generate sequences from a source."""
LANGUAGE_MODEL_PROGRAMS: dict[str, Converter] = {
    "huggingface": Converter(
        check_language_model,
        write_language_model,
        lambda run, folder: ConvertedLanguageModel(*load_language_model(folder)),
        USE_LANGUAGE_MODEL,
        pipeline="text-generation",
    ),
}
"""Programs for language models."""


def model_card(run: Any, converter: Converter, license: str) -> str:
    """Return the model card of a run in Markdown, with the YAML header for the Hub (Mitchell et al. 2019). The
    card omits unknown facts: languages that were not named, and values that were not measured."""
    task, origin = run.config.task, run.config.origin
    header: dict[str, Any] = {
        "license": license,
        "library_name": "transformers",
        "pipeline_tag": converter.pipeline,
    }
    if getattr(task, "languages", ()):
        header["language"] = list(task.languages)
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    start = f", from the parameters of another run (SHA-256 {origin.weights})" if origin else ""
    lines = [
        "---",
        *(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in header.items()),
        "---",
        f"# A {run.config.kind} model for {run.config.name}, {parameters:,} parameters",
        "",
        f"Trained with Regard for {run.step:,} steps{start}, on {_training_data(run)}. "
        "`certificate.json` contains the measured agreement of this folder with the run.",
        "",
    ]
    if not run.task.draws and run.task.answers != "tokens":
        lines += ["## Data", ""]
        if task.hub is not None:
            lines.append(f"- training: data set {task.hub}, columns {' and '.join(task.languages)}")
        else:
            parts = {"training": task.train, "validation": task.valid, "test": task.test}
            for name, files in parts.items():
                lines += [f"- {name}: {', '.join(Path(file).name for file in files)}"] if files else []
        if shares := read_unknown(run.folder):
            lines.append(f"- unknown tokens: {'; '.join(map(str, shares))}")
        lines += ["", "## Quality", "", _quality(run), ""]
    return "\n".join([*lines, "## Use", "", converter.use.rstrip(), ""])


def _training_data(run: Any) -> str:
    """Describe the training data."""
    task = run.config.task
    if run.task.draws:
        return f"samples of the task {run.config.name}"
    if run.task.answers == "tokens":
        source = "an unknown text" if task.text is None else f"the text {Path(task.text).name}"
        return f"{source}, with a vocabulary of {len(run.task.vocabulary):,} tokens ({task.tokenizer})"
    name = ",".join(Path(part).name for part in task.tokenizer.split(","))  # may be a file of the user
    case = "lowercased text" if task.lowercase else "cased text"
    return f"{case}, tokenized with a vocabulary of {len(run.task.source_vocabulary):,} tokens ({name})"


def _quality(run: Any) -> str:
    """Return the BLEU score measured during training."""
    task = run.config.task
    measured = [line for line in RunFolder(run.folder).read_metrics() if "bleu" in line]
    if not measured and run.step and (task.valid or task.hub):
        return "Unknown: the measurements during training are lost."
    if not measured:
        return "Not measured: there was no validation text."
    lowercase = task.lowercase
    signatures = quality(["a"], ["a"], lowercase=lowercase, tokenize=run.config.bleu_tokenizer).signatures
    last = next((line for line in measured if line["step"] == run.step), measured[-1])
    return (
        f"BLEU {last['bleu']:.1f} on the validation text at step {last['step']:,}, by greedy search "
        f"({signatures['bleu_lowercase' if lowercase else 'bleu']}). No test set was measured."
    )


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
    converter = _find_converter(run, to)
    target = run.folder / to if folder is None else Path(folder)
    if target.exists():
        raise InputError(f"{str(target)!r} exists: choose another --output")
    converter.check(run)
    if converter.use and not license:
        raise InputError(f"{to} needs a license for its model card: give --license, such as cc-by-4.0")
    sentences = select_texts(run, examples, progress=progress)
    with hold_lock(target), new_folder(target) as building:
        print_status(f"Writing the model for {to}", show=progress)
        converter.write(run, building)
        if converter.use:
            write_file(building / "README.md", model_card(run, converter, str(license)).encode())
        write_certificate(run, building, to, sentences, progress=progress)
    return target


def write_certificate(run: Any, folder: Path, to: Program, texts: Sequence[str], *, progress: bool = True) -> None:
    """Compare a run with its exported model in `folder` on `texts`, and write the certificate to the folder.
    Raises `InputError` if their results differ."""
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

"""Export a trained model to another program."""

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from regard.arguments import public
from regard.convert.certificate import CERTIFICATE_NAME, ImportedModel, certify, certify_language_model, select_texts
from regard.convert.ctranslate2 import CTranslate2Model, get_ctranslate2_parts, write_ctranslate2
from regard.convert.exportable import Exportable, Program
from regard.convert.huggingface import (
    MEND,
    USE as USE_HUGGINGFACE,
    MarianModel,
    get_huggingface_parts,
    read_marian,
    write_huggingface,
)
from regard.convert.language_models import (
    FAMILIES,
    USE as USE_LANGUAGE_MODEL,
    ConvertedLanguageModel,
    check_language_model,
    load_language_model,
    read_language_model,
    write_language_model,
)
from regard.data.unknown_tokens import read_unknown
from regard.errors import InputError
from regard.evaluation.bleu import quality
from regard.external.loading import check_sizes
from regard.io import check_name, hold_lock, is_file, is_folder, new_folder, read_json, write_file, write_json
from regard.plugins import describe_error
from regard.progress import print_status
from regard.training.building import build_model
from regard.training.checkpoint import Checkpoint
from regard.training.config import RunConfig, make_config
from regard.training.run_folder import RunFolder, create_run, digest_tensors, is_run_folder, vocabulary_digest


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
    )
}
"""Programs for language models."""


def model_card(run: Any, converter: Converter, license: str) -> str:
    """Return the model card of a run in Markdown, with the YAML header for the Hub (Mitchell et al. 2019). The
    card omits unknown facts: languages that were not named, and values that were not measured."""
    task, origin = run.config.task, run.config.origin
    header: dict[str, Any] = {"license": license, "library_name": "transformers", "pipeline_tag": converter.pipeline}
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
    output: str | Path | None = None,
    *,
    to: Program = "ctranslate2",
    examples: Sequence[str] | None = None,
    license: str | None = None,
    progress: bool = True,
) -> Path:
    """Export a run to another program, with a `certificate.json`, and return the new folder.

    `output` defaults to a folder inside the run, named after the program. `examples` are sentences on which both
    programs are compared (default: 100 unseen sentences of the run, 20 prompts of a language model); sentences
    that are too long for the model are skipped. `license` is an identifier such as cc-by-4.0 for the model card;
    huggingface requires it.

    Raises `InputError`, and writes nothing, if the program does not support the model, if its results differ from
    the run's, if the folder exists, or if the program's extra is not installed. Raises `MachineError` if the disk
    cannot be written.
    """
    converter = _find_converter(run, to)
    target = run.folder / to if output is None else Path(output)
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


# Import a Hugging Face model as a run, with a certificate of the agreement of both programs.


class _ModelConfig(msgspec.Struct):
    """The part of the model's config that is checked before transformers reads the config."""

    model_type: str


def read_huggingface(folder: Path) -> ImportedModel:
    """Read a folder written by `save_pretrained`. Raises `InputError` if the folder has no supported model or
    is damaged, if Regard's models cannot represent the model, or if the extra `hub` is not installed."""
    if not is_folder(folder):
        raise InputError(f"{str(folder)!r} is not a folder: give a folder written by save_pretrained")
    if not is_file(folder / "config.json"):
        raise InputError(
            f"{str(folder)!r} has no config.json, which all Hugging Face models have: convert models of other "
            f"programs to Hugging Face first"
        )
    kind = read_json(folder / "config.json", _ModelConfig, MEND, finite=False).model_type
    check_sizes(str(folder), read_json(folder / "config.json", dict[str, Any], MEND, finite=False))
    if kind in FAMILIES:
        return read_language_model(folder)
    if kind != "marian":
        raise InputError(
            f"model_type {kind} is not supported: choose a model of {', '.join(('marian', *FAMILIES))}; inspect "
            f"other models with `regard look`"
        )
    return read_marian(folder)


@public
def import_model(
    folder: str | Path,
    *,
    savepath: str | Path = "models",
    name: str | None = None,
    examples: Sequence[str] | None = None,
    valid: Sequence[str | Path] = (),
    test: Sequence[str | Path] = (),
    progress: bool = True,
) -> Path:
    """Import a Marian, GPT-2 or Llama model of Hugging Face as a run, and return the run's folder.

    The run's `certificate.json` states the agreement of both programs. `name` is the run's name under `savepath`
    (default: the name of the model's folder). `valid` and `test` are the run's validation and test text: a
    source and a target file, or one file of pairs; for a language model, `valid` is one text. `examples` are
    sentences on which both programs are compared (default: the first 100 sources of `valid`, or of `test`; for a
    language model, 20 parts of `valid`, or random tokens); sentences that are too long for the model are skipped.

    Raises `InputError`, and writes nothing, if the model cannot be represented, if its results differ from the
    other program's, if the run exists, or if the program is not installed. Raises `MachineError` if the disk
    cannot be written.
    """
    folder = Path(folder)
    if is_run_folder(folder):
        raise InputError(f"{str(folder)!r} is already a run of Regard: open it with `regard show {folder}`")
    # `resolve` raises for a link that points to itself. Reading such a folder raises an error below.
    run_name = Path(os.path.realpath(folder)).name if name is None else name
    check_name(Path(run_name))
    target = Path(savepath) / run_name
    if RunFolder(target).exists():
        raise InputError(f"{str(target)!r} already contains a run: give another --name, or another --savepath")
    imported = read_huggingface(folder)
    language = imported.task == "text"
    texts: dict[str, Any] = {"valid": tuple(map(str, valid)), "test": tuple(map(str, test))}
    if language and (len(valid) > 1 or test):
        raise InputError("a language model has a single text: give --valid FILE, and leave out --test")
    if language:
        texts = {"text": str(valid[0])} if valid else {}
    model_flags = {**imported.flags, **texts, "model": "decoder" if language else "transformer"}
    config = make_config(imported.task, model_flags).resolved()
    task: Any = config.task_class(config.task, *imported.vocabularies)
    config = dataclasses.replace(config, tokenizer=vocabulary_digest(task.files))
    model: Any = build_model(config, task).eval()
    try:
        model.load_state_dict(dict(imported.parameters))
    except RuntimeError as error:  # its message has one line per parameter
        raise InputError(
            f"{str(folder)!r} is damaged: its parameters do not match its config ({describe_error(error, 150)}); {MEND}"
        ) from error
    config = dataclasses.replace(config, initial=digest_tensors(model.state_dict()))
    with hold_lock(target), create_run(target, config, overwrite=False) as building:
        building.write_vocabularies(task.files)
        Checkpoint(step=0, weights=model.state_dict()).save(building)
        run = _ImportedRun(building.path, config, 0, task, model)
        compare: Any = certify_language_model if language else certify
        sentences = select_texts(run, examples, progress=progress)
        certificate = compare(run, imported.open(run), sentences, folder, progress=progress)
        certificate.check()
        write_json(building.path / CERTIFICATE_NAME, certificate.json())
    return RunFolder(target).path


@dataclass(frozen=True)
class _ImportedRun:
    """The imported run before its folder is complete, for the comparison with the other program."""

    folder: Path
    config: RunConfig
    step: int
    task: Any
    model: Any

    def unseen(self, samples: int, seed: int) -> list[tuple[str, str]]:
        """Return the first pairs of the validation text, or of the test text."""
        text = self.task.config.text("valid") or self.task.config.text("test")
        most, encode = self.task.longest_source, self.task.source_vocabulary.encode
        short = (pair for pair in text or () if len(encode(pair[0])) <= most)
        return list(islice(short, samples))

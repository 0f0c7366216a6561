"""Import a Hugging Face model as a run, with a certificate of the agreement of both programs."""

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from regard.arguments import public
from regard.convert.certificate import CERTIFICATE_NAME, certify, certify_language_model, select_texts
from regard.convert.conversion import ImportedModel
from regard.convert.huggingface import MEND, read_marian
from regard.convert.language_models import FAMILIES, read_language_model
from regard.errors import InputError
from regard.external.loading import check_sizes
from regard.io import check_name, hold_lock, is_file, is_folder, read_json, write_json
from regard.plugins import describe_error
from regard.training.building import build_model
from regard.training.checkpoint import Checkpoint
from regard.training.config import RunConfig, make_config
from regard.training.run_folder import RunFolder, create_run, is_run_folder, vocabulary_digest
from regard.training.tensor_file import digest_tensors


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
    task: Any = config.task_class(config.task, *imported.vocabularies)  # type: ignore[call-arg]
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
        del seed
        text = self.task.config.text("valid") or self.task.config.text("test")
        most, encode = self.task.longest_source, self.task.source_vocabulary.encode
        short = (pair for pair in text or () if len(encode(pair[0])) <= most)
        return list(islice(short, samples))

"""Import a Hugging Face model as a run, with a certificate of the agreement of both programs."""

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.arguments import public
from regard.convert.certificate import CERTIFICATE_NAME, SENTENCES, Certificate, certify, select_sentences
from regard.convert.huggingface_import import read_huggingface
from regard.convert.language_certificate import certify_language_model, make_prompts, select_prompts
from regard.errors import InputError
from regard.io.locking import hold_lock
from regard.io.writing import check_name, write_json
from regard.plugins import describe_error
from regard.training.building import build_model
from regard.training.checkpoint import Checkpoint
from regard.training.config import RunConfig, make_config
from regard.training.run_folder import RunFolder, create_run, is_run_folder
from regard.training.stored_config import vocabulary_digest
from regard.training.tensor_file import digest_tensors


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
    model_flags = {
        **imported.flags,
        **_text_flags(language, valid, test),
        "model": "decoder" if language else "transformer",
    }
    config = make_config(imported.task, model_flags).resolved()
    task: Any = config.task_class(config.task, *imported.vocabularies)  # type: ignore[call-arg]
    config = dataclasses.replace(config, tokenizer=vocabulary_digest(task.files))
    model: Any = build_model(config, task).eval()
    try:
        model.load_state_dict(dict(imported.parameters))
    except RuntimeError as error:  # its message has one line per parameter
        raise InputError(
            f"{str(folder)!r} is damaged: its parameters do not match its config ({describe_error(error, 150)}); "
            f"download it again"
        ) from error
    config = dataclasses.replace(config, initial=digest_tensors(model.state_dict()))
    with hold_lock(target), create_run(target, config, overwrite=False) as building:
        building.write_vocabularies(task.files)
        Checkpoint(step=0, weights=model.state_dict()).save(building)
        run = _ImportedRun(building.path, config, 0, task, model)
        certificate = _certify(run, imported.open(run), examples, folder, progress=progress)
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

    def kept_heads(self) -> None:
        """Return None, because an imported run has no chosen alignment heads."""

    def unseen(self, samples: int, seed: int) -> list[tuple[str, str]]:
        """Return the first pairs of the validation text, or of the test text."""
        del seed
        text = self.task.config.text("valid") or self.task.config.text("test")
        most, encode = self.task.longest_source, self.task.source_vocabulary.encode
        return (
            [] if text is None else list(islice((pair for pair in text if len(encode(pair[0])) <= most), samples))
        )


def _text_flags(
    language: bool, valid: Sequence[str | Path], test: Sequence[str | Path]
) -> dict[str, tuple[str, ...] | str]:
    """Return the flags of validation and test text. A language model has a single text."""
    if not language:
        return {"valid": tuple(map(str, valid)), "test": tuple(map(str, test))}
    if len(valid) > 1 or test:
        raise InputError("a language model has a single text: give --valid FILE, and leave out --test")
    return {"text": str(valid[0])} if valid else {}


def _certify(
    run: _ImportedRun, other: Any, examples: Sequence[str] | None, folder: Path, *, progress: bool
) -> Certificate:
    if run.task.answers == "tokens":
        texts = make_prompts(run.task, progress=progress) if examples is None else examples
        prompts = select_prompts(run.task, texts, progress=progress)
        return certify_language_model(run, other, prompts, folder, progress=progress)
    texts = [source for source, _ in run.unseen(SENTENCES, 0)] if examples is None else examples
    return certify(run, other, select_sentences(run, texts, progress=progress), folder, progress=progress)

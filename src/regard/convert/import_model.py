"""Import a model of another program as a run, with a certificate of the agreement of both programs."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.convert import Origin
from regard.convert.certificate import CERTIFICATE_NAME, SENTENCES, certify, select_sentences
from regard.convert.conversion import ImportedModel
from regard.convert.fairseq import read_fairseq
from regard.convert.huggingface_import import read_huggingface
from regard.convert.joeynmt import read_joeynmt
from regard.errors import InputError, unknown_choice
from regard.io import check_name, hold_lock, write_json
from regard.models import Seq2Seq, Transformer
from regard.plugins import describe_error
from regard.tasks import Translation
from regard.training import (
    Checkpoint,
    RunConfig,
    RunFolder,
    create_run,
    digest_tensors,
    make_config,
    vocabulary_digest,
)
from regard.training.run_folder import is_run_folder

ORIGINS: dict[str, Callable[[Path], ImportedModel]] = {
    "huggingface": read_huggingface,
    "joeynmt": read_joeynmt,
    "fairseq": read_fairseq,
}
"""Function that reads a model folder, for each program."""


def import_model(
    folder: str | Path,
    *,
    program: Origin = "huggingface",
    savepath: str | Path = "models",
    name: str | None = None,
    examples: Sequence[str] | None = None,
    valid: Sequence[str | Path] = (),
    test: Sequence[str | Path] = (),
    progress: bool = True,
) -> Path:
    """Import a model of another program as a run with a `certificate.json`, and return the run's folder.

    `name` is the run's name under `savepath` (default: the name of the model's folder). `valid` and `test` are
    the run's validation and test text: a source and a target file, or one file of pairs. `examples` are sentences
    on which both programs are compared (default: the first 100 sources of `valid`, or of `test`); sentences that
    are too long for the model are skipped.

    Raises `InputError`, and writes nothing, if the model cannot be represented, if its results differ from the
    other program's, if the run exists, or if the program is not installed. Raises `MachineError` if the disk
    cannot be written.
    """
    if program not in ORIGINS:
        raise unknown_choice("program", program, ORIGINS)
    folder = Path(folder)
    if is_run_folder(folder):
        raise InputError(f"{str(folder)!r} is already a run of Regard: open it with `regard show {folder}`")
    # `resolve` raises for a link that points to itself. Reading such a folder raises an error below.
    run_name = Path(os.path.realpath(folder)).name if name is None else name
    check_name(Path(run_name))
    target = Path(savepath) / run_name
    if RunFolder(target).exists():
        raise InputError(f"{str(target)!r} already contains a run: give another --name, or another --savepath")
    imported = ORIGINS[program](folder)
    texts = {"valid": tuple(map(str, valid)), "test": tuple(map(str, test))}
    config = make_config("translation", {**imported.flags, **texts, "model": "transformer"}).resolved()
    task: Any = Translation(config.task, *imported.vocabularies)  # type: ignore[arg-type]
    config = dataclasses.replace(config, tokenizer=vocabulary_digest(task.files))
    model = Transformer(config.model, **task.sizes).eval()  # type: ignore[arg-type]
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
        texts_to_compare = [source for source, _ in run.unseen(SENTENCES, 0)] if examples is None else examples
        sentences = select_sentences(run, texts_to_compare, progress=progress)
        certificate = certify(run, imported.open(run), sentences, folder, progress=progress)
        certificate.check()
        write_json(building.path / CERTIFICATE_NAME, certificate.json())
    return RunFolder(target).path


@dataclass(frozen=True)
class _ImportedRun:
    """The imported run before its folder is complete, for the comparison with the other program."""

    folder: Path
    config: RunConfig
    step: int
    task: Translation
    model: Seq2Seq

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

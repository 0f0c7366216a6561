"""Taking in a model of another program: it becomes a run, with a certificate that both are the same."""

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.convert.arriving import Arrived, read_huggingface
from regard.convert.certificate import NAME, SENTENCES, certify, short_enough
from regard.convert.choices import Origin
from regard.convert.fairseq import read_fairseq
from regard.convert.joeynmt import read_joeynmt
from regard.errors import InputError, unknown_choice
from regard.io import check_name, hold_lock, write_json
from regard.models import Seq2Seq, Transformer
from regard.plugins import describe_error
from regard.tasks import Translation
from regard.training import RunConfig, RunFolder, digest, digest_tensors, make_config, new_run
from regard.training.run_paths import holds_run

ORIGINS: dict[str, Callable[[Path], Arrived]] = {
    "huggingface": read_huggingface,
    "joeynmt": read_joeynmt,
    "fairseq": read_fairseq,
}
"""How a folder of each program is read."""


def import_model(
    folder: str | Path,
    *,
    program: Origin = "huggingface",
    savepath: str | Path = "models",
    name: str | None = None,
    texts: Sequence[str] | None = None,
    valid: Sequence[str | Path] = (),
    test: Sequence[str | Path] = (),
    progress: bool = True,
) -> Path:
    """Make a run of another program's model, with its `certificate.json`, and return its folder.

    `name`: of the run's folder under `savepath`; None: that of the model's. `valid`, `test`: text of the run, a
    source and a target file, or one of pairs, for what asks it about text that it has not seen. `texts`:
    sentences that both programs are compared on, without those that are too long for the model; None: the first
    hundred sources of `valid`, or of `test`. Raises `InputError`, with nothing written, where the model cannot be
    represented, or computes anything else here than there, a run is there already, or the program is not
    installed; `MachineError` where the disk refuses.
    """
    if program not in ORIGINS:
        raise unknown_choice("program", program, ORIGINS)
    folder = Path(folder)
    if holds_run(folder):
        raise InputError(f"{str(folder)!r} is a run already: open it with `regard show {folder}`")
    # `resolve` raises for a link that leads to itself; such a folder is refused below, where it is read.
    called = Path(os.path.realpath(folder)).name if name is None else name
    check_name(Path(called))
    place = Path(savepath) / called
    if RunFolder(place).exists():
        raise InputError(f"{str(place)!r} holds a run already: give another --name, or another --savepath")
    arrived = ORIGINS[program](folder)
    written = {"valid": tuple(map(str, valid)), "test": tuple(map(str, test))}
    config = make_config("translation", {**arrived.flags, **written, "model": "transformer"}).resolved()
    source, target = arrived.vocabularies
    made: Any = Translation(config.task, source, target)  # type: ignore[arg-type]
    task: Translation = made
    config = dataclasses.replace(config, tokenizer=digest(task.files))
    model = Transformer(config.model, **task.sizes).eval()  # type: ignore[arg-type]
    try:
        model.load_state_dict(dict(arrived.parameters))
    except RuntimeError as error:  # which has a line for each
        raise InputError(
            f"{str(folder)!r} is damaged: its parameters are not of its sizes ({describe_error(error, 150)}); "
            f"fetch it anew"
        ) from error
    config = dataclasses.replace(config, initial=digest_tensors(model.state_dict()))
    with hold_lock(place), new_run(place, config, overwrite=False) as building:
        building.write_vocabularies(task.files)
        building.write_model(0, model.state_dict())
        run = _Taken(building.path, config, 0, task, model)
        given = [source for source, _ in run.unseen(SENTENCES, 0)] if texts is None else texts
        sentences = short_enough(run, given, progress=progress)
        certificate = certify(run, arrived.open(run), sentences, folder, progress=progress)
        certificate.check()
        write_json(building.path / NAME, certificate.json())
    return RunFolder(place).path


@dataclass(frozen=True)
class _Taken:
    """A run that is being made."""

    folder: Path
    config: RunConfig
    step: int
    task: Translation
    model: Seq2Seq

    def kept_heads(self) -> None:
        """Nobody has chosen any yet."""

    def unseen(self, samples: int, seed: int) -> list[tuple[str, str]]:
        """Return the first pairs of the text for validation, or else for tests."""
        del seed
        text = self.task.config.text("valid") or self.task.config.text("test")
        most, encode = self.task.longest_source, self.task.source_vocabulary.encode
        return (
            [] if text is None else list(islice((pair for pair in text if len(encode(pair[0])) <= most), samples))
        )

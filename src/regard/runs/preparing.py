"""A part of a training's corpus, prepared before the training: by this machine, while others prepare theirs."""

import re
from pathlib import Path
from typing import Any, cast

from regard.data.making import CorpusPart
from regard.errors import InputError
from regard.runs.loading import SAVEPATH, load
from regard.runs.run_config import asked, begun_from
from regard.runs.train import PREPARED
from regard.tasks import Translation, TranslationConfig

MOST = 10_000
"""Parts of a corpus."""


def prepare(
    task: str,
    part: str,
    *,
    savepath: str | Path = SAVEPATH,
    start_from: str | Path | None = None,
    progress: bool = True,
    trust_code: bool = False,
    trust_edited: bool = False,
    **flags: Any,
) -> list[int]:
    """Prepare a part of the text that a training is to learn from, and return which parts are missing still.

    `part`: such as "3/16", the third of sixteen. All machines that prepare one need the text and the folder
    `savepath`, under which the vocabulary is learned by the first of them; the others wait for it. `task`,
    `start_from` and `flags` are those of the training (`regard.train`). What is there is not prepared again.
    Raises `InputError` for what cannot be asked, and where the text cannot be read; `MachineError` where the disk
    refuses.
    """
    chosen = _part(part)
    before = None
    if start_from is not None:
        before = load(start_from, savepath=savepath, trust_code=trust_code, trust_edited=trust_edited)
        config = begun_from(before, task, flags)
    else:
        config = asked(task, flags)
    if not issubclass(config.task_class, Translation):
        raise InputError(f"prepare {part} is for text, which task {config.name} has none of: leave it out")
    root, text = Path(savepath) / PREPARED, cast(TranslationConfig, config.task)
    if before is None:
        built = config.task_class.prepare(text, root, progress=progress)
    else:
        built = config.task_class.restore(text, before.task.files)
    missing = [each.part(chosen) for each in built.preparations(root, progress=progress)]
    return sorted({number for each in missing for number in each})


def _part(text: str) -> CorpusPart:
    found = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", text)
    part = CorpusPart(int(found[1]), int(found[2])) if found else CorpusPart(0, 0)
    if not 1 <= part.number <= part.parts <= MOST:
        raise InputError(f"prepare {text!r} is no part: give one of n, from 1/n to n/n, such as 3/16")
    return part

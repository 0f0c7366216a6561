"""Digests of the files of a checkpoint that several processes write: each seals and checks its share."""

from pathlib import Path

import msgspec

from regard.io import write_json
from regard.io.reading import add_digest, has_valid_digest, list_files, read_json
from regard.training.folder import MEND, RunFolder
from regard.training.stored import differences, file_digest, is_intact

DIGESTS = "digests"
"""Begins the names of files of digests, in a checkpoint that several processes have written."""


class _Digests(msgspec.Struct, forbid_unknown_fields=True):
    """What a file of digests holds."""

    config: str
    files: dict[str, str]
    """SHA-256 of each, by name."""
    digest: str


def seal_checkpoint(folder: RunFolder, checkpoint: Path, rank: int, size: int) -> None:
    """Write digests of a checkpoint's files beside them: process `rank` of `size`, of its share of them."""
    mine = [path for path in list_files(checkpoint) if path.suffix != ".json"][rank::size]
    files = {path.name: file_digest(path) for path in mine}
    content = {"config": folder.config_text, "files": files}
    write_json(checkpoint / f"{DIGESTS}-{rank}.json", add_digest(content))


def check_checkpoint(folder: RunFolder, checkpoint: Path, rank: int, size: int) -> None:
    """Raise `InputError` where a checkpoint's files were edited, or are another run's.

    Process `rank` of `size` reads its share of them.
    """
    every = list_files(checkpoint)
    files = [path for path in every if path.suffix != ".json"]
    kept = [
        read_json(path, _Digests, MEND, finite=False) for path in every if path.name.startswith(f"{DIGESTS}-")
    ]
    if not kept and not folder.has_digests:
        return
    known = {name: digest for each in kept for name, digest in each.files.items()}
    stored = folder.stored()
    if (
        not all(has_valid_digest(msgspec.to_builtins(each)) for each in kept)
        or known.keys() != {path.name for path in files}
        or any(known[path.name] != file_digest(path) for path in files[rank::size])
    ):
        folder.refuse_edited(checkpoint.name, "its files have changed since they were written")
    elif not (folder.trust_edited and not is_intact(stored)):
        for each in kept:
            if each.config != folder.config_text:
                what = differences(stored, each.config, checkpoint.name) or "it names no config"
                folder.refuse_edited(checkpoint.name, what)

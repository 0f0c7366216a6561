"""Several files that appear together, written bit by bit."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from regard.io import temporary
from regard.io.temporary import remove_quietly
from regard.io.writing import cannot_write, sync_folder


@contextmanager
def writing_files(paths: Sequence[Path]) -> Iterator[Sequence[BinaryIO]]:
    """Write files bit by bit: yields them open, to be filled in the block. They take their places when it ends,
    one after the other; where it fails, none does.

    What stood there is replaced. Raises `InputError` or `MachineError` (see `cannot_write`) where the disk
    refuses.
    """
    buildings: list[Path] = []
    path = Path()
    try:
        with ExitStack() as stack:
            files = []
            for path in paths:
                temporary.tidy(path.parent)
                buildings.append(temporary.temporary_path(path))
                files.append(stack.enter_context(buildings[-1].open("xb")))
            yield files
            for file in files:
                file.flush()
                os.fsync(file.fileno())
        for path, building in zip(paths, buildings, strict=True):
            building.replace(path)
            sync_folder(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        for building in buildings:
            remove_quietly(building)

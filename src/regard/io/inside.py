"""Files of a folder that is being filled over hours, as a run's is: it may be moved or removed meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.errors import InputError, MachineError
from regard.io.writing import cannot_write, open_regular, refuse_links, write_file


def write_inside(folder: Path, path: Path, content: bytes) -> None:
    """Replace the file at `path`, in `folder` or in a folder of it, which is made where it is missing.

    Raises `InputError` where that folder is a link, `MachineError` where `folder` is gone or the disk refuses.
    """
    with explain_missing_folder(folder):
        if path.parent != folder:
            refuse_links(path.parent)
            try:
                path.parent.mkdir(exist_ok=True)
            except OSError as error:
                raise cannot_write(path.parent, error) from error
        write_file(path, content)


def append_inside(folder: Path, path: Path, content: bytes) -> None:
    """Add to the file at `path` in `folder`; raises as `write_inside` does, also where the file is a link."""
    with explain_missing_folder(folder):
        try:
            with open_regular(path, "ab") as file:
                file.write(content)
        except OSError as error:
            raise cannot_write(path, error) from error


@contextmanager
def explain_missing_folder(folder: Path) -> Iterator[None]:
    """Raise `MachineError` where something in the block fails because `folder` is gone."""
    try:
        yield
    except InputError as error:
        if folder.is_dir():
            raise
        raise MachineError(
            f"{str(folder)!r} was moved or removed while it was written: put it back and go on with --resume, or "
            f"begin again"
        ) from error

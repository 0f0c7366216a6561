"""What is handed out to learners: new files in a folder, which never take the place of their own."""

from collections.abc import Mapping
from pathlib import Path

from regard.errors import InputError
from regard.files import cannot_write, check_name, write_file
from regard.reading import is_file


def hand_out(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write texts into a folder, by the names of their files; raises `InputError` where one is there already."""
    paths = {folder / name: text for name, text in texts.items()}
    check_name(folder)
    for path in paths:
        if is_file(path):
            raise InputError(
                f"file {str(path)!r} is there already: choose another folder, your work is not overwritten"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            write_file(path, text.encode())
    except OSError as error:
        raise cannot_write(folder, error) from error
    return list(paths)

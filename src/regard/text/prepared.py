"""What has been prepared of texts, in one folder; names say of which text, and with which settings.

    text-TEXT.json                     where the text was found, and where its stretches are
    vocabulary-TEXT-SETTINGS.json
    corpus-TEXT-SETTINGS/              and, beside it, folders of its guides

TEXT is a digest of the text's identity. Where a text has changed, what was prepared of the older one is removed.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from regard.errors import InputError
from regard.files import cannot_write, holding, is_in_use, remove_quietly, write_json
from regard.progress import reading_bar, tell
from regard.reading import is_file, read_json
from regard.text.corpus import INDEX
from regard.text.parallel import Text, Together
from regard.text.stretches import Spans, find_spans

MEND = "delete it to have it made anew"
Place = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Extent(msgspec.Struct, forbid_unknown_fields=True):
    """Of what a text consists."""

    text: list[str]
    """Where it was found."""
    stretches: Place
    spans: list[list[tuple[Place, Place]]] | None = None
    """Where each is in each file, of plain files."""
    checked: bool = False
    """Whether its files were found whole: see `parallel.check_files`."""


def digest(*content: Any) -> str:
    """Return a name for plain data."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def texts_in(text: Text) -> list[Text]:
    """Return the texts that one consists of."""
    return list(text.texts) if isinstance(text, Together) else [text]


def extent_of(text: Text, root: Path, *, progress: bool) -> Extent:
    """Return of what a text consists, found out or read from `root`, from which what was prepared of an older
    text at the same place is removed then.

    Raises `InputError` where the text cannot be read, or is broken and not lenient: before anything is written.
    """
    file = root / f"text-{digest(text.identity())}.json"
    if is_file(file) and ((found := read_json(file, Extent, MEND)).checked or text.lenient):
        return found
    text.check()
    spans: Spans | None = None
    if isinstance(text, Together):
        stretches = sum(extent_of(each, root, progress=progress).stretches for each in text.texts)
    else:
        with reading_bar("look through the text", text.bytes, show=progress) as text.on_bytes:
            stretches, spans = find_spans(text)
    found = Extent(text.names(), stretches, spans, checked=not (text.lenient or text.strict))
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(root, error) from error
    write_json(file, msgspec.to_builtins(found), indent=0)
    if found.text:
        _remove_older(file, found.text, progress=progress)
    return found


def _remove_older(file: Path, names: list[str], *, progress: bool) -> None:
    """Remove what was prepared of older texts that were where the one of `file` is, but for what is in use."""
    for older in sorted(file.parent.glob("text-*.json")):
        if older == file or read_json(older, Extent, MEND).text != names:
            continue
        name = older.stem.removeprefix("text-")
        if all(list(_removed(file.parent, name))):
            for path in [*file.parent.glob(f"vocabulary-{name}-*.json"), older]:
                remove_quietly(path)
            tell(f"the text has changed: what was prepared of the older one is removed ({name})", show=progress)


def _removed(root: Path, name: str) -> Iterator[bool]:
    """Remove the corpora of a text; yields of each whether it is gone."""
    for folder in sorted(root.glob(f"corpus-{name}-*")):
        if "-guide-" in folder.name:
            continue
        try:
            with holding(folder):
                if used := is_in_use(folder / INDEX):
                    yield not used
                    continue
                remove_quietly(folder / INDEX)  # first, for without it what is left is no corpus
                shutil.rmtree(folder, ignore_errors=True)
                for guide in root.glob(f"{folder.name}-guide-*"):
                    remove_quietly(guide)
                yield True
        except InputError:  # somebody is still making it
            yield False

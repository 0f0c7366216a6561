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

from regard.data.chunks import Spans, find_spans, is_plain
from regard.data.corpus import INDEX
from regard.data.parallel import Text, Together
from regard.errors import InputError
from regard.io import holding, is_in_use, make_folder, remove_quietly, write_json
from regard.io.reading import damaged, is_file, is_sealed, read_json, sealed
from regard.progress import reading_bar, tell

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
    digest: str = ""
    """Of all that stands before it here."""


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
    if is_file(file):
        kept = read_json(file, Extent, MEND)
        if not is_sealed(msgspec.to_builtins(kept)):
            raise damaged(file, "it has changed since it was written", MEND)
        # The same text may be somewhere else by now, or be compressed.
        whole = kept.checked or text.lenient
        if whole and kept.text == text.names() and (kept.spans is not None) == is_plain(text):
            return kept
    text.check()
    spans: Spans | None = None
    if isinstance(text, Together):
        stretches = sum(extent_of(each, root, progress=progress).stretches for each in text.texts)
    else:
        with reading_bar("look through the text", text.bytes, show=progress) as text.on_bytes:
            stretches, spans = find_spans(text)
    found = Extent(text.names(), stretches, spans, checked=not (text.lenient or text.strict))
    make_folder(root)
    content = {name: value for name, value in msgspec.to_builtins(found).items() if name != "digest"}
    write_json(file, sealed(content), indent=0)
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

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

from regard.data.chunks import ChunkRanges, find_chunks, is_plain
from regard.data.corpus import INDEX
from regard.data.parallel import ConcatenatedText, PairSource
from regard.errors import InputError
from regard.io import hold_lock, is_in_use, make_folder, remove_quietly, write_json
from regard.io.reading import add_digest, damaged_file, has_valid_digest, is_file, read_json
from regard.progress import print_status, reading_bar

MEND = "delete it to have it made anew"
Place = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class TextIndex(msgspec.Struct, forbid_unknown_fields=True):
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


def short_digest(*content: Any) -> str:
    """Return a name for plain data."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def texts_in(text: PairSource) -> list[PairSource]:
    """Return the texts that one consists of."""
    return list(text.texts) if isinstance(text, ConcatenatedText) else [text]


def index_text(text: PairSource, root: Path, *, progress: bool) -> TextIndex:
    """Return of what a text consists, found out or read from `root`, from which what was prepared of an older
    text at the same place is removed then.

    Raises `InputError` where the text cannot be read, or is broken and not lenient: before anything is written.
    """
    file = root / f"text-{short_digest(text.identity())}.json"
    if is_file(file):
        kept = read_json(file, TextIndex, MEND)
        if not has_valid_digest(msgspec.to_builtins(kept)):
            raise damaged_file(file, "it has changed since it was written", MEND)
        # The same text may be somewhere else by now, or be compressed.
        whole = kept.checked or text.lenient
        if whole and kept.text == text.names() and (kept.spans is not None) == is_plain(text):
            return kept
    text.check()
    spans: ChunkRanges | None = None
    if isinstance(text, ConcatenatedText):
        stretches = sum(index_text(each, root, progress=progress).stretches for each in text.texts)
    else:
        with reading_bar("look through the text", text.bytes, show=progress) as text.on_bytes:
            stretches, spans = find_chunks(text)
    found = TextIndex(text.names(), stretches, spans, checked=not (text.lenient or text.strict))
    make_folder(root)
    content = {name: value for name, value in msgspec.to_builtins(found).items() if name != "digest"}
    write_json(file, add_digest(content), indent=0)
    if found.text:
        _remove_older(file, found.text, progress=progress)
    return found


def _remove_older(file: Path, names: list[str], *, progress: bool) -> None:
    """Remove what was prepared of older texts that were where the one of `file` is, but for what is in use."""
    for older in sorted(file.parent.glob("text-*.json")):
        if older == file or read_json(older, TextIndex, MEND).text != names:
            continue
        name = older.stem.removeprefix("text-")
        if all(list(_removed(file.parent, name))):
            for path in [*file.parent.glob(f"vocabulary-{name}-*.json"), older]:
                remove_quietly(path)
            print_status(
                f"the text has changed: what was prepared of the older one is removed ({name})", show=progress
            )


def _removed(root: Path, name: str) -> Iterator[bool]:
    """Remove the corpora of a text; yields of each whether it is gone."""
    for folder in sorted(root.glob(f"corpus-{name}-*")):
        if "-guide-" in folder.name:
            continue
        try:
            with hold_lock(folder):
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

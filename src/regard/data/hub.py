"""Parallel text from the Hugging Face Hub, read with the `datasets` library (extra `hub`)."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.data.parallel import PairCounts, PairSource, TextDigest, check_files
from regard.data.vocabulary import is_blank
from regard.errors import InputError
from regard.io.reading import canonical_json, is_folder
from regard.libraries import check_hub_name, import_library, library_errors, offline

DIGEST_ROWS = 10_000
"""The number of rows that are digested together."""
_digests: dict[tuple[object, ...], TextDigest] = {}
"""The digests computed by this process, by fingerprint of the rows in `datasets`."""


class HubText(PairSource):
    """A split of a data set with one column per language, or with one column `translation` for all languages.

    `name`: a name on the Hub, or a folder. `languages`: languages of source and target. Raises `InputError` if
    the data set, its split or a column does not exist, or if the library is not installed.
    """

    def __init__(self, name: str, languages: Sequence[str], split: str, *, strict: bool = False) -> None:
        super().__init__(strict=strict)
        self.name, self.languages, self.split = name, tuple(languages), split
        self.rows = _load(name, split)
        self.bytes = len(self.rows)  # rows instead of bytes, for the progress bar
        columns = self.rows.features
        nested = "translation" in columns
        known = list(columns["translation"].languages) if nested else list(columns)
        for language in self.languages:
            if language not in known:
                raise InputError(
                    f"language {language!r} is not in data set {name!r}: choose from {', '.join(known)}"
                )
        self.column = "translation" if nested else None

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.counts = PairCounts()
        for number, row in enumerate(self.rows, start=1):
            texts = row if self.column is None else row[self.column]
            source, target = ((texts[language] or "").strip() for language in self.languages)
            self.number = number
            if not is_blank(source) and not is_blank(target):
                self.counts.pairs += 1
                yield source, target
            else:
                self.skip("empty", f"row {number} of {self.name!r}")
            if number % 1000 == 0:
                self.on_bytes(number)

    def digests(self) -> list[TextDigest]:
        """Return a digest of the two columns, which does not depend on the location of the data set."""
        key = (self.rows._fingerprint, self.languages)
        if key not in _digests:
            digest = hashlib.sha256()
            for begin in range(0, len(self.rows), DIGEST_ROWS):
                rows = self.rows[begin : begin + DIGEST_ROWS]
                for language in self.languages:
                    column = [texts[language] for texts in rows[self.column]] if self.column else rows[language]
                    digest.update(canonical_json(column).encode())
                self.on_bytes(begin)
            _digests[key] = TextDigest(lines=len(self.rows), sha256=digest.hexdigest())
        return [_digests[key]]

    def locations(self) -> list[str]:
        return [self.name, self.split, *self.languages]


def _load(name: str, split: str) -> Any:
    datasets = import_library("datasets", f"data set {name!r}", "hub")
    failure, remedy = f"cannot load split {split!r} of data set {name!r}", "check the names and the files"
    if is_folder(Path(name)):
        for path in sorted(Path(name).rglob("*.gz")):  # the library would decompress it without a limit
            check_files([path], way_out="")
        with library_errors("datasets", failure, remedy), offline():
            return datasets.load_dataset(str(Path(name)), split=split)
    check_hub_name(name)
    with library_errors("datasets", failure, remedy, prints=True):
        return datasets.load_dataset(name, split=split)

"""Parallel text from the Hugging Face Hub, by the `datasets` library (extra `hub`)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.errors import InputError
from regard.text.parallel import Counts, Text
from regard.text.vocabulary import is_blank


class HubText(Text):
    """One split of a data set with a column for each language, or one column `translation` that holds both.

    `name`: on the Hub, or of a folder. `languages`: of source and target. Raises `InputError` where the data
    set, its split or its columns do not exist, or the library is not installed.
    """

    def __init__(self, name: str, languages: Sequence[str], split: str, *, strict: bool = False) -> None:
        super().__init__(strict=strict)
        self.name, self.languages, self.split = name, tuple(languages), split
        self.rows = _load(name, split)
        self.bytes = len(self.rows)
        """Rows stand for bytes: what is told of progress are shares."""
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
        self.counts = Counts()
        for number, row in enumerate(self.rows, start=1):
            both = row if self.column is None else row[self.column]
            source, target = ((both[language] or "").strip() for language in self.languages)
            self.number = number
            if not is_blank(source) and not is_blank(target):
                self.counts.pairs += 1
                yield source, target
            else:
                self.leave_out("empty", f"row {number} of {self.name!r}")
            if number % 1000 == 0:
                self.on_bytes(number)

    def identity(self) -> list[Any]:
        """Return what tells this text from others."""
        return [*self.names(), self.rows._fingerprint]

    def names(self) -> list[str]:
        """Return data set, split and languages."""
        return [self.name, self.split, *self.languages]


def _load(name: str, split: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise InputError("data sets of the Hub need their library: pip install 'regard[hub]'") from None
    try:
        return datasets.load_dataset(str(Path(name)) if Path(name).is_dir() else name, split=split)
    except Exception as error:  # the library raises errors of many kinds
        reason = " ".join(str(error).split())
        raise InputError(f"data set {name!r} has no {split!r} to load: {reason}") from error

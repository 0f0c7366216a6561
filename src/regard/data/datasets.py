"""Public data sets. The library pooch downloads the files and verifies their checksums."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from regard.arguments import public
from regard.data.parallel import PairCounts, PairSource, TextDigest, check_files
from regard.data.vocabulary import is_blank
from regard.errors import InputError, MachineError, plural, unknown_choice
from regard.io import canonical_json, check_folder, hold_lock, is_folder, refuse_links
from regard.libraries import check_hub_name, import_library, library_errors, offline
from regard.progress import print_status

RETRIES = 3  # Number of further attempts after a failed download
TIMEOUT = 30  # Seconds without a response after which a connection counts as failed


@dataclass(frozen=True)
class DataSet:
    """A data set of files with names PART.LANGUAGE.gz at one URL."""

    url: str
    checksums: dict[str, str]
    """The checksum of each file in the format of pooch, with the parts in the order of their use."""
    languages: tuple[str, ...]  # The available languages. The first two languages are the default pair.

    def files(self, languages: Sequence[str]) -> list[str]:
        parts = dict.fromkeys(name.split(".")[0] for name in self.checksums)
        return [f"{part}.{language}.gz" for part in parts for language in languages]


DATA_SETS = msgspec.toml.decode((files("regard.data") / "datasets.toml").read_bytes(), type=dict[str, DataSet])


@public
def fetch(
    name: str,
    savepath: str | Path = "data",
    *,
    languages: Sequence[str] = (),
    url: str | None = None,
    progress: bool = True,
) -> list[Path]:
    """Download the files of a data set into a folder under `savepath`, and return them, sources before targets.

    Files that exist with the correct checksum are not downloaded again. `name`: multi30k. `languages`: codes of
    source and target (default: de and en). `url`: alternative URL of the same files. Raises `InputError` for an
    unknown name or language, and `MachineError` if a download fails or has an incorrect checksum.
    """
    if name not in DATA_SETS:
        raise unknown_choice("data set", name, DATA_SETS)
    data_set = DATA_SETS[name]
    languages = languages or data_set.languages[:2]
    for language in languages:
        if language not in data_set.languages:
            raise unknown_choice(f"language of {name}", language, data_set.languages)
    if len(languages) != 2 or languages[0] == languages[1]:
        raise InputError(f"languages {' '.join(languages)} are not a pair: give two of {' '.join(data_set.languages)}")
    folder = Path(savepath) / name
    check_folder(folder)
    refuse_links(folder)
    with hold_lock(folder):
        _download(data_set, data_set.files(languages), url or data_set.url, folder, progress)
    return [folder / file for file in data_set.files(languages)]


def _download(data_set: DataSet, files: list[str], url: str, folder: Path, progress: bool) -> None:
    import pooch  # importing pooch takes 0.1 s
    import requests

    pooch.get_logger().setLevel("WARNING")
    url = url.rstrip("/")
    fetcher = pooch.create(folder, f"{url}/", registry=data_set.checksums, retry_if_failed=RETRIES)
    missing = [
        file
        for file in files
        if not (folder / file).is_file() or not pooch.hashes.hash_matches(folder / file, data_set.checksums[file])
    ]
    if missing:
        print_status(f"Fetching {plural(len(missing), 'file')} from {url} into {folder}", show=progress)
    for file in missing:
        refuse_links(folder / file)
        try:
            fetcher.fetch(file, downloader=pooch.HTTPDownloader(timeout=TIMEOUT))
        except (requests.ConnectionError, requests.Timeout) as error:
            reason = "no connection; try again later, or give the address of a copy with --url"
            raise MachineError(f"cannot fetch {url}/{file}: {reason}") from error
        except (OSError, ValueError) as error:  # pooch raises ValueError for an incorrect checksum
            raise MachineError(f"cannot fetch {url}/{file}: {' '.join(str(error).split())}") from error


DIGEST_ROWS = 10_000  # The number of rows that are digested together
_digests: dict[tuple[object, ...], TextDigest] = {}
"""The digests computed by this process, by fingerprint of the rows in `datasets`."""


class HubText(PairSource):
    """A split of a data set with one column per language, or with one column `translation` for all languages.
    `name`: a name on the Hub, or a folder. `languages`: languages of source and target. Raises `InputError` if
    the data set, its split or a column does not exist, or if the library is not installed."""

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
                raise InputError(f"language {language!r} is not in data set {name!r}: choose from {', '.join(known)}")
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

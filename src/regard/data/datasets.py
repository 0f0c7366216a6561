"""Public data sets. The library pooch downloads the files and verifies their checksums."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.arguments import public
from regard.errors import InputError, MachineError, plural, unknown_choice
from regard.io.locking import hold_lock
from regard.io.writing import check_folder, refuse_links
from regard.progress import print_status, reading_bar

RETRIES = 3
"""Number of further attempts after a failed download."""
TIMEOUT = 30
"""Seconds without a response after which a connection counts as failed."""


@dataclass(frozen=True)
class DataSet:
    """A data set of files with names PART.LANGUAGE.gz at one URL."""

    url: str
    checksums: dict[str, str]
    """The checksum of each file in the format of pooch, with the parts in the order of their use."""
    languages: tuple[str, ...]
    """The available languages. The first two languages are the default pair."""

    def files(self, languages: Sequence[str]) -> list[str]:
        parts = dict.fromkeys(name.split(".")[0] for name in self.checksums)
        return [f"{part}.{language}.gz" for part in parts for language in languages]


DATA_SETS = {
    # Multi30k: captions of 30,000 pictures, in English and German (Elliott et al. 2016), French (Elliott et al.
    # 2017) and Czech (Barrault et al. 2018).
    "multi30k": DataSet(
        "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw",
        {
            "train.de.gz": "sha256:726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
            "train.en.gz": "sha256:d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
            "train.fr.gz": "md5:6cb767741dcad3931f966fefbc05203f",
            "train.cs.gz": "md5:d9a5fc268917725a2b0efce3a0cc8607",
            "val.de.gz": "sha256:f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
            "val.en.gz": "sha256:14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
            "val.fr.gz": "md5:93fc564584b7e5ba410c761ea5a1c682",
            "val.cs.gz": "md5:83cdc082f646b769095615384cf5c0ca",
            "test_2016_flickr.de.gz": "sha256:9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
            "test_2016_flickr.en.gz": "sha256:611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
            "test_2016_flickr.fr.gz": "md5:08dc7cd4a662f31718412de95ca9bfe3",
            "test_2016_flickr.cs.gz": "md5:3104872229daa1bef3b401d44dd2220b",
        },
        ("de", "en", "fr", "cs"),
    )
}


class _ProgressBar:
    """Adapts a callback to the interface of progress bars that pooch expects."""

    total = 0

    def __init__(self, on_bytes: Callable[[int, int | None], None]) -> None:
        self.on_bytes, self.done = on_bytes, 0

    def update(self, count: int) -> None:
        self.done += count
        self.on_bytes(min(self.done, self.total or self.done), self.total or None)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


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
        raise InputError(
            f"languages {' '.join(languages)} are not a pair: give two of {' '.join(data_set.languages)}"
        )
    folder = Path(savepath) / name
    check_folder(folder)
    refuse_links(folder)
    with hold_lock(folder):
        _download(data_set, data_set.files(languages), url or data_set.url, folder, progress)
    return [folder / file for file in data_set.files(languages)]


def _download(data_set: DataSet, files: list[str], url: str, folder: Path, progress: bool) -> None:
    import pooch  # importing pooch takes 0.1 s

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
            with reading_bar(f"fetch {file}", None, show=progress) as on_bytes:
                fetcher.fetch(
                    file,
                    downloader=pooch.HTTPDownloader(progressbar=_ProgressBar(on_bytes), timeout=TIMEOUT),
                )
        except (
            OSError,
            ValueError,
        ) as error:  # requests raises OSError, and pooch raises ValueError for an incorrect checksum
            raise MachineError(f"cannot fetch {url}/{file}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    import requests

    if isinstance(error, requests.ConnectionError | requests.Timeout):
        return "no connection; try again later, or give the address of a copy with --url"
    return " ".join(str(error).split())

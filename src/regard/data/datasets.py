"""Public data sets, by name: where they are, and how to tell that they came whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.data.download import download, size_of
from regard.data.opus import API, fetch_corpus, find_corpus
from regard.errors import InputError, unknown_choice
from regard.io import check_folder, hold_lock, refuse_links
from regard.progress import print_status


@dataclass(frozen=True)
class DataSet:
    """Files at one address, PART.LANGUAGE.gz."""

    url: str
    checksums: dict[str, str]
    """From name to checksum, as pooch has it; parts in the order in which they are used."""
    languages: tuple[str, ...]
    """The first two are what is fetched unless others are asked for."""

    def files(self, languages: Sequence[str]) -> list[str]:
        """Return the names of the files in some languages: part by part, sources before targets."""
        parts = dict.fromkeys(name.split(".")[0] for name in self.checksums)
        return [f"{part}.{language}.gz" for part in parts for language in languages]


DATA_SETS = {
    # Captions of 30,000 pictures: in English and German (Elliott et al. 2016), French (Elliott et al. 2017) and
    # Czech (Barrault et al. 2018).
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
OPUS = "opus/"
"""How the names of OPUS's corpora begin."""
ALSO = {"tatoeba": f"{OPUS}Tatoeba"}
"""Names of their own for some of them: Tatoeba, short sentences by volunteers in hundreds of languages."""
NAMES = (*DATA_SETS, *ALSO, f"{OPUS}NAME")


def fetch(
    name: str,
    savepath: str | Path = "data",
    *,
    languages: Sequence[str] = (),
    url: str | None = None,
    progress: bool = True,
) -> list[Path]:
    """Return the files of a data set under `savepath`, sources before targets; fetch what is not there whole.

    `name`: multi30k; tatoeba; or opus/NAME, any corpus of OPUS. `languages`: codes of source and target; multi30k
    is in de and en unless others are asked for. `url`: another folder on the network with the same files; for
    OPUS, another server that answers as its interface does. How much is fetched is told before. Raises
    `InputError` for a name, or languages, that there are not, `MachineError` where a file cannot be fetched or is
    not what it should be.
    """
    name = ALSO.get(name, name)
    if name.startswith(OPUS):
        return _fetch_opus(name.removeprefix(OPUS), Path(savepath), languages, url or API, progress)
    if name not in DATA_SETS:
        raise unknown_choice("data set", name, NAMES)
    found = DATA_SETS[name]
    languages = languages or found.languages[:2]
    for language in languages:
        if language not in found.languages:
            raise unknown_choice(f"language of {name}", language, found.languages)
    if len(languages) != 2 or languages[0] == languages[1]:
        raise InputError(f"languages {' '.join(languages)} are no pair: give two of {' '.join(found.languages)}")
    folder = Path(savepath) / name
    check_folder(folder)
    refuse_links(folder)
    with hold_lock(folder):
        _fetch_files(found, found.files(languages), (url or found.url).rstrip("/"), folder, progress)
    return [folder / file for file in found.files(languages)]


def _fetch_files(found: DataSet, files: list[str], address: str, folder: Path, progress: bool) -> None:
    from rich.filesize import decimal

    missing = [file for file in files if not _is_whole(folder / file, found.checksums[file])]
    if not missing:
        return
    sizes = [size_of(f"{address}/{file}") for file in missing]
    known = "size unknown" if None in sizes else decimal(sum(size or 0 for size in sizes))
    print_status(f"Fetching {len(missing)} files ({known}) from {address} into {folder}", show=progress)
    for file in missing:
        download(f"{address}/{file}", folder / file, checksum=found.checksums[file], progress=progress)


def _is_whole(path: Path, checksum: str) -> bool:
    import pooch

    algorithm, _, expected = checksum.partition(":")
    return path.is_file() and pooch.file_hash(str(path), alg=algorithm) == expected


def _fetch_opus(name: str, savepath: Path, languages: Sequence[str], api: str, progress: bool) -> list[Path]:
    corpus = find_corpus(name, languages, api=api)
    folder = savepath / "opus" / f"{name}-{corpus.version}"
    check_folder(folder)
    refuse_links(folder, below=savepath)
    with hold_lock(folder):
        files = dict(zip(corpus.languages, fetch_corpus(corpus, folder, progress=progress), strict=True))
    return [files[language] for language in languages]

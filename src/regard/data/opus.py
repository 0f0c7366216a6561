"""OPUS, the open collection of parallel corpora (Tiedemann 2012): found by name and pair, fetched, unpacked.

What there is, how large, and where, OPUS's interface says (https://opus.nlpl.eu/opusapi/). A corpus comes as a
zip in Moses' form, of which NAME.de-en.de and NAME.de-en.en are wanted. OPUS gives no checksums of the zips; the
zips have one (CRC-32) of each file, which is held against what was unpacked, then and whenever it is asked for
again.
"""

import re
import shutil
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import msgspec
from rich.filesize import decimal

from regard.data.download import ask, check_room, download
from regard.errors import InputError, MachineError
from regard.io import check_folder, remove_quietly, write_json, writing_files
from regard.io.reading import DamageError, convert_json, read_json
from regard.progress import print_status

API = "https://opus.nlpl.eu/opusapi/"
FORM = re.compile(r"\w[\w.+-]*", re.ASCII)
"""Of names of corpora, languages and versions, all of which become parts of files' names."""
KIBIBYTE = 1024
"""OPUS's unit of sizes."""


class _Found(msgspec.Struct):
    """A corpus as OPUS tells of it; `source` comes before `target` in the alphabet."""

    url: str
    version: str
    source: str
    target: str
    size: int | None = None
    alignment_pairs: int | str | None = None


class _Corpora(msgspec.Struct):
    corpora: list[_Found]


class _Names(msgspec.Struct):
    corpora: list[str]


class _Unpacked(msgspec.Struct):
    """What has been unpacked."""

    url: str
    crc32: dict[str, int]


@dataclass(frozen=True)
class OpusCorpus:
    """A corpus in two languages, at OPUS."""

    name: str
    version: str
    languages: tuple[str, str]
    """In the alphabet's order, as in the files' names."""
    url: str
    size: int | None
    """Bytes of the zip, about."""
    pairs: int | None

    @property
    def stem(self) -> str:
        """The files' name, up to the language."""
        return f"{self.name}.{self.languages[0]}-{self.languages[1]}"

    def __str__(self) -> str:
        pairs = "" if self.pairs is None else f"{self.pairs:,} pairs, "
        size = "size unknown" if self.size is None else decimal(self.size)
        return f"{self.name} {self.version} ({pairs}{size})"


def find_corpus(name: str, languages: Sequence[str], *, api: str = API) -> OpusCorpus:
    """Return the newest version of a corpus; `languages`: two of OPUS's codes, such as de and en.

    Raises `InputError` where OPUS has none of this name in these languages, `MachineError` where it does not say.
    """
    _check_names(name, languages)
    pair = {"source": languages[0], "target": languages[1]}
    answer = ask(api, {"corpus": name, **pair, "preprocessing": "moses", "version": "latest"})
    try:
        corpora = convert_json(answer, _Corpora).corpora
    except DamageError as error:
        raise MachineError(f"cannot ask {api}: its answer is of another form: {error}") from error
    if not corpora:
        raise _not_there(name, pair, api)
    found = corpora[0]
    if sorted((found.source, found.target)) != sorted(languages) or not FORM.fullmatch(found.version):
        raise MachineError(f"cannot ask {api}: it answers of {found.source}-{found.target} {found.version!r}")
    return OpusCorpus(
        name,
        found.version,
        (found.source, found.target),
        found.url,
        None if found.size is None else found.size * KIBIBYTE,
        found.alignment_pairs if isinstance(found.alignment_pairs, int) else None,
    )


def fetch_corpus(corpus: OpusCorpus, folder: Path, *, progress: bool = True) -> list[Path]:
    """Return the two files of a corpus in `folder`, in the order of its languages; what is not there whole is
    fetched.

    Raises `MachineError` where it does not come, is damaged, or has no room on the disk.
    """
    files = [folder / f"{corpus.stem}.{language}" for language in corpus.languages]
    note = folder / f"{corpus.stem}.json"
    if _are_whole(files, note, corpus.url):
        return files
    check_folder(folder)
    print_status(f"Fetching {corpus} from {corpus.url} into {folder}", show=progress)
    packed = folder / f"{corpus.stem}.zip"
    download(corpus.url, packed, progress=progress)
    try:
        with zipfile.ZipFile(packed) as archive:
            members = [_member(archive, corpus, language) for language in corpus.languages]
            check_room(folder, sum(each.file_size for each in members), f"{corpus.url} unpacks to")
            with writing_files(files) as places:
                for member, place in zip(members, places, strict=True):
                    with archive.open(member) as text:
                        shutil.copyfileobj(text, place)
    # What is packed in a way that is not known is a NotImplementedError, with a password a RuntimeError.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        remove_quietly(packed)
        raise MachineError(f"{corpus.url} is damaged: {error}; the same command fetches it anew") from error
    write_json(note, {"url": corpus.url, "crc32": {each.filename: each.CRC for each in members}})
    remove_quietly(packed)
    return files


def _check_names(name: str, languages: Sequence[str]) -> None:
    if len(languages) != 2 or languages[0] == languages[1]:
        given = f"languages {' '.join(languages)}" if languages else "no languages"
        raise InputError(f"OPUS's corpora are in two languages, and {given} given: as in --languages de en")
    for each in (name, *languages):
        if not FORM.fullmatch(each):
            raise InputError(f"OPUS has nothing called {each!r}: give names as on https://opus.nlpl.eu")


def _not_there(name: str, pair: dict[str, str], api: str) -> InputError:
    """Return the error that says what OPUS has instead."""
    both = " and ".join(map(repr, pair.values()))
    try:
        names = convert_json(ask(api, {"corpora": "True", **pair}), _Names).corpora
    except (DamageError, MachineError):
        names = []
    if not names:
        return InputError(f"OPUS has no corpus {name!r} in {both}: see https://opus.nlpl.eu for names and codes")
    if name in names:
        return InputError(f"OPUS has {name!r} in {both}, but not as plain text: choose another corpus")
    folded = {each.casefold(): each for each in names}
    near = [folded[each] for each in get_close_matches(name.casefold(), folded, n=1)]
    return InputError(
        f"OPUS has no corpus {name!r} in {both}: "
        + (f"did you mean {near[0]}?" if near else f"it has {len(names)}, such as {', '.join(sorted(names)[:5])}")
    )


def _member(archive: zipfile.ZipFile, corpus: OpusCorpus, language: str) -> zipfile.ZipInfo:
    """Return what a zip has in a language. Only names without a folder count; where a file is put is never taken
    from the zip."""
    wanted = f"{corpus.stem}.{language}"
    found = [each for each in archive.infolist() if each.filename == wanted]
    if len(found) != 1:
        names = ", ".join(repr(each) for each in archive.namelist()[:5]) or "nothing"
        raise zipfile.BadZipFile(f"it holds {len(found)} files {wanted!r}, but {names}")
    return found[0]


def _are_whole(files: Sequence[Path], note: Path, url: str) -> bool:
    """Whether files are there as they were unpacked."""
    try:
        unpacked = read_json(note, _Unpacked, "delete it")
        return unpacked.url == url and all(_crc32(each) == unpacked.crc32.get(each.name) for each in files)
    except (InputError, OSError):
        return False


def _crc32(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found = zlib.crc32(block, found)
    return found

"""One file from the network: checked, whole or not there, and gone on with where a connection broke.

.NAME.part         what has come so far
.NAME.part.json    where from, and the server's mark of what it is: only what keeps its mark is gone on with
"""

import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from regard.errors import InputError, MachineError
from regard.io import cannot_write, check_folder, open_regular, refuse_links, remove_quietly, write_json
from regard.io.reading import DamageError, parse_json, read_json
from regard.progress import reading_bar

TRIES = 4
"""How often a broken connection is taken up before it is given up."""
WAIT = 2.0
"""Seconds before the first of these, and as many more before each later one."""
TIMEOUT = 30
"""Seconds without an answer after which a connection counts as broken."""
CHUNK = 1 << 18
LOST = re.compile(r"Failed to resolve '[^']+'|Connection refused|Network is unreachable|timed out")
"""What is said of a server that does not answer at all."""
GONE = {404, 410}
PLAIN = {"Accept-Encoding": "identity"}
"""As the file is, so that sizes and places in it are those of the file."""


class _Begun(msgspec.Struct):
    """What a file that has come in part is a part of."""

    url: str
    mark: str


def download(url: str, path: Path, *, checksum: str | None = None, progress: bool = True) -> None:
    """Fetch `url` to `path`, where it then is whole; what came of an earlier try is gone on with.

    `checksum`: as pooch has it, such as "sha256:726e…". Raises `MachineError` where the file does not come, is
    not what it should be, or has no room on the disk, `InputError` where nothing can be written at `path`.
    """
    import pooch  # brings requests, which nothing else here needs

    check_folder(path.parent)
    refuse_links(path)
    pooch.get_logger().setLevel("WARNING")
    part = path.with_name(f".{path.name}.part")

    def fetch_part(url: str, output: str, pooch: Any) -> None:
        with reading_bar(f"fetch {path.name}", None, show=progress) as on_bytes:
            _complete(url, part, on_bytes)
        _move(part, Path(output))

    try:
        pooch.retrieve(url, checksum, fname=path.name, path=path.parent, downloader=fetch_part)
    # requests' errors are OSErrors, a wrong checksum is a ValueError, links that go round a RuntimeError.
    except (OSError, ValueError, RuntimeError) as error:
        raise _cannot_fetch(url, error, part) from error
    finally:
        if not part.exists():
            remove_quietly(_note_of(part))


def size_of(url: str) -> int | None:
    """Return how many bytes a file has; None where its server does not say. Raises `MachineError` where there is
    no such file."""
    import requests

    try:
        answer = requests.head(url, headers=PLAIN, timeout=TIMEOUT, allow_redirects=True)
    except (OSError, ValueError):
        return None  # whoever fetches it will hear why
    if answer.status_code in GONE:
        raise MachineError(f"cannot fetch {url}: {answer.status_code} {answer.reason}")
    return _whole_number(answer.headers.get("Content-Length")) if answer.ok else None


def check_room(folder: Path, size: int, what: str) -> None:
    """Raise `MachineError` where a disk has no room for so many bytes more."""
    from rich.filesize import decimal

    whole = folder.absolute()
    free = shutil.disk_usage(next(each for each in (whole, *whole.parents) if each.is_dir())).free
    if size > free:
        raise MachineError(
            f"{what} {decimal(size)}, and there are {decimal(free)} free at {str(folder)!r}: make room, or "
            f"choose another folder"
        )


def ask(url: str, parameters: dict[str, str]) -> Any:
    """Return what a server answers in JSON; raises `MachineError` where it does not answer, or with anything
    else."""
    import requests

    try:
        answer = requests.get(url, params=parameters, timeout=TIMEOUT)
        answer.raise_for_status()
        return parse_json(answer.content)
    except (OSError, ValueError, DamageError) as error:
        raise MachineError(f"cannot ask {url}: {_reason(error)}") from error


def _complete(url: str, part: Path, on_bytes: Callable[..., None]) -> None:
    """Fetch what a part lacks, also where the connection breaks now and then."""
    import requests

    broken = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    for again in range(1, TRIES + 1):
        try:
            _go_on(url, part, on_bytes)
            return
        except broken:
            if again == TRIES:
                raise
            time.sleep(WAIT * again)


def _go_on(url: str, part: Path, on_bytes: Callable[..., None]) -> None:
    """Fetch what a part lacks in one go, or all of it where the file is no longer the same."""
    import requests

    mark = _mark_of(url, part)
    have = part.stat().st_size if mark else 0
    wanted = PLAIN
    if mark and have:
        wanted = {**PLAIN, "Range": f"bytes={have}-", "If-Range": mark}
    with requests.get(url, headers=wanted, stream=True, timeout=TIMEOUT) as answer:
        if have and answer.status_code == requests.codes.requested_range_not_satisfiable:
            if answer.headers.get("Content-Range") == f"bytes */{have}":
                return  # it is whole already
            remove_quietly(_note_of(part))
            _go_on(url, part, on_bytes)
            return
        answer.raise_for_status()
        goes_on = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-") and have > 0
        if not goes_on:
            have = 0
            _note(url, part, answer.headers)
        length = _whole_number(answer.headers.get("Content-Length"))
        total = None if length is None else have + length
        if total is not None:
            check_room(part.parent, total - have, f"{url} brings")
        on_bytes(have, total)
        have = _pour(answer.iter_content(CHUNK), part, have, lambda done: on_bytes(done, total))
    if total is not None and have < total:
        raise requests.ConnectionError(f"it ended after {have:,} of {total:,} bytes")


def _pour(chunks: Any, part: Path, have: int, on_bytes: Callable[[int], None]) -> int:
    """Write what comes behind the first `have` bytes of a part; returns how many it then has."""
    try:
        if not have:
            part.unlink(missing_ok=True)
        file = open_regular(part, "r+b" if have else "xb")
    except OSError as error:
        raise cannot_write(part, error) from error
    with file:
        file.seek(have)
        for chunk in chunks:
            try:
                file.write(chunk)
                file.flush()
            except OSError as error:
                raise cannot_write(part, error) from error
            have += len(chunk)
            on_bytes(have)
    return have


def _move(part: Path, place: Path) -> None:
    try:
        part.replace(place)
    except OSError as error:
        raise cannot_write(place, error) from error


def _note_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _note(url: str, part: Path, headers: Any) -> None:
    """Note what a part is going to be a part of, where its server says so in a way that holds: a weak mark may
    stay while bytes change (RFC 9110, section 13.1.5)."""
    tag = headers.get("ETag", "")
    mark = headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag
    part.unlink(missing_ok=True)
    if mark:
        write_json(_note_of(part), {"url": url, "mark": mark})
    else:
        remove_quietly(_note_of(part))


def _mark_of(url: str, part: Path) -> str | None:
    """Return the mark of what a part is a part of; None where that is not known, or comes from elsewhere."""
    with suppress(InputError):
        begun = read_json(_note_of(part), _Begun, "delete it")
        if begun.url == url and part.is_file():
            return begun.mark
    return None


def _whole_number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _cannot_fetch(url: str, error: Exception, part: Path) -> MachineError:
    from rich.filesize import decimal

    kept = ""
    if _mark_of(url, part) and (size := part.stat().st_size):
        kept = f"; the first {decimal(size)} are kept, the same command goes on from there"
    return MachineError(f"cannot fetch {url}: {_reason(error)}{kept}")


def _reason(error: Exception) -> str:
    import requests

    said = LOST.search(str(error)) if isinstance(error, requests.ConnectionError) else None
    if said is not None:  # of objects within objects
        return f"no connection ({said[0]}); try again later, or name a copy by --url"
    return " ".join(str(error).split())

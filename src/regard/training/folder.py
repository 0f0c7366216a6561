"""A run: the folder that holds everything needed to use, resume and reproduce one training.

    config.json                   what was asked for
    model.safetensors             the parameters to use, and the step they belong to
    trainer/step-N.safetensors    what training goes on from: parameters, optimizer, random state, place in data
    trainer/torchruns             who has started the processes that train it, where they are several
    metrics.jsonl                 one JSON object a line: step, loss, exact match, learning rate
    snapshots/step-N.safetensors  the parameters as they were, in half precision, where snapshots are kept
    tokenizer/                    vocabularies learned from text, where there are any

A checkpoint first replaces the model, then writes its trainer file, with which it is done, then removes older
ones; each file is replaced whole, so at any moment there is a model to use and a state to go on from. A training
that is interrupted in between does the steps since its last trainer file again, and comes to the same model.
Nothing is unpickled on loading.

config.json and each file of tensors carry a SHA-256 of what they hold; each file of tensors holds the config too,
and the config the digest of the vocabularies. So every file can be checked by itself and against the config,
whichever file was written last; one that was edited, or is another run's, is refused (see `trust_edited`).
"""

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from regard.errors import InputError
from regard.files import (
    append_inside,
    new_folder,
    refuse_links,
    remove_quietly,
    still_there,
    tidy,
    write_file,
    write_inside,
    write_json,
)
from regard.own import OwnCodeError
from regard.progress import tell
from regard.reading import (
    DamageError,
    canonical,
    damaged,
    digest_of,
    files_in,
    is_file,
    is_folder,
    is_sealed,
    numbered,
    parse_json,
    read_bytes,
    read_json,
    read_text,
    sealed,
)
from regard.training.config import PARTS, RunConfig
from regard.training.flags import stored_config
from regard.training.metrics import read_metrics
from regard.training.tensors import Expected, TensorFile, pack, read_about, read_tensors
from regard.training.trust import check_trusted

FORMAT = "regard-run/7"
BEFORE = ("regard-run/6", "regard-run/5")
"""Earlier formats, which are read too. Neither has digests; 5 called the task's name `task`, and what is chosen
of it `size`."""
MOST_DIFFERENCES = 3
"""Differences between two configs that a message names."""
SHOWN = 24
"""Characters of a value in such a message."""
DIGESTS = "digests"
"""Begins the names of files of digests, in a checkpoint that several processes have written."""
MEND = "restore a copy of it, or train it again"
TRUST = "if you changed it yourself, add --trust-edited (in Python trust_edited=True)"
_told: set[tuple[Path, str]] = set()
"""Differences that were shown since a run was last loaded."""
LARGEST_CONFIG = 1 << 20
"""Bytes of a config, at most."""


def digest(vocabularies: dict[str, str]) -> str:
    """Return what tells vocabularies, as JSON by name, from others."""
    return hashlib.sha256(json.dumps(vocabularies, sort_keys=True).encode()).hexdigest()


def renamed(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a stored config with today's names, if it has those of the format before."""
    if "size" not in stored:
        return stored
    others = {name: value for name, value in stored.items() if name not in ("task", "size")}
    return {**others, "on": stored.get("task"), "task": stored["size"]}


def _differences(stored: Mapping[str, Any], in_file: str, name: str) -> str:
    """Say in which values config.json, as plain data, and the config in another file, as JSON, differ; nothing
    where they are the same, or the latter is no config."""
    try:
        found = parse_json(in_file, finite=False)
    except DamageError:
        return ""
    one, other = dict(_values("", _without_digest(stored))), dict(_values("", found))
    names = [each for each in {**one, **other} if one.get(each) != other.get(each)]
    if names == ["initial"]:
        return "it began with other parameters than config.json says"
    names = [each for each in names if each != "initial"]  # which follows from the others
    said = [
        f"{each} is {_shown(one.get(each))} in config.json, {_shown(other.get(each))} in {name}" for each in names
    ]
    more = len(said) - MOST_DIFFERENCES
    return "; ".join(said[:MOST_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")


def _values(name: str, content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects by the last name that leads to each, which for flags is their name."""
    if isinstance(content, Mapping) and content:
        for inner, value in content.items():
            yield from _values(f"{name}.{inner}" if name and name not in PARTS else inner, value)
    else:
        yield name, content


def _shown(value: object) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


class _Digests(msgspec.Struct, forbid_unknown_fields=True):
    """What a file of digests holds."""

    config: str
    files: dict[str, str]
    """SHA-256 of each, by name."""
    digest: str


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    Each reader raises `InputError` for a file that was edited or is another run's. With `trust_edited` it says on
    standard error what differs, and goes on.
    """

    path: Path
    trust_edited: bool = False

    @property
    def config_file(self) -> Path:
        """What was asked for; a folder with this file is a run."""
        return self.path / "config.json"

    @property
    def model_file(self) -> Path:
        """The parameters."""
        return self.path / "model.safetensors"

    @property
    def metrics_file(self) -> Path:
        """Loss and exact match, step by step."""
        return self.path / "metrics.jsonl"

    def trainer_file(self, step: int) -> Path:
        """Return the file of optimizer, random state and position in the data at `step`."""
        return self.path / "trainer" / f"step-{step}.safetensors"

    @property
    def identity(self) -> tuple[int, int] | None:
        """What tells this folder from another one that takes its name; None where there is none."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def exists(self) -> bool:
        """Whether there is a run here."""
        return is_file(self.config_file)

    def read_config(self, *, trust_code: bool = False) -> RunConfig:
        """Read the config; raises `InputError` where the run is missing, damaged or foreign, or names code that
        is not trusted (see `trust`)."""
        stored = self._stored_config()
        if not _is_intact(stored):
            self._refuse_edited("config.json", self._edits(stored))
        stored = _todays(stored)
        check_trusted(stored, self.path, trust_code=trust_code)
        try:
            return stored_config(stored)
        except OwnCodeError as error:
            raise InputError(f"run {str(self.path)!r} cannot be loaded here: {error}") from error
        except InputError as error:
            raise self._damaged("config.json", error) from error

    def _stored_config(self) -> dict[str, Any]:
        """Return what config.json holds, unchecked."""
        if not self.exists():
            raise InputError(f"no run at {str(self.path)!r}: train one first, or name its folder")
        try:
            # A gradient that is not clipped has no largest norm, and infinity is no JSON.
            stored = parse_json(read_bytes(self.config_file, most=LARGEST_CONFIG), finite=False)
        except DamageError as error:
            raise self._damaged("config.json", error) from error
        if (
            isinstance(stored, dict)
            and "format" not in stored
            and ("model_type" in stored or "architectures" in stored)
        ):
            raise InputError(
                f"{str(self.path)!r} is a model of Hugging Face's, no run: look inside it with"
                f" `regard look {self.path}`, or make a run of a translator with `regard import {self.path}`"
            )
        if not isinstance(stored, dict) or stored.get("format") not in (FORMAT, *BEFORE):
            raise InputError(
                f"run {str(self.path)!r} is foreign: config.json is not of format {FORMAT!r}; train it again"
            )
        return stored

    def _edits(self, stored: dict[str, Any]) -> str:
        """Say what of an edited config was changed, as far as the model's file tells."""
        if "digest" not in stored:
            return "its digest is missing"
        try:
            config, _ = read_about(self.model_file)
        except (DamageError, InputError):
            config = ""
        return _differences(stored, config, self.model_file.name) or "it has changed since it was written"

    def _refuse_edited(self, name: str, what: str, mend: str = MEND) -> None:
        """Raise `InputError` for a file that is not as this run wrote it, or, where that is trusted, say so."""
        said = f"run {str(self.path)!r} was edited or mixed with another run: {name}: {what}"
        if not self.trust_edited:
            raise InputError(f"{said}; {mend}; {TRUST}")
        key = self.path.resolve(), said
        if key not in _told:
            _told.add(key)
            tell(f"regard: {said}; it is used as it is (--trust-edited)", show=True)

    def tell_again(self) -> None:
        """Show differences that were shown before, for a run that is loaded again."""
        _told.difference_update({key for key in _told if key[0] == self.path.resolve()})

    def read_model(self, expected: Expected | None = None) -> tuple[dict[str, Tensor], int]:
        """Read the parameters and the step they belong to; raises `InputError` where that cannot be, or they
        are others than `expected`."""
        return self._read_tensors(self.model_file, expected)

    def read_trainer(self, expected: Expected | None = None) -> tuple[dict[str, Tensor], int]:
        """Read the state of the training and its step; raises `InputError` where that cannot be, where it is
        another than `expected`, or where it was made by another config."""
        files = self._trainer_files()
        if not files:
            raise InputError(
                f"run {str(self.path)!r} is incomplete: the state of its training is missing; train it again"
            )
        return self._read_tensors(files[-1], expected)

    @property
    def _config_text(self) -> str:
        """The config as JSON, as each file of tensors has it."""
        return canonical(_without_digest(self._stored_config()))

    def _damaged(self, name: str, what: object) -> InputError:
        return InputError(f"run {str(self.path)!r} is damaged: {name}: {what}; {MEND}")

    def write_model(self, step: int, parameters: dict[str, Tensor]) -> None:
        """Replace the parameters to use; raises `MachineError`, leaving the last ones intact."""
        write_inside(self.path, self.model_file, self.pack(parameters, step))

    def pack(self, tensors: dict[str, Tensor], step: int) -> bytes:
        """Return the content of a file of tensors of this run."""
        return pack(tensors, step, self._config_text)

    def write_trainer(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Save the state of the training as of `step`; raises `MachineError`, leaving the last one intact."""
        with still_there(self.path):
            content = self.pack(tensors, step)
        write_inside(self.path, self.trainer_file(step), content)
        self.forget_older()

    def forget_older(self) -> None:
        """Remove all states of the training but the last; a process that was killed may have left some."""
        refuse_links(self.path / "trainer")
        for older in self._trainer_files()[:-1]:
            remove_quietly(older)

    def seal_checkpoint(self, checkpoint: Path, rank: int, size: int) -> None:
        """Write digests of a checkpoint's files beside them: process `rank` of `size`, of its share of them."""
        mine = [path for path in files_in(checkpoint) if path.suffix != ".json"][rank::size]
        files = {path.name: _file_digest(path) for path in mine}
        content = {"config": self._config_text, "files": files}
        write_json(checkpoint / f"{DIGESTS}-{rank}.json", sealed(content))

    def check_checkpoint(self, checkpoint: Path, rank: int, size: int) -> None:
        """Raise `InputError` where a checkpoint's files were edited, or are another run's.

        Process `rank` of `size` reads its share of them.
        """
        every = files_in(checkpoint)
        files = [path for path in every if path.suffix != ".json"]
        kept = [
            read_json(path, _Digests, MEND, finite=False) for path in every if path.name.startswith(f"{DIGESTS}-")
        ]
        if not kept and not self.has_digests:
            return
        known = {name: digest for each in kept for name, digest in each.files.items()}
        stored = self._stored_config()
        if (
            not all(is_sealed(msgspec.to_builtins(each)) for each in kept)
            or known.keys() != {path.name for path in files}
            or any(known[path.name] != _file_digest(path) for path in files[rank::size])
        ):
            self._refuse_edited(checkpoint.name, "its files have changed since they were written")
        elif not (self.trust_edited and not _is_intact(stored)):
            for each in kept:
                if each.config != self._config_text:
                    what = _differences(stored, each.config, checkpoint.name) or "it names no config"
                    self._refuse_edited(checkpoint.name, what)

    def write_snapshot(self, step: int, parameters: dict[str, Tensor]) -> None:
        """Keep the parameters as of `step`, in half precision; raises `MachineError` where the disk refuses."""
        path = self.path / "snapshots" / f"step-{step}.safetensors"
        small = {name: value.half() if value.is_floating_point() else value for name, value in parameters.items()}
        write_inside(self.path, path, self.pack(small, step))

    @property
    def snapshots(self) -> list[Path]:
        """The snapshots, oldest first."""
        return numbered(self.path / "snapshots")

    def read_snapshot(self, path: Path, expected: Expected | None = None) -> tuple[dict[str, Tensor], int]:
        """Read the parameters of a snapshot and its step; raises `InputError` where it is damaged, or does not
        hold what is `expected`."""
        tensors, step = self._read_tensors(path, expected)
        return {
            name: value.float() if value.dtype == torch.half else value for name, value in tensors.items()
        }, step

    def _trainer_files(self) -> list[Path]:
        """Return the states of the training, oldest first."""
        return numbered(self.path / "trainer")

    def write_vocabularies(self, files: dict[str, str]) -> None:
        """Keep vocabularies learned from text, by name; raises `MachineError` where the disk refuses."""
        for name, content in files.items():
            write_inside(self.path, self.path / "tokenizer" / f"{name}.json", content.encode())

    def read_vocabularies(self, expected: str | None) -> dict[str, str]:
        """Return the vocabularies by name, whose `digest` is to be `expected`; none where that is None.

        Raises `InputError` where they are missing or others than those that the run was trained with.
        """
        if expected is None:
            return {}
        try:
            found = {
                name: read_text(self.path / "tokenizer" / f"{name}.json", "restore a copy of it")
                for name in ("source", "target")
            }
        except InputError as error:
            raise InputError(
                f"run {str(self.path)!r} is damaged: its tokenizer cannot be read: {error}"
            ) from error
        if digest(found) != expected:
            self._refuse_edited("tokenizer", "its vocabularies are others than those of the training")
        return found

    def write_kept(self, name: str, content: dict[str, Any]) -> None:
        """Keep what was found of the model, as JSON; raises `MachineError` where the disk refuses."""
        write_json(self.path / name, sealed({**content, "of": self._identity}), indent=1, allow_nan=False)

    def read_kept(self, name: str, mend: str) -> dict[str, Any] | None:
        """Return what `write_kept` has kept of the model as it is; None where there is nothing, or it is of an
        earlier step.

        Raises `InputError` where the file is damaged, was edited, or is another run's; `mend`: what to do then.
        """
        path = self.path / name
        if not is_file(path):
            return None
        try:
            found = parse_json(read_bytes(path))
            if not isinstance(found, dict):
                raise DamageError("it is no object")
        except DamageError as error:
            raise damaged(path, error, mend) from error
        if "digest" not in found and not self.has_digests:
            return found
        of = found.get("of")
        if not is_sealed(found):
            self._refuse_edited(name, "it has changed since it was written", mend)
        elif not isinstance(of, dict) or of.get("config") != self._identity["config"]:
            self._refuse_edited(name, "it is of another run", mend)
        elif of != self._identity:
            return None
        return {name: value for name, value in found.items() if name not in ("of", "digest")}

    @property
    def has_digests(self) -> bool:
        """Whether each file of the run is to have a digest; those of earlier formats need none."""
        return bool(self._stored_config()["format"] == FORMAT)

    @property
    def _identity(self) -> dict[str, str | None]:
        """Digests of the config and of the model's file; the latter is None in a file of an earlier format."""
        try:
            _, model = read_about(self.model_file)
        except DamageError as error:
            raise self._damaged(self.model_file.name, error) from error
        return {"config": digest_of(_without_digest(self._stored_config())), "model": model}

    def write_torchruns(self, torchruns: frozenset[str]) -> None:
        """Keep who has started the processes that train the run; nothing where it is one alone."""
        if torchruns:
            content = "\n".join(sorted(torchruns)).encode()
            write_inside(self.path, self.path / "trainer" / "torchruns", content)

    @property
    def torchruns(self) -> frozenset[str]:
        """Who has started the processes that train the run; none where it is one alone, or there is no run."""
        try:
            return frozenset((self.path / "trainer" / "torchruns").read_text(encoding="utf-8").splitlines())
        except (OSError, ValueError):
            return frozenset()

    def append_metrics(self, metrics: dict[str, float]) -> None:
        """Add one line to the metrics; raises `MachineError` where it cannot be written."""
        append_inside(self.path, self.metrics_file, json.dumps(metrics).encode() + b"\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read the metrics; a last line that a crash cut short is left out."""
        return read_metrics(self.metrics_file)

    def known_metrics(self) -> list[dict[str, Any]]:
        """Read the metrics of a finished training; raises `InputError` where there are none."""
        found = self.read_metrics()
        if not found:
            raise InputError(
                f"run {str(self.path)!r} has lost its metrics.jsonl: restore a copy of it, or delete the folder "
                f"to train it again"
            )
        return found

    def cut_metrics(self, step: int) -> None:
        """Forget metrics past `step`, which a resumed training will write again.

        Raises `InputError` where the run, or a folder in it, is a link.
        """
        for name in ("trainer", "snapshots", "tokenizer", "tensorboard"):
            refuse_links(self.path / name, below=self.path.parent)
        kept = [json.dumps(metrics) + "\n" for metrics in self.read_metrics() if metrics["step"] <= step]
        write_file(self.metrics_file, "".join(kept).encode())

    def _read_tensors(self, path: Path, expected: Expected | None) -> tuple[dict[str, Tensor], int]:
        """Return the tensors of a file of this run and their step."""
        if not is_file(path) and not is_folder(path):
            raise InputError(f"run {str(self.path)!r} is incomplete: {path.name} is missing; train it again")
        try:
            found = read_tensors(path, expected)
        except DamageError as error:
            raise self._damaged(path.name, error) from error
        stored = self._stored_config()
        if not found.intact:
            self._refuse_edited(
                path.name, "it has changed since it was written (its names, shapes, step or values)"
            )
        elif found.digest is None and self.has_digests:
            self._refuse_edited(path.name, "its digest is missing")
        elif self.trust_edited and not _is_intact(stored):
            pass  # of the config, that was said when it was read
        elif (what := _mixed(found, stored, path.name)) is not None:
            self._refuse_edited(path.name, what)
        if path != self.model_file and path.stem != f"step-{found.step}":
            raise self._damaged(path.name, f"it is of step {found.step}")
        return found.tensors, found.step


def _is_intact(stored: dict[str, Any]) -> bool:
    """Whether what config.json holds has its digest; earlier formats have none."""
    return is_sealed(stored) or (stored["format"] in BEFORE and "digest" not in stored)


def _mixed(found: TensorFile, stored: dict[str, Any], name: str) -> str | None:
    """Say how the config in a file of tensors differs from config.json; None where it does not."""
    if found.digest is None:  # earlier files hold a CRC-32 of today's names, or nothing
        total = zlib.crc32(json.dumps(_todays(stored), sort_keys=True).encode())
        return None if found.config in ("", f"{total:08x}") else "it was trained with another config.json"
    if found.config == canonical(_without_digest(stored)):
        return None
    return _differences(stored, found.config, name) or "it names no config"


def _without_digest(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if name != "digest"}


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _todays(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored config alone, with today's names."""
    return renamed({name: value for name, value in stored.items() if name not in ("format", "digest")})


@contextmanager
def new_run(path: Path, config: RunConfig, *, overwrite: bool) -> Iterator[RunFolder]:
    """Make a run at `path`: yields a folder to fill with its first checkpoint, which then takes its place.

    A run already at `path` is only replaced with `overwrite`, and only once the new one is complete on disk.
    Raises `InputError` where something is in the way, and `MachineError` where it cannot be written.
    """
    check_free(path, overwrite=overwrite)
    with new_folder(path) as building:
        folder = RunFolder(building)
        write_json(folder.config_file, sealed({"format": FORMAT, **dataclasses.asdict(config)}))
        yield folder


def check_free(path: Path, *, overwrite: bool) -> None:
    """Raise `InputError` where no new run can be made at `path`, for something is in the way."""
    if RunFolder(path).exists() and not overwrite:
        raise InputError(
            f"{str(path)!r} already holds a run: continue it with --resume, replace it with --overwrite, "
            f"or choose another --savepath"
        )
    if path.exists() and not RunFolder(path).exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{str(path)!r} exists and is not a run: choose another --savepath")


def holds_run(folder: Path) -> bool:
    """Say whether a folder holds a run of Regard's, of any format."""
    try:
        stored = parse_json(read_bytes(folder / "config.json", most=LARGEST_CONFIG), finite=False)
    except (DamageError, InputError, OSError):
        return False
    return isinstance(stored, dict) and str(stored.get("format", "")).startswith("regard-run/")


def find_run(run: str | Path, savepath: Path, *, trust_edited: bool = False) -> RunFolder:
    """Find a run by the path of its folder, or by its task's name under `savepath`.

    `trust_edited`: read its files also where they were edited. Raises `InputError` where there is none.
    """
    if not isinstance(run, str | Path):
        raise InputError(f"run {run!r} is no name: give a task's, or the path of a run's folder")
    for path in (Path(run), savepath / run):
        tidy(path.parent)
        if RunFolder(path).exists():
            return RunFolder(path, trust_edited)
    raise InputError(
        f"no run {str(run)!r} in {str(savepath)!r}: train it with `regard train`, or give its --savepath"
    )

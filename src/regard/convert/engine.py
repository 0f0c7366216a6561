"""What searches the answers of a run: our own search, or CTranslate2 with the run's model converted for it.

    RUN/engines/ctranslate2-HASH    the converted model, with its certificate; HASH: of all that it was made of

A model is converted once, when CTranslate2 is first asked; that of other parameters is removed then.
"""

from __future__ import annotations

import copy
import hashlib
import json
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch

from regard import convert
from regard.attention import attention_layers
from regard.convert.choices import EngineName, Precision
from regard.data.vocabulary import UNKNOWN, is_blank
from regard.decoding import Candidate, translate
from regard.errors import InputError, RegardError, unknown_choice
from regard.io import check_folder, new_folder, refuse_links, remove_quietly
from regard.libraries import import_library
from regard.progress import print_status
from regard.result import to_plain
from regard.version import __version__

if TYPE_CHECKING:
    from regard.convert.exportable import Exportable
    from regard.convert.searching import CTranslate2Search
    from regard.decoding import Search

SENTENCES, PIECES = 16, 8
"""Of drawn pieces, on which a converted model is compared with the run's."""


class Engines:
    """The programs that search the answers of one run, each opened when it is first asked."""

    def __init__(self, run: Exportable) -> None:
        self._run = run
        self._opened: dict[str, tuple[object, CTranslate2Search]] = {}
        self._told: set[str] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> Engines:
        return Engines(copy.deepcopy(self._run, memo))  # what is open belongs to the run that was copied

    def search(
        self,
        texts: Sequence[str],
        search: Search,
        *,
        engine: EngineName,
        precision: Precision,
        batchsize: int,
        scored: bool = True,
    ) -> list[list[Candidate]]:
        """Return the `n_best` answers to each text, best first; to a blank text one, which is empty.

        `scored` False: log-probabilities are not wanted, and NaN where that saves time. What `auto` takes, and
        that a model is converted, is told on standard error, once. Raises `InputError` where the engine cannot do
        what is asked, or is not installed.
        """
        opened, every = self._choose(search, engine, precision), texts
        texts = [text for text in every if not is_blank(text)]
        if opened is not None:
            found = iter(opened.search(texts, search, batchsize=batchsize, scored=scored))
        else:
            found = iter(self._own_search(texts, search, batchsize=batchsize, scored=scored))
        empty = Candidate(text="", tokens=[], log_probability=0.0, score=0.0, finished=True)
        return [[copy.deepcopy(empty)] if is_blank(text) else next(found) for text in every]

    def _own_search(
        self, texts: Sequence[str], search: Search, *, batchsize: int, scored: bool
    ) -> list[list[Candidate]]:
        return translate(
            self._run.model,
            self._run.task.source_vocabulary,
            self._run.task.target_vocabulary,
            texts,
            search,
            max_len=self._run.task.longest_target,
            batchsize=batchsize,
            scored=scored,
        )

    @property
    def runs_in_ctranslate2(self) -> bool:
        """Whether `auto` takes CTranslate2 for a search that it knows."""
        if find_spec("ctranslate2") is None or next(self._run.model.parameters()).device.type != "cpu":
            return False
        try:
            convert.for_ctranslate2(self._run)
        except InputError:
            return False
        return True

    def _choose(self, search: Search, engine: EngineName, precision: Precision) -> CTranslate2Search | None:
        """Return what searches, None for our own search."""
        for what, value, choices in (("engine", engine, EngineName), ("precision", precision, Precision)):
            if value not in get_args(choices):
                raise unknown_choice(what, value, get_args(choices))
        if engine == "regard":
            if precision != "float32":
                raise InputError(
                    f"precision {precision} is for CTranslate2, our own search knows float32: give "
                    f"--engine ctranslate2"
                )
            return None
        asked = engine == "ctranslate2" or precision != "float32"
        if not asked and not self.runs_in_ctranslate2:
            return None
        try:
            self._check(search)
            opened = self._open(precision)
        except RegardError as error:
            if asked:
                raise
            self._tell(f"our own search answers: {str(error).removesuffix(': give --engine regard')}")
            return None
        if engine == "auto":
            found = f"CTranslate2 {version('ctranslate2')} answers, in {precision}"
            self._tell(f"{found} (--engine regard for our own search)")
        return opened

    def _check(self, search: Search) -> None:
        """Raise `InputError` where CTranslate2 cannot search so."""
        import_library("ctranslate2", "engine ctranslate2", "export")
        if search.temperature:
            raise InputError(
                f"temperature {search.temperature:g} draws by our own seeds, which CTranslate2 does not: "
                f"give --engine regard"
            )
        if any(layer.hook is not None for layer in attention_layers(self._run.model).values()):
            raise InputError(
                "layers are being recorded or changed, of which CTranslate2 knows nothing: give --engine regard"
            )
        try:
            convert.for_ctranslate2(self._run)
        except InputError as error:
            raise InputError(f"{error}; give --engine regard") from error

    def _open(self, precision: Precision) -> CTranslate2Search:
        ctranslate2 = import_library("ctranslate2", "engine ctranslate2", "export")
        if precision not in ctranslate2.get_supported_compute_types("cpu"):
            raise InputError(
                f"precision {precision} is beyond this processor in CTranslate2: give --precision float32"
            )
        threads = torch.get_num_threads()
        # What changes a parameter in place counts up its version.
        state = threads, [(each.data_ptr(), each._version) for each in self._run.model.parameters()]
        if precision in self._opened and self._opened[precision][0] == state:
            return self._opened[precision][1]
        opened = self._find(precision, threads)
        self._opened[precision] = state, opened
        return opened

    def _find(self, precision: Precision, threads: int) -> CTranslate2Search:
        """Open the converted model, and convert it first where it is missing, damaged or of other parameters."""
        place = self._run.folder / "engines" / f"ctranslate2-{_digest(self._run)}"
        linked = place.parent.is_symlink()
        if place.is_dir() and not linked and not convert.is_as_certified(place):
            self._tell(f"the converted model in {str(place)!r} is not as it was written: it is converted anew")
            remove_quietly(place)
        if place.is_dir() and not linked:
            try:
                return convert.CTranslate2Search(self._run, place, precision=precision, threads=threads)
            except RegardError:  # the kept model is damaged
                remove_quietly(place)
        try:
            refuse_links(place.parent)
            check_folder(place.parent)
        except InputError as error:
            self._tell(f"the model is converted for CTranslate2 for this time only: {error}")
            with tempfile.TemporaryDirectory() as folder:
                return self._convert(Path(folder, "model"), precision, threads)
        self._tell(f"the model is converted for CTranslate2, once: into {str(place)!r}")
        opened = self._convert(place, precision, threads)
        for other in place.parent.glob("ctranslate2-*"):
            if other != place:
                remove_quietly(other)
        return opened

    def _convert(self, place: Path, precision: Precision, threads: int) -> CTranslate2Search:
        with new_folder(place) as building:
            convert.write_ctranslate2(self._run, building)
            convert.attest(self._run, building, "ctranslate2", _drawn(self._run), progress=False)
            # Before it has its name, under which another process may replace it.
            return convert.CTranslate2Search(self._run, building, precision=precision, threads=threads)

    def _tell(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            print_status(f"regard: {message}", show=True)


def _digest(run: Exportable) -> str:
    """Return what tells a converted model from those of other parameters, vocabularies, or versions of this."""
    _, config, source, target = convert.for_ctranslate2(run)
    told = [__version__, to_plain(config), run.task.longest_source, run.task.longest_target]
    found = hashlib.sha256(json.dumps([*told, source.to_json(), target.to_json()]).encode())
    for name, tensor in run.model.state_dict().items():
        found.update(name.encode())
        found.update(np.ascontiguousarray(tensor.detach().float().cpu().numpy()).data)
    return found.hexdigest()[:16]


def _drawn(run: Exportable) -> list[str]:
    """Return sentences of pieces drawn from the vocabulary: the run's text need not be there any more."""
    _, _, vocabulary, _ = convert.for_ctranslate2(run)
    pieces = np.random.default_rng(0).integers(UNKNOWN + 1, len(vocabulary), (SENTENCES, PIECES))
    texts = [vocabulary.decode(row) for row in pieces.tolist()]
    return [text for text in texts if text.strip()] or ["a"]

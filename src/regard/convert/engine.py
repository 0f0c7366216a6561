"""Search engines of a run: Regard's own search, or CTranslate2 with a converted model.

    RUN/engines/ctranslate2-HASH    converted model with its certificate

HASH covers the parameters, the config, the vocabularies and the version of Regard.

A model is converted when CTranslate2 is first used. Models of other parameters are removed.
"""

from __future__ import annotations

import copy
import hashlib
import json
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from regard.attention.layer import attention_layers
from regard.convert.exportable import EngineName, Exportable, Precision
from regard.data.vocabulary import UNKNOWN
from regard.errors import InputError, RegardError
from regard.io import check_folder, new_folder, refuse_links, remove_quietly
from regard.libraries import import_library
from regard.progress import print_status
from regard.result import to_plain
from regard.version import __version__

if TYPE_CHECKING:
    from regard.convert.ctranslate2 import CTranslate2Search
    from regard.decoding.translation import Search

SENTENCES, PIECES = 16, 8
"""Number and length of the random sentences on which a converted model is compared with the run."""


class Engines:
    """The search engines of one run, opened on first use."""

    def __init__(self, run: Exportable) -> None:
        self._run = run
        self._opened: dict[str, tuple[object, CTranslate2Search]] = {}
        self._reported: set[str] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> Engines:
        return Engines(copy.deepcopy(self._run, memo))  # opened engines belong to the original run

    @property
    def runs_in_ctranslate2(self) -> bool:
        """Whether `auto` selects CTranslate2 for the searches that CTranslate2 supports."""
        from regard.convert.ctranslate2 import get_ctranslate2_parts

        if find_spec("ctranslate2") is None or next(self._run.model.parameters()).device.type != "cpu":
            return False
        try:
            get_ctranslate2_parts(self._run)
        except InputError:
            return False
        return True

    def choose(
        self, search: Search, engine: EngineName, precision: Precision, *, models: int = 1, scored: bool = True
    ) -> CTranslate2Search | None:
        """Return the opened CTranslate2 model, or None for Regard's own search.

        `models`: number of models of an ensemble. `scored`: whether log-probabilities are needed. The choice of
        `auto` and the conversion of a model are reported on standard error, once. Raises `InputError` if the
        engine does not support the search, or is not installed.
        """
        if engine == "regard":
            if precision != "float32":
                raise InputError(
                    f"precision {precision} needs CTranslate2, because Regard's own search uses float32: give "
                    f"--engine ctranslate2"
                )
            return None
        requested = engine == "ctranslate2" or precision != "float32"
        if not requested and not self.runs_in_ctranslate2:
            return None
        try:
            self._check(search, models, precision, scored=scored)
            opened = self._open(precision)
        except RegardError as error:
            if requested:
                raise
            reason = str(error).removesuffix(": give --engine regard")
            self._report(f"using Regard's own search, because {reason}")
            return None
        if engine == "auto":
            used = f"using CTranslate2 {version('ctranslate2')} in {precision}"
            self._report(f"{used} (--engine regard for Regard's own search)")
        return opened

    def _check(self, search: Search, models: int, precision: Precision, *, scored: bool) -> None:
        from regard.convert.ctranslate2 import get_ctranslate2_parts

        # Regard's own search refuses other precisions.
        way_out = "give --engine regard" if precision == "float32" else f"leave out --precision {precision}"
        import_library("ctranslate2", "engine ctranslate2", "export")
        if reason := unsupported_option(search, models, scored=scored):
            raise InputError(f"{reason}: {way_out}")
        if any(layer.hook is not None for layer in attention_layers(self._run.model).values()):
            raise InputError(f"layers are being recorded or changed, which CTranslate2 does not support: {way_out}")
        try:
            get_ctranslate2_parts(self._run)
        except InputError as error:
            raise InputError(f"{error}; {way_out}") from error

    def _open(self, precision: Precision) -> CTranslate2Search:
        ctranslate2 = import_library("ctranslate2", "engine ctranslate2", "export")
        if precision not in ctranslate2.get_supported_compute_types("cpu"):
            raise InputError(
                f"CTranslate2 does not support precision {precision} on this processor: give --precision float32"
            )
        threads = torch.get_num_threads()
        # In-place changes of a parameter increment its version.
        parameters = [(parameter.data_ptr(), parameter._version) for parameter in self._run.model.parameters()]
        state = threads, parameters
        if precision in self._opened and self._opened[precision][0] == state:
            return self._opened[precision][1]
        opened = self._find(precision, threads)
        self._opened[precision] = state, opened
        return opened

    def _find(self, precision: Precision, threads: int) -> CTranslate2Search:
        """Open the converted model. If it is missing, damaged or of other parameters, convert the run first."""
        from regard.convert.certificate import matches_certificate
        from regard.convert.ctranslate2 import CTranslate2Search

        target = self._run.folder / "engines" / f"ctranslate2-{_digest(self._run)}"
        linked = target.parent.is_symlink()
        if target.is_dir() and not linked and not matches_certificate(target):
            self._report(
                f"the converted model in {str(target)!r} does not match its certificate and is converted again"
            )
            remove_quietly(target)
        if target.is_dir() and not linked:
            try:
                return CTranslate2Search(self._run, target, precision=precision, threads=threads)
            except RegardError:  # the stored model is damaged
                remove_quietly(target)
        try:
            refuse_links(target.parent)
            check_folder(target.parent)
        except InputError as error:
            self._report(f"converting the model for CTranslate2, without storing it: {error}")
            with tempfile.TemporaryDirectory() as folder:
                return self._convert(Path(folder, "model"), precision, threads)
        self._report(f"converting the model once for CTranslate2, to {str(target)!r}")
        opened = self._convert(target, precision, threads)
        for other in target.parent.glob("ctranslate2-*"):
            if other != target:
                remove_quietly(other)
        return opened

    def _convert(self, target: Path, precision: Precision, threads: int) -> CTranslate2Search:
        from regard.convert.ctranslate2 import CTranslate2Search, write_ctranslate2
        from regard.convert.exchange import write_certificate

        # Sentences of random tokens, because the text that the run was trained on may no longer exist.
        vocabulary = self._run.task.source_vocabulary
        pieces = np.random.default_rng(0).integers(UNKNOWN + 1, len(vocabulary), (SENTENCES, PIECES))
        sentences = [text for row in pieces.tolist() if (text := vocabulary.decode(row)).strip()] or ["a"]
        with new_folder(target) as building:
            write_ctranslate2(self._run, building)
            write_certificate(self._run, building, "ctranslate2", sentences, progress=False)
            # Open the model before the folder gets its final name: another process may replace it afterwards.
            return CTranslate2Search(self._run, building, precision=precision, threads=threads)

    def _report(self, message: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            print_status(f"regard: {message}", show=True)


def unsupported_option(search: Search, models: int, *, scored: bool) -> str | None:
    """Return why CTranslate2 cannot give the answers of Regard's search; None if it can.

    >>> from regard.decoding.controls import Controls; from regard.decoding.translation import Search
    >>> unsupported_option(Search(controls=Controls(min_length=3)), 1, scored=False) is None
    True
    >>> unsupported_option(Search(beam=5, controls=Controls(min_length=3)), 1, scored=False)
    'min_length 3 with beam 5 ranks answers by other probabilities in CTranslate2'
    """
    controls = search.controls
    if search.temperature:
        return f"temperature {search.temperature:g} samples with Regard's seeds, which CTranslate2 does not support"
    if search.traced:
        return "CTranslate2 does not return the attention that the doubt needs, which would be computed again"
    if models > 1:
        return f"an ensemble of {models} runs is not supported by CTranslate2"
    for option in ("terms", "glossary"):
        if getattr(controls, option):
            return f"CTranslate2 does not support {option}"
    for option in ("min_length", "no_repeat_ngram"):
        # CTranslate2 divides the probability of forbidden tokens among the other tokens. Greedy search still has
        # the same answers, but with other log-probabilities.
        if (size := getattr(controls, option)) and (search.beam > 1 or scored):
            use = f"with beam {search.beam} ranks answers by" if search.beam > 1 else "gives scores from"
            return f"{option} {size} {use} other probabilities in CTranslate2"
    return None


def _digest(run: Exportable) -> str:
    """Return a hash of the parameters, the config, the vocabularies and the version of Regard."""
    from regard.convert.ctranslate2 import get_ctranslate2_parts

    _, config, source, target = get_ctranslate2_parts(run)
    settings = [__version__, to_plain(config), run.task.longest_source, run.task.longest_target]
    digest = hashlib.sha256(json.dumps([*settings, source.to_json(), target.to_json()]).encode())
    for name, tensor in run.model.state_dict().items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().float().cpu().numpy()).data)
    return digest.hexdigest()[:16]

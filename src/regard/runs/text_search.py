"""Search for answers to texts with a run or an ensemble of runs, in Regard or another engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from regard.convert.exportable import Exportable
from regard.data.vocabulary import is_blank
from regard.decoding.translation import Candidate, Search
from regard.errors import InputError, check_range
from regard.runs.placed_terms import place_terms
from regard.runs.unknown_words import replace_unknown

if TYPE_CHECKING:
    from regard.convert.choices import EngineName, Precision
    from regard.convert.engine import Engines
    from regard.runs.alignment import Aligner


class Translator(Exportable, Protocol):
    """A run that answers texts."""

    @property
    def engines(self) -> Engines:
        """Search engines of other programs."""

    @property
    def aligner(self) -> Aligner:
        """Word aligner of the model."""

    def check_texts(self, texts: Iterable[str]) -> None:
        """Raise `InputError` for the first text that is too long."""


def search_texts(
    runs: Sequence[Translator],
    texts: Iterable[str],
    search: Search,
    *,
    batchsize: int,
    engine: EngineName,
    precision: Precision,
    scored: bool,
) -> list[list[Candidate]]:
    """Return the answers to each text; see `SequenceRun.search`. Without texts, only the options are checked.

    Raises `InputError` if the vocabularies of the runs differ.
    """
    from regard.decoding.translation import blank_answer, translate

    check_range("batchsize", batchsize, 1, 10**6)
    texts = [texts] if isinstance(texts, str) else list(texts)
    first = runs[0]
    for run in runs:
        run.check_texts(texts)
    for run in runs[1:]:
        _check_vocabularies(first, run)
    # A blank text has an empty answer, without a search.
    indices = [index for index, text in enumerate(texts) if not is_blank(text)]
    nonblank = [texts[index] for index in indices]
    search = search.select(indices, len(texts))
    opened = None
    own_engines = ("regard",) if nonblank else ("regard", "auto")  # auto opens no engine without texts
    if engine not in own_engines or precision != "float32":
        opened = first.engines.choose(search, engine, precision, models=len(runs), scored=scored)
    if not nonblank:
        return [[blank_answer()] for _ in texts]
    own = partial(
        translate,
        [run.model for run in runs],
        first.task.source_vocabulary,
        first.task.target_vocabulary,
        max_len=min(run.task.longest_target for run in runs),
    )
    find = partial(own if opened is None else opened.search, batchsize=batchsize, scored=scored)
    found = find(nonblank, search)
    if search.controls.glossary:
        found = place_terms(find, first.aligner, nonblank, search, found)
    if search.controls.replace_unknown:
        found = replace_unknown(first.aligner, nonblank, found)
    answers = [[blank_answer()] for _ in texts]
    for index, ranked in zip(indices, found, strict=True):
        answers[index] = ranked
    return answers


def _check_vocabularies(run: Translator, other: Translator) -> None:
    """Raise `InputError` if the vocabularies of two runs differ."""
    for side in ("source", "target"):
        vocabulary = f"{side}_vocabulary"
        if _content(getattr(run.task, vocabulary)) != _content(getattr(other.task, vocabulary)):
            raise InputError(
                f"the {side} vocabularies of {str(run.folder)!r} and {str(other.folder)!r} differ: "
                "give runs that were trained with the same vocabularies"
            )


def _content(vocabulary: Any) -> Any:
    return vocabulary.to_json() if hasattr(vocabulary, "to_json") else vocabulary.symbols

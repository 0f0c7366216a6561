"""Aligning with a run: which words of a target come from which words of its source, by heads chosen once.

The choice is kept in the run's folder, in alignment.json, and used wherever links are asked for. Where nobody has
chosen, all heads are averaged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec

from regard.data.cutting import cut_into
from regard.data.links import Symmetrising, links_of_product, moses, symmetrise
from regard.errors import InputError
from regard.interpret import (
    AligningHeads,
    By,
    KeptHeads,
    all_weights,
    choose_heads,
    combine_heads,
    cross_attention_heads,
    extract_links,
    word_weights,
)
from regard.io.reading import DamageError, damaged, shaped
from regard.result import Result, plain
from regard.training.guided import HEAD, guided_layer
from regard.training.kept import read_kept, write_kept

if TYPE_CHECKING:
    import numpy as np

    from regard.data.cutting import Cut
    from regard.data.links import KnownLinks, Link
    from regard.data.places import Unit
    from regard.interpret import AlignmentChoice, Head
    from regard.models import Seq2Seq
    from regard.tasks import SequenceTask
    from regard.training import RunFolder

FILE = "alignment.json"
FORMAT = "regard-alignment/1"
MEND = "delete it, and choose heads again"
SYMMETRISED: tuple[Symmetrising, ...] = get_args(Symmetrising)


@dataclass(frozen=True, kw_only=True, repr=False)
class LinkedPair(Result):
    """A pair of source and target, and which words of the target come from which of the source."""

    source: list[str]
    """Its words."""
    target: list[str]
    links: list[Link]
    """Source and target word of each link, from 0, by source word."""
    weights: np.ndarray
    """(Wt, Ws) float32, what each target word attends to in the source."""
    nothing: np.ndarray
    """(Wt,), what it attends to at the end of the source, which is no word."""
    heads: str
    """Whose weights they are: those of a head, or the mean of several."""

    @property
    def moses(self) -> str:
        """The links as `0-0 1-2`."""
        return moses(self.links)

    def __str__(self) -> str:
        return self.moses


class _Heads(msgspec.Struct, forbid_unknown_fields=True):
    heads: Annotated[list[tuple[str, int]], msgspec.Meta(min_length=1)]
    shifted: bool


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    """What alignment.json holds."""

    format: Literal["regard-alignment/1"]
    step: int
    """Of the model whose heads these are."""
    best: By
    ways: dict[By, _Heads]
    writing: _Heads
    report: dict[str, Any]
    """How well they did, for people and programs."""


@dataclass(frozen=True)
class Aligner:
    """A model that aligns, with the vocabularies of its task, and the folder in which its heads are kept."""

    model: Seq2Seq
    task: SequenceTask
    files: RunFolder
    step: int
    guided: bool = False
    """Whether a head has learned to align."""

    @property
    def unit(self) -> Unit:
        """What is aligned where nobody says so: words, or characters of a task of characters."""
        return "pieces" if self.task.source_vocabulary.unit == "characters" else "words"

    def kept(self) -> KeptHeads | None:
        """Return the heads that were chosen; the guided one where nobody has, or the model has gone on since; or
        None.

        Raises `InputError` where the file is damaged.
        """
        return self._chosen() or self._guided()

    def _guided(self) -> KeptHeads | None:
        if not self.guided:
            return None
        head = AligningHeads(heads=((guided_layer(self.model), HEAD),), shifted=False)
        return KeptHeads(best="head", ways={"head": head}, writing=head)

    def _chosen(self) -> KeptHeads | None:
        content = read_kept(self.files, FILE, MEND)
        if content is None:
            return None
        try:
            found = shaped(content, _Kept)
        except DamageError as error:
            raise damaged(self.files.path / FILE, error, MEND) from error
        known = set(cross_attention_heads(self.model))
        ways = {way: _heads(each) for way, each in found.ways.items()}
        writing = _heads(found.writing)
        named = {head for each in (*ways.values(), writing) for head in each.heads}
        if found.step != self.step or not named <= known or found.best not in ways:
            return None
        return KeptHeads(best=found.best, ways=ways, writing=writing)

    def heads(self, by: By | None = None) -> AligningHeads:
        """Return the heads to align by: the best ones that are kept, or those of another way, or all."""
        kept = self.kept()
        if kept is not None and (by or kept.best) in kept.ways:
            return kept.ways[by or kept.best]
        if by in ("head", "set"):
            raise InputError(
                f"run {str(self.files.path)!r} has no heads chosen to align by: choose some with `regard align "
                f"RUN SOURCE TARGET --links LINKS`, or leave out --by {by}"
            )
        return AligningHeads(heads=tuple(cross_attention_heads(self.model)), shifted=False)

    def align(
        self, pairs: Sequence[tuple[str, str]], by: By | None = None, unit: Unit | None = None
    ) -> list[LinkedPair]:
        """Return the links of pairs of source and target; see `SequenceRun.align`."""
        chosen, unit = self.heads(by), unit or self.unit
        source, target = self.task.source_vocabulary, self.task.target_vocabulary
        cuts = [(cut_into(one, source, unit), cut_into(other, target, unit)) for one, other in pairs]
        order = sorted(range(len(cuts)), key=lambda place: len(cuts[place][1].indices))
        found: list[LinkedPair | None] = [None] * len(cuts)
        weights = word_weights(self.model, [cuts[place] for place in order], chosen.heads)
        for place, each in zip(order, weights, strict=True):
            found[place] = _linked(*cuts[place], each[int(chosen.shifted)].mean(0), chosen.name)
        return [each for each in found if each is not None]

    def keep(self, choice: AlignmentChoice) -> None:
        """Keep a choice in the run's folder."""
        report = {name: plain(each) for name, each in choice.json().items() if name in ("against", "found")}
        kept = {
            "format": FORMAT,
            "step": self.step,
            "best": choice.best,
            "ways": {way: plain(each) for way, each in choice.ways.items()},
            "writing": plain(choice.writing),
            "report": report,
        }
        write_kept(self.files, FILE, kept)

    def choose(
        self,
        pairs: Sequence[tuple[str, str]],
        known: Sequence[KnownLinks],
        *,
        against: str,
        reverse: Aligner | None = None,
        others: dict[str, Sequence[frozenset[Link]]] | None = None,
        unit: Unit | None = None,
        keep: bool = True,
        seed: int = 0,
    ) -> AlignmentChoice:
        """Choose the heads that a run aligns by, keep them, and return how well they do; see
        `SequenceRun.choose_alignment`."""
        unit, turned = unit or self.unit, [(target, source) for source, target in pairs]
        if reverse is not None:
            reverse.choose(
                turned, [each.turned() for each in known], against=against, unit=unit, keep=keep, seed=seed
            )
        vocabularies = (self.task.source_vocabulary, self.task.target_vocabulary)
        cuts, weights = all_weights(self.model, pairs, vocabularies, unit)
        for number, ((source, target), links) in enumerate(zip(cuts, known, strict=True), start=1):
            links.check(len(source.places), len(target.places), f"pair {number}")
        heads: list[Head] = cross_attention_heads(self.model)

        def beside(numbers: Sequence[int], chosen: AligningHeads) -> dict[str, Sequence[frozenset[Link]]]:
            told: dict[str, Sequence[frozenset[Link]]] = {}
            told.update({name: [links[each] for each in numbers] for name, links in (others or {}).items()})
            if reverse is None:
                return told
            forward = [
                _linked(*cuts[each], combine_heads(weights[each], heads, chosen), chosen.name) for each in numbers
            ]
            backward = reverse.align([turned[each] for each in numbers], unit=unit)
            for how in SYMMETRISED:
                joined = self.both_ways(forward, backward, how)
                told[f"both: {how}"] = [frozenset(each.links) for each in joined]
            return told

        choice = choose_heads(weights, heads, known, against=against, beside=beside, seed=seed)
        if keep:
            self.keep(choice)
        return choice

    @staticmethod
    def both_ways(
        forward: Sequence[LinkedPair], backward: Sequence[LinkedPair], how: Symmetrising
    ) -> list[LinkedPair]:
        """Return pairs with the links of both directions made one; `backward`: those of the turned pairs."""
        found = []
        for one, other in zip(forward, backward, strict=True):
            if how == "product":
                links = links_of_product(one.weights, other.weights)
            else:
                turned = frozenset((source, target) for target, source in other.links)
                links = symmetrise(frozenset(one.links), turned, how)
            found.append(dataclasses.replace(one, links=sorted(links)))
        return found


def _heads(kept: _Heads) -> AligningHeads:
    return AligningHeads(heads=tuple(kept.heads), shifted=kept.shifted)


def _linked(source: Cut, target: Cut, weights: np.ndarray, heads: str) -> LinkedPair:
    return LinkedPair(
        source=source.words,
        target=target.words,
        links=sorted(extract_links(weights)),
        weights=weights[:, :-1],
        nothing=weights[:, -1],
        heads=heads,
    )

"""Word alignment with a run: link the words of a target to the words of its source by attention.

The heads are chosen once, by their alignment error rate, and stored in alignment.json in the run's folder. If
no heads were chosen, the weights of all heads are averaged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec

from regard.arguments import public
from regard.data.tokenization import tokenize
from regard.data.word_alignment import Symmetrization, format_moses, links_from_weights, symmetrize
from regard.errors import InputError
from regard.interpret.head_selection import AligningHeads, By, KeptHeads, choose_heads, combine_heads
from regard.interpret.word_links import all_weights, cross_attention_heads, extract_links, word_weights
from regard.io.reading import DamageError, convert_json, damaged_file
from regard.result import Result, to_plain
from regard.training.objective import HEAD, guided_layer

if TYPE_CHECKING:
    import numpy as np

    from regard.data.tokenization import TokenizedText, Unit
    from regard.data.word_alignment import Link, WordAlignment
    from regard.interpret.head_selection import AlignmentChoice
    from regard.interpret.word_links import Head
    from regard.models.base import Seq2Seq
    from regard.tasks.pairs import SequenceTask
    from regard.training.run_folder import RunFolder

FILE = "alignment.json"
FORMAT = "regard-alignment/1"
MEND = "delete it, and choose heads again"
SYMMETRISATIONS: tuple[Symmetrization, ...] = get_args(Symmetrization)


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class LinkedPair(Result):
    """A sentence pair with the links between its words."""

    source: list[str]
    """Words of the source."""
    target: list[str]
    """Words of the target."""
    links: list[Link]
    """Indices (from 0) of the source word and the target word of each link, in the order of the source words."""
    weights: np.ndarray
    """(Wt, Ws) float32: attention of each target word to each source word."""
    nothing: np.ndarray
    """(Wt,): attention of each target word to the end-of-source symbol, which is not a word."""
    heads: str
    """Names of the heads whose weights are averaged."""

    @property
    def moses(self) -> str:
        """The links in Moses format, such as `0-0 1-2`."""
        return format_moses(self.links)

    def __str__(self) -> str:
        return self.moses


class _Heads(msgspec.Struct, forbid_unknown_fields=True):
    heads: Annotated[list[tuple[str, int]], msgspec.Meta(min_length=1)]
    shifted: bool


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    """Content of alignment.json."""

    format: Literal["regard-alignment/1"]
    step: int
    """Number of training steps of the model."""
    best: By
    ways: dict[By, _Heads]
    writing: _Heads
    report: dict[str, Any]
    """Alignment error rates of the chosen heads."""


@dataclass(frozen=True)
class Aligner:
    """Word aligner: a model, the vocabularies of its task, and the folder that stores the alignment heads."""

    model: Seq2Seq
    task: SequenceTask
    files: RunFolder
    step: int
    guided: bool = False
    """Whether a head was trained with an alignment loss."""

    @property
    def unit(self) -> Unit:
        return "pieces" if self.task.source_vocabulary.unit == "characters" else "words"

    def kept(self) -> KeptHeads | None:
        """Return the chosen heads, else the head that was trained with an alignment loss, else None.

        Raises `InputError` if the stored choice is damaged.
        """
        return self._chosen() or self._guided()

    def _guided(self) -> KeptHeads | None:
        if not self.guided:
            return None
        head = AligningHeads(heads=((guided_layer(self.model), HEAD),), shifted=False)
        return KeptHeads(best="head", ways={"head": head}, writing=head)

    def _chosen(self) -> KeptHeads | None:
        content = self.files.read_derived(FILE, MEND)
        if content is None:
            return None
        try:
            choice = convert_json(content, _Choice)
        except DamageError as error:
            raise damaged_file(self.files.path / FILE, error, MEND) from error
        known = set(cross_attention_heads(self.model))
        ways = {way: _aligning_heads(heads) for way, heads in choice.ways.items()}
        writing = _aligning_heads(choice.writing)
        named = {head for way in (*ways.values(), writing) for head in way.heads}
        if choice.step != self.step or not named <= known or choice.best not in ways:
            return None
        return KeptHeads(best=choice.best, ways=ways, writing=writing)

    def heads(self, by: By | None = None) -> AligningHeads:
        """Return the heads for alignment: the heads that `by` names, else the chosen heads, else all heads."""
        kept = self.kept()
        if kept is not None and (by or kept.best) in kept.ways:
            return kept.ways[by or kept.best]
        if by in ("head", "set"):
            raise InputError(
                f"run {str(self.files.path)!r} has no chosen alignment heads: choose them with `regard align "
                f"RUN SOURCE TARGET --links LINKS`, or leave out --by {by}"
            )
        return AligningHeads(heads=tuple(cross_attention_heads(self.model)), shifted=False)

    def align(
        self, pairs: Sequence[tuple[str, str]], by: By | None = None, unit: Unit | None = None
    ) -> list[LinkedPair]:
        """Return the links of sentence pairs; see `SequenceRun.align`."""
        heads, unit = self.heads(by), unit or self.unit
        source, target = self.task.source_vocabulary, self.task.target_vocabulary
        cuts = [(tokenize(text, source, unit), tokenize(answer, target, unit)) for text, answer in pairs]
        # Batches of pairs with similar lengths need less padding.
        order = sorted(range(len(cuts)), key=lambda index: len(cuts[index][1].indices))
        linked: list[LinkedPair | None] = [None] * len(cuts)
        weights = word_weights(self.model, [cuts[index] for index in order], heads.heads)
        for index, pair_weights in zip(order, weights, strict=True):
            linked[index] = _link(*cuts[index], pair_weights[int(heads.shifted)].mean(0), heads.name)
        return [pair for pair in linked if pair is not None]

    def keep(self, choice: AlignmentChoice) -> None:
        """Store a choice of heads in the run's folder."""
        report = {name: to_plain(value) for name, value in choice.json().items() if name in ("against", "found")}
        content = {
            "format": FORMAT,
            "step": self.step,
            "best": choice.best,
            "ways": {way: to_plain(heads) for way, heads in choice.ways.items()},
            "writing": to_plain(choice.writing),
            "report": report,
        }
        self.files.write_derived(FILE, content)

    def choose(
        self,
        pairs: Sequence[tuple[str, str]],
        known: Sequence[WordAlignment],
        *,
        against: str,
        reverse: Aligner | None = None,
        others: dict[str, Sequence[frozenset[Link]]] | None = None,
        unit: Unit | None = None,
        keep: bool = True,
        seed: int = 0,
    ) -> AlignmentChoice:
        """Choose the heads for alignment, store them, and return their error rates.

        See `SequenceRun.choose_alignment`.
        """
        unit, turned = unit or self.unit, [(target, source) for source, target in pairs]
        if reverse is not None:
            turned_links = [links.turned() for links in known]
            reverse.choose(turned, turned_links, against=against, unit=unit, keep=keep, seed=seed)
        vocabularies = (self.task.source_vocabulary, self.task.target_vocabulary)
        cuts, weights = all_weights(self.model, pairs, vocabularies, unit)
        for number, ((source, target), links) in enumerate(zip(cuts, known, strict=True), start=1):
            links.check(len(source.spans), len(target.spans), f"pair {number}")
        heads: list[Head] = cross_attention_heads(self.model)

        def compare(indices: Sequence[int], chosen: AligningHeads) -> dict[str, Sequence[frozenset[Link]]]:
            """Return the links of the methods in `others` for some pairs, and the combined links of both
            directions."""
            compared: dict[str, Sequence[frozenset[Link]]] = {}
            compared.update({name: [links[index] for index in indices] for name, links in (others or {}).items()})
            if reverse is None:
                return compared
            forward = [
                _link(*cuts[index], combine_heads(weights[index], heads, chosen), chosen.name)
                for index in indices
            ]
            backward = reverse.align([turned[index] for index in indices], unit=unit)
            for method in SYMMETRISATIONS:
                both = self.combine_directions(forward, backward, method)
                compared[f"both: {method}"] = [frozenset(pair.links) for pair in both]
            return compared

        choice = choose_heads(weights, heads, known, against=against, beside=compare, seed=seed)
        if keep:
            self.keep(choice)
        return choice

    @staticmethod
    def combine_directions(
        forward: Sequence[LinkedPair], backward: Sequence[LinkedPair], method: Symmetrization
    ) -> list[LinkedPair]:
        """Return pairs with the combined links of both directions. `backward` has the pairs (target, source)."""
        pairs = []
        for pair, reverse in zip(forward, backward, strict=True):
            if method == "product":
                links = links_from_weights(pair.weights, reverse.weights)
            else:
                turned = frozenset((source, target) for target, source in reverse.links)
                links = symmetrize(frozenset(pair.links), turned, method)
            pairs.append(dataclasses.replace(pair, links=sorted(links)))
        return pairs


def _aligning_heads(stored: _Heads) -> AligningHeads:
    return AligningHeads(heads=tuple(stored.heads), shifted=stored.shifted)


def _link(source: TokenizedText, target: TokenizedText, weights: np.ndarray, heads: str) -> LinkedPair:
    return LinkedPair(
        source=source.words,
        target=target.words,
        links=sorted(extract_links(weights)),
        weights=weights[:, :-1],
        nothing=weights[:, -1],
        heads=heads,
    )

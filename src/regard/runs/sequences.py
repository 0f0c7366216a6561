"""A run from sequence to sequence: translate with it, and see what it attends to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from regard import convert, decoding, evaluation, interpret, viz
from regard.data.vocabulary import empty_if_blank
from regard.data.word_alignment import align_with_eflomal
from regard.errors import InputError, check_range, shorten
from regard.runs.maps import map_of_links, map_of_pair, note_of, opened
from regard.runs.playback import play_back
from regard.runs.run import Run
from regard.runs.trials import trial_of_pair
from regard.training import ModelPart, TaskPart, TrainingPart
from regard.viz.records import attach_original, label_map

if TYPE_CHECKING:
    from regard.data.tokenization import Unit
    from regard.data.word_alignment import Link, Symmetrization, WordAlignment
    from regard.models import Seq2Seq
    from regard.runs.aligning import Aligner, LinkedPair
    from regard.tasks import SequenceTask

SHOWN = 20
"""Characters of a text that an error shows, at most."""
SILVER = 200_000
"""Pairs of its training text from which eflomal learns besides, at most."""


@dataclass(frozen=True, repr=False)
class SequenceRun(Run[TaskPart, ModelPart, TrainingPart]):
    """A run from sequence to sequence."""

    task: SequenceTask
    model: Seq2Seq
    usual_beam: ClassVar[int] = 1
    """Prefixes kept side by side where nothing else is asked for; 1 is greedy search."""
    usual_length_penalty: ClassVar[float] = 0.0
    """Its exponent, where nothing else is asked for."""

    @property
    def importance_samples(self) -> int:
        """Unseen pairs that importance is asked over, where nothing else is said."""
        return 500

    def translate(
        self,
        texts: Iterable[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        batchsize: int = 64,
        engine: convert.EngineName = "regard",
        precision: convert.Precision = "float32",
    ) -> list[str]:
        """Return the most likely answer to each text, in order; see `search`."""
        found = self.search(
            texts,
            beam=beam,
            length_penalty=length_penalty,
            batchsize=batchsize,
            engine=engine,
            precision=precision,
            scored=False,
        )
        return [best.text for best, *_ in found]

    def search(
        self,
        texts: Iterable[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        temperature: float = 0.0,
        seed: int = 0,
        batchsize: int = 64,
        engine: convert.EngineName = "regard",
        precision: convert.Precision = "float32",
        scored: bool = True,
    ) -> list[list[decoding.Candidate]]:
        """Return the `n_best` answers to each text, best first, with their log-probabilities and scores.

        `beam`: prefixes kept side by side, 1 for greedy search; `length_penalty`: exponent, 0 for none; of both,
        None is what is usual for such a run. `temperature` above 0: tokens are drawn instead, by `seed`. What
        training never saw is read as one unknown symbol; a blank text has one answer, the empty one. `engine`,
        `precision`, `scored`: see `Engines.search`. Raises `InputError` where a text is too long, numbers do not
        fit, or the engine cannot search so.
        """
        if beam is None:
            beam = 1 if temperature else self.usual_beam
        length_penalty = self.usual_length_penalty if length_penalty is None else length_penalty
        check_range("beam", beam, 1, 1000)
        check_range("n_best", n_best, 1, beam)
        check_range("seed", seed, 0, 2**32 - 1)
        check_range("batchsize", batchsize, 1, 10**6)
        texts = [texts] if isinstance(texts, str) else list(texts)
        self._check(texts)
        settings = decoding.Search(
            beam=beam, length_penalty=length_penalty, n_best=n_best, temperature=temperature, seed=seed
        )
        return self.engines.search(
            texts, settings, engine=engine, precision=precision, batchsize=batchsize, scored=scored
        )

    @cached_property
    def engines(self) -> convert.Engines:
        """The programs that search its answers."""
        return convert.Engines(self)

    def tree(self, input: str | None = None, *, beam: int | None = None, seed: int = 0) -> decoding.SearchTree:
        """Return what the search tries while it answers an input, or one drawn by `seed`: every prefix that it
        keeps, with what might have come next. `beam` None: what is usual for such a run."""
        text = self.draw(seed=seed) if input is None else input
        self._check([text])
        return decoding.search_tree(
            self.model,
            self.task.source_vocabulary,
            self.task.target_vocabulary,
            text,
            beam=self.usual_beam if beam is None else beam,
            length_penalty=self.usual_length_penalty,
            max_len=self.task.longest_target,
        )

    def attend_tokens(self, input: str, tokens: list[int]) -> viz.AttentionMap:
        """Return what a model attends to while it answers `input` with tokens that a search has tried."""
        found = map_of_pair(self.model, self.task, input, tokens)
        return opened(self.kept_heads(), label_map(self.model, self.where, found))

    def score(self, pairs: Iterable[tuple[str, str]], *, batchsize: int = 64) -> list[evaluation.Scored]:
        """Return the log-probability of each target given its source.

        Blank texts: see `score_pairs`. Raises `InputError` where a source is too long.
        """
        check_range("batchsize", batchsize, 1, 10**6)
        pairs = list(pairs)
        self._check([source for source, _ in pairs])
        return evaluation.score_pairs(
            self.model, self.task.source_vocabulary, self.task.target_vocabulary, pairs, batchsize=batchsize
        )

    @property
    def _aligner(self) -> Aligner:
        from regard.runs.aligning import Aligner

        return Aligner(self.model, self.task, self.files, self.step, self.guided)

    @property
    def guided(self) -> bool:
        """Whether a head was guided by links as it learned."""
        return False

    def kept_heads(self) -> interpret.KeptHeads | None:
        """Return the heads to align by: those chosen, or else the guided one; None where there is neither."""
        return self._aligner.kept()

    def align(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        by: interpret.By | None = None,
        unit: Unit | None = None,
        reverse: SequenceRun | None = None,
        symmetrise: Symmetrization = "product",
    ) -> list[LinkedPair]:
        """Return which words of each target come from which words of its source.

        The decoder is fed the target; each of its words is linked to the source word that the heads which were
        chosen (`choose_alignment`) give most weight, or to none where that is the end of the source. `by`: a
        single head, a set of them, or all; None: what was best, and all heads where nobody has chosen. `unit`:
        words between blanks, these with punctuation apart (parts), or pieces of the vocabulary; None: words, or
        characters of a task of characters. `reverse`: a run of the other direction, with whose links they are
        made one as `symmetrise` says. Raises `InputError` where a text is too long, or there is no attention.
        """
        pairs = [(empty_if_blank(source), empty_if_blank(target)) for source, target in pairs]
        self._check_pairs(pairs)
        found = self._aligner.align(pairs, by, unit)
        if reverse is None:
            return found
        backward = reverse.align([(target, source) for source, target in pairs], by=by, unit=unit)
        return self._aligner.both_ways(found, backward, symmetrise)

    def choose_alignment(
        self,
        pairs: Sequence[tuple[str, str]],
        known: Sequence[WordAlignment],
        *,
        against: str = "known links",
        reverse: SequenceRun | None = None,
        others: dict[str, Sequence[frozenset[Link]]] | None = None,
        unit: Unit | None = None,
        keep: bool = True,
        seed: int = 0,
    ) -> interpret.AlignmentChoice:
        """Choose the heads to align by, on half of the pairs, and return how well they do on the other half.

        With `keep` the choice is kept in the run's folder, and that of `reverse` in its own. `against`: what the
        links are, for people; `others`: links of the same pairs that something else has found, to be reported
        besides. Raises `InputError` where pairs are too few, links lead past words, or there is no attention.
        """
        self._check_pairs(pairs)
        if len(pairs) != len(known):
            raise InputError(f"{len(known)} pairs have links, {len(pairs)} are given: give as many")
        return self._aligner.choose(
            pairs,
            known,
            against=against,
            reverse=None if reverse is None else reverse._aligner,
            others=others,
            unit=unit,
            keep=keep,
            seed=seed,
        )

    def known_links(self, samples: int) -> tuple[list[tuple[str, str]], list[WordAlignment]]:
        """Return at most so many unseen pairs, with the links that the task knows, or without any."""
        pairs = [(each[0], each[1]) for each in self.unseen(samples, 0, purpose="align")]
        return pairs, []

    def silver_links(self, pairs: Sequence[tuple[str, str]]) -> list[frozenset[Link]]:
        """Return the links that eflomal finds in pairs, of their words between blanks.

        It learns from what this run was trained on as well. Raises `InputError` without the extra `align`.
        """
        return align_with_eflomal(pairs, self.trained_on(SILVER))

    def trained_on(self, most: int) -> list[tuple[str, str]]:
        """Return pairs that it was trained on, or such ones as it was trained on, at most so many."""
        raise NotImplementedError

    def map_of_links(self, found: LinkedPair) -> viz.AttentionMap:
        """Return what the heads that align attend to, as one layer of words, ready to be drawn."""
        return map_of_links(self.task.name, found)

    def attend(
        self,
        input: str | None = None,
        *,
        answer: decoding.Candidate | None = None,
        seed: int = 0,
        beam: int | None = None,
        length_penalty: float | None = None,
    ) -> viz.AttentionMap:
        """Answer one input, and keep what each symbol of the answer attended to, in every layer.

        Without `input`, draw one by `seed`. `answer`: one that `search` has found, instead of the best. With an
        intervention in force, and no `answer`, `original` is the map without it. The rest is as in `search`.
        """
        if input is None and answer is not None:
            raise InputError("an answer is given: give the input that it answers too")
        text = self.draw(seed=seed) if input is None else input

        def answered() -> viz.AttentionMap:
            found = answer or self.search([text], beam=beam, length_penalty=length_penalty)[0][0]
            return opened(self.kept_heads(), map_of_pair(self.model, self.task, text, found.tokens))

        model, where = self.model, self.where
        found = attach_original(model, where, answered) if answer is None else label_map(model, where, answered())
        unknown = self.task.source_vocabulary.unknown(text)
        return dataclasses.replace(found, note=note_of(self.unseen_length(text), unknown))

    @property
    def longest_seen(self) -> int:
        """The longest source that training has seen, in what its vocabulary counts."""
        raise NotImplementedError

    def unseen_length(self, text: str) -> str:
        """Say which lengths training has seen, where that of a text was not among them; empty where it was."""
        vocabulary, longest = self.task.source_vocabulary, self.longest_seen
        if len(text) < longest or (steps := len(vocabulary.pieces(text))) <= longest:
            return ""
        return f"has seen inputs of up to {longest} {vocabulary.unit}, not of {steps}"

    def playback(self, input: str | None = None, *, seed: int = 0) -> viz.Playback:
        """Return how attention on one input formed during training.

        The models of all snapshots are given the answer of the last one, symbol by symbol, so that their weights
        can be compared; their predictions are what they would write after each. Raises `InputError` where the
        run has kept no snapshots.
        """
        text = self.draw(seed=seed) if input is None else input
        [[best, *_]] = self.search([text])
        return play_back(
            self.files,
            self.model,
            lambda model: map_of_pair(model, self.task, text, best.tokens, forced=True),
        )

    def called(self, classes: Sequence[int]) -> list[str]:
        """Return the symbols of some indices of the target's vocabulary."""
        return [label for each in classes for label in self.task.target_vocabulary.labels([each])]

    def draw(self, *, seed: int = 0) -> str:
        """Return a drawn input; raises `InputError` where the task draws none."""
        del seed
        raise InputError(f"input is missing: {self.name} draws none by itself")

    def look(self, input: Any) -> viz.AttentionMap:
        """Return what it attends to in a pair of source and target; the decoder is fed the target."""
        tokens = self.task.target_vocabulary.encode(input[1])
        return opened(self.kept_heads(), map_of_pair(self.model, self.task, input[0], tokens, forced=True))

    def losses(self, inputs: Sequence[Any]) -> np.ndarray:
        """Return (N, 2), of each pair of source and target: the cross-entropy of its tokens, in nats, and their
        number."""
        found = self.score([(pair[0], pair[1]) for pair in inputs])
        return np.array([(-each.log_probability, each.tokens) for each in found], dtype=np.float64)

    def trial(self, input: Any) -> viz.ProbeInput:
        """Return a pair of source and target, ready to be probed; the decoder is fed the target."""
        return trial_of_pair(self.model, self.task, input[0], input[1])

    def check(self, input: str) -> None:
        """Raise `InputError` where a text is too long to be answered."""
        if (reason := self.too_long(input)) is not None:
            raise InputError(f"input {reason}")

    def _check(self, texts: list[str]) -> None:
        for index, text in enumerate(texts):
            if (reason := self.too_long(text)) is not None:
                raise InputError(f"text {index}, {shorten(text, SHOWN)}, {reason}")

    def _check_pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._check([source for source, _ in pairs])
        for index, (_, text) in enumerate(pairs):
            if (reason := self.too_long(text, target=True)) is not None:
                raise InputError(f"target {index}, {shorten(text, SHOWN)}, {reason}")

    def too_long(self, text: str, *, target: bool = False) -> str | None:
        """Say in what way a source, or a target that is given, is too long; None for one that is not."""
        vocabulary, most = self.task.source_vocabulary, self.task.longest_source
        if target:
            vocabulary, most = self.task.target_vocabulary, self.task.longest_target
        # No vocabulary has more symbols than a text has characters, but for the blank before its first word.
        if len(text) < most or (length := len(vocabulary.encode(text))) <= most:
            return None
        return f"has {length} {vocabulary.unit}, at most {most} are taken"

"""Beam search in CTranslate2, with the same answers as `regard.decoding`, in the same order.

CTranslate2 keeps the same prefixes as `regard.decoding`. With a length penalty just above 0, CTranslate2 also
stops by Regard's rule: as soon as the number of finished hypotheses equals the number of beams. Five details
differ:

- Tokens that are never written (`NEVER`) keep their probability in Regard. CTranslate2 redistributes the
  probability of disabled tokens. These tokens are therefore end symbols in CTranslate2.
- The formula of the length penalty differs, so Regard ranks the hypotheses.
- If the number of hypotheses exceeds the number of beams, CTranslate2 drops the least likely hypotheses. At the
  maximum length, CTranslate2 ends all hypotheses.
- CTranslate2 has one maximum length per batch; Regard has one per source. Hypotheses above the limit of their
  source are ignored.
- CTranslate2's scores do not include the prefix of `Controls`, so Regard adds its log-probability.

Constraints that change the probabilities of CTranslate2 are refused (see `engine.unsupported_option`).

If one of the differences could change an answer, Regard's own search answers the sentence. For trained
models, Regard's own search answers about one sentence in a thousand, and more sentences only if `n_best` is
close to `beam` and the search has a length penalty.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from regard.convert.choices import Precision
from regard.convert.conversion import token_names
from regard.convert.ctranslate2 import get_ctranslate2_parts, open_translator
from regard.convert.exportable import Exportable
from regard.data.batch import PairBatch, collate
from regard.data.subwords import RESERVED
from regard.data.vocabulary import EOS
from regard.decoding.controls import Requirement, find_requirements, make_constraints
from regard.decoding.search import Hypothesis, length_penalty
from regard.decoding.translation import (
    Candidate,
    Search,
    candidates,
    length_batches,
    longest_answer,
    search_batch,
)
from regard.evaluation.scoring import token_log_probabilities
from regard.fast.onednn import packed_logits
from regard.libraries import import_library, library_errors

Pair = tuple[list[int], Requirement]
"""The tokens of a source, and what the controls require of its answer."""
NO_PENALTY = 1e-9
"""Length penalty of CTranslate2. Smallest length penalty: at 0, CTranslate2's search has a different stopping
rule than Regard's."""
MIN_LOG_PROBABILITY = -1e30
"""Lowest log-probability of real prefixes: less likely prefixes only fill a beam that is wider than the
vocabulary."""


class CTranslate2Search:
    """A converted model that searches for the answers of a run on the CPU."""

    def __init__(self, run: Exportable, folder: Path, *, precision: Precision, threads: int) -> None:
        import_library("ctranslate2", "engine ctranslate2", "export")
        self._model, _, self._source, self._target = get_ctranslate2_parts(run)
        self._max_len = run.task.longest_target
        self._source_names, self._target_names = token_names(self._source), token_names(self._target)
        self._indices = {name: index for index, name in enumerate(self._target_names)}
        # One thread per batch, as in Regard: threads that share a matrix product wait for each other.
        self._folder = folder
        with library_errors("ctranslate2", f"{str(folder)!r} cannot be loaded", "remove that folder"):
            self._translator = open_translator(
                folder, compute_type=precision, inter_threads=threads, intra_threads=1
            )

    def search(
        self, texts: Sequence[str], search: Search, *, batchsize: int, scored: bool
    ) -> list[list[Candidate]]:
        """Return the same answers as `regard.decoding.translate`.

        If `scored` is False, a greedy search skips the log-probabilities, which are then NaN.
        """
        sources = self._source.encode_all(texts)
        limits = [longest_answer(source, self._max_len) for source in sources]
        requirements = find_requirements(search.controls, texts, limits, self._target, self._max_len)
        pairs = list(zip(sources, requirements, strict=True))
        batches = []
        for indices in length_batches(sources, batchsize):
            batch = [pairs[index] for index in indices]
            with self._library_errors():
                batches.append((indices, batch, self._submit(batch, search, scored=scored)))
        answers: list[list[Candidate]] = [[] for _ in texts]
        for indices, batch, pending in batches:
            with self._library_errors():
                results = [result.result() for result in pending]
            ranked = [
                self._rank(result, search, requirement.limit, begin)
                for result, (_, requirement), begin in zip(
                    results, batch, self._prefix_scores(batch), strict=True
                )
            ]
            doubtful = [pair for pair, hypotheses in zip(batch, ranked, strict=True) if not hypotheses]
            own = iter(self._search_again(doubtful, search) if doubtful else ())
            for index, hypotheses in zip(indices, ranked, strict=True):
                answers[index] = candidates(hypotheses or next(own), self._target)
        return answers

    def _submit(self, batch: Sequence[Pair], search: Search, *, scored: bool) -> Any:
        """Start the search for a batch of sources, and return the pending results."""
        controls, options = search.controls, {}
        if any(requirement.prefix for _, requirement in batch):
            options["target_prefix"] = [
                [self._target_names[token] for token in requirement.prefix] for _, requirement in batch
            ]
        return self._translator.translate_batch(
            [[self._source_names[token] for token in source] for source, _ in batch],
            asynchronous=True,
            beam_size=search.beam,
            num_hypotheses=search.beam,
            length_penalty=0 if search.beam == 1 else NO_PENALTY,
            end_token=[RESERVED[EOS], *(RESERVED[token] for token in controls.never)],
            return_end_token=True,
            max_input_length=0,
            min_decoding_length=controls.min_length,
            # The end symbol may follow the last token.
            max_decoding_length=max(requirement.limit for _, requirement in batch) + 1,
            no_repeat_ngram_size=controls.no_repeat_ngram,
            repetition_penalty=controls.repetition_penalty,
            return_scores=scored or search.beam > 1,
            **options,
        )

    def _prefix_scores(self, batch: Sequence[Pair]) -> list[float]:
        """Return the log-probability of the prefix of each source."""
        prefixes = [requirement.prefix for _, requirement in batch]
        if not any(prefixes):
            return [0.0] * len(prefixes)
        pairs = PairBatch(collate([source for source, _ in batch]), collate(prefixes))
        steps = token_log_probabilities(self._model.eval(), packed_logits(self._model), pairs)
        return [step[: len(prefix)].sum().item() for step, prefix in zip(steps, prefixes, strict=True)]

    def _search_again(self, batch: Sequence[Pair], search: Search) -> list[list[Hypothesis]]:
        """Return the hypotheses of Regard's own search."""
        requirements = [requirement for _, requirement in batch]
        limits = [requirement.limit for requirement in requirements]
        constraints = make_constraints(search.controls, requirements)
        sources = collate([source for source, _ in batch])
        return search_batch(self._model, sources, search, most=limits, constraints=constraints)

    def _library_errors(self) -> AbstractContextManager[None]:
        return library_errors("ctranslate2", f"{str(self._folder)!r} cannot translate", "remove that folder")

    def _rank(self, result: Any, search: Search, most: int, begin: float = 0.0) -> list[Hypothesis]:
        """Return the `n_best` hypotheses of a source, with at most `most` tokens.

        `begin`: log-probability of the prefix. Returns an empty list if Regard's own search might give other
        answers.
        """
        totals = [begin + score for score in result.scores or [math.nan]]
        finished = []
        for names, total in zip(result.hypotheses, totals, strict=True):
            tokens = [self._indices[name] for name in names]
            if (
                not tokens or tokens[-1] in search.controls.never or total < MIN_LOG_PROBABILITY
            ):  # an empty source has no tokens
                return []
            if tokens[-1] == EOS and len(tokens) <= most + 1:
                penalty = length_penalty(len(tokens), search.length_penalty) if search.beam > 1 else 1.0
                finished.append(
                    Hypothesis(tokens=tokens[:-1], log_probability=total, score=total / penalty, finished=True)
                )
        if len(finished) < search.n_best:
            return []
        finished.sort(key=lambda hypothesis: hypothesis.score, reverse=True)
        if search.beam > 1:
            # A hypothesis that CTranslate2 dropped is less likely than all returned hypotheses, and not longer
            # than the longest.
            longest = max(map(len, result.hypotheses))
            if finished[search.n_best - 1].score < min(totals) / length_penalty(longest, search.length_penalty):
                return []
        return finished[: search.n_best]

"""Our search, done by CTranslate2: the same answers in the same order, in less time.

CTranslate2 keeps the same prefixes as `regard.decoding` and stops by the same rule, as soon as as many hypotheses
have ended as there are beams, where it is given a length penalty that is not quite 0. Four things it does
otherwise:

- Tokens that are never written (`NEVER`) keep their share of the probability here; there, what is disabled hands
  its share on to the others. So they end a hypothesis there, as the end of sequence does.
- Its length penalty is another, so what it finds is ranked here.
- Of more hypotheses than beams it drops the least likely, and at the longest length it ends all.
- It knows one longest length for a whole batch; ours is that of each source. What goes beyond that is not
  counted.

Where that leaves a doubt whether our search would answer the same, our search answers: in a trained model that is
one sentence in a thousand, more only where nearly as many answers as beams are wanted with a length penalty.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from regard.convert.choices import Precision
from regard.convert.ctranslate2 import for_ctranslate2, names_of
from regard.convert.exportable import Exportable
from regard.data import EOS, collate
from regard.data.subwords import RESERVED
from regard.decoding import Candidate, Hypothesis, Search, length_penalty
from regard.decoding.beam import check_beam
from regard.decoding.hypothesis import NEVER
from regard.decoding.search import candidates, length_batches, longest_answer, search_batch
from regard.libraries import import_library, library_errors

NO_PENALTY = 1e-9
"""At 0 it would stop by another rule."""
LEAST = -1e30
"""Less likely are only prefixes that fill up a beam wider than the vocabulary."""


class CTranslate2Search:
    """A converted model, opened to search for the answers of a run; on the CPU."""

    def __init__(self, run: Exportable, folder: Path, *, precision: Precision, threads: int) -> None:
        ctranslate2 = import_library("ctranslate2", "engine ctranslate2", "export")
        self._model, _, self._source, self._target = for_ctranslate2(run)
        self._max_len = run.task.longest_target
        self._source_names, names = names_of(self._source), names_of(self._target)
        self._indices = {name: index for index, name in enumerate(names)}
        # Batches side by side, as ours are: threads that share a product wait for each other.
        self._folder = folder
        with library_errors("ctranslate2", f"{str(folder)!r} cannot be loaded", "remove that folder"):
            self._translator: Any = ctranslate2.Translator(
                str(folder), compute_type=precision, inter_threads=threads, intra_threads=1
            )

    def search(
        self, texts: Sequence[str], search: Search, *, batchsize: int, scored: bool
    ) -> list[list[Candidate]]:
        """Return what `regard.decoding.translate` returns; without `scored` a greedy search leaves out the
        probabilities, which are NaN then."""
        if search.beam > 1:
            check_beam(search.beam, search.n_best, search.length_penalty)
        sources = self._source.encode_all(texts)
        batches = []
        for indices in length_batches(sources, batchsize):
            limits = [longest_answer(sources[index], self._max_len) for index in indices]
            with self._calling():
                found = self._translator.translate_batch(
                    [[self._source_names[token] for token in sources[index]] for index in indices],
                    asynchronous=True,
                    beam_size=search.beam,
                    num_hypotheses=search.beam,
                    length_penalty=0 if search.beam == 1 else NO_PENALTY,
                    end_token=[RESERVED[EOS], *(RESERVED[each] for each in NEVER)],
                    return_end_token=True,
                    max_input_length=0,
                    min_decoding_length=0,
                    max_decoding_length=max(limits) + 1,  # an end may follow on the last token
                    return_scores=scored or search.beam > 1,
                )
            batches.append((indices, limits, found))
        answers: list[list[Candidate]] = [[] for _ in texts]
        for indices, limits, waiting in batches:
            with self._calling():
                results = [each.result() for each in waiting]
            found = [self._best(each, search, most) for each, most in zip(results, limits, strict=True)]
            left = [place for place, each in enumerate(found) if not each]
            source = collate([sources[indices[place]] for place in left]) if left else None
            most = [limits[place] for place in left]
            ours = iter(search_batch(self._model, source, search, most=most) if source is not None else ())
            for index, each in zip(indices, found, strict=True):
                answers[index] = candidates(each or next(ours), self._target)
        return answers

    def _calling(self) -> AbstractContextManager[None]:
        return library_errors("ctranslate2", f"{str(self._folder)!r} cannot translate", "remove that folder")

    def _best(self, found: Any, search: Search, most: int) -> list[Hypothesis]:
        """Return the `n_best` hypotheses of a source, of at most `most` tokens; none where our search might find
        others."""
        totals = found.scores or [math.nan]
        ended = []
        for names, total in zip(found.hypotheses, totals, strict=True):
            tokens = [self._indices[name] for name in names]
            if not tokens or tokens[-1] in NEVER or total < LEAST:  # an empty source is not even looked at
                return []
            if tokens[-1] == EOS and len(tokens) <= most + 1:
                penalty = length_penalty(len(tokens), search.length_penalty) if search.beam > 1 else 1.0
                ended.append(
                    Hypothesis(tokens=tokens[:-1], log_probability=total, score=total / penalty, finished=True)
                )
        if len(ended) < search.n_best:
            return []
        ended.sort(key=lambda each: each.score, reverse=True)
        if search.beam > 1:
            # What was dropped is less likely than all that was not, and no longer than the longest.
            longest = max(map(len, found.hypotheses))
            if ended[search.n_best - 1].score < min(totals) / length_penalty(longest, search.length_penalty):
                return []
        return ended[: search.n_best]

"""A run from sequence to sequence: translate with it, and see what it attends to."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from torch import Tensor

from regard.api.playback import Playback, play_back
from regard.api.run import Run
from regard.attention import short_name
from regard.decoding import Search, Translation, translate
from regard.errors import InputError, check_range
from regard.evaluation import Scored, score_pairs
from regard.inspection import (
    AttentionMap,
    Examination,
    HeadImportance,
    attend_pair,
    examine,
    head_importance,
    probe,
)
from regard.models import Seq2Seq
from regard.tasks import SequenceTask, links
from regard.text import Pairs, collate


@dataclass(frozen=True)
class SequenceRun(Run):
    """A run from sequence to sequence."""

    task: SequenceTask
    model: Seq2Seq
    usual_beam: ClassVar[int] = 1
    """Prefixes kept side by side where nothing else is asked for; 1 is greedy search."""
    usual_length_penalty: ClassVar[float] = 0.0
    """Its exponent, where nothing else is asked for."""

    def translate(
        self,
        texts: Iterable[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        batchsize: int = 64,
    ) -> list[str]:
        """Return the most likely answer to each text, in order; see `search`."""
        found = self.search(texts, beam=beam, length_penalty=length_penalty, batchsize=batchsize)
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
    ) -> list[list[Translation]]:
        """Return the `n_best` answers to each text, best first, with their log-probabilities and scores.

        `beam`: prefixes kept side by side, 1 for greedy search; `length_penalty`: exponent, 0 for none; of both,
        None is what is usual for such a run. `temperature` above 0: tokens are drawn instead, by `seed`. What
        training never saw is read as one unknown symbol. Raises `InputError` where a text is too long, or numbers
        do not fit.
        """
        if beam is None:
            beam = 1 if temperature else self.usual_beam
        if length_penalty is None:
            length_penalty = self.usual_length_penalty
        check_range("beam", beam, 1, 1000)
        check_range("n_best", n_best, 1, beam)
        check_range("seed", seed, 0, 2**32 - 1)
        check_range("batchsize", batchsize, 1, 10**6)
        texts = [texts] if isinstance(texts, str) else list(texts)
        self._check(texts)
        settings = Search(
            beam=beam, length_penalty=length_penalty, n_best=n_best, temperature=temperature, seed=seed
        )
        return translate(
            self.model,
            self.task.source_vocabulary,
            self.task.target_vocabulary,
            texts,
            settings,
            max_len=self.task.longest_target,
            batchsize=batchsize,
        )

    def score(self, pairs: Iterable[tuple[str, str]], *, batchsize: int = 64) -> list[Scored]:
        """Return the log-probability of each target given its source.

        Raises `InputError` where a source is too long.
        """
        check_range("batchsize", batchsize, 1, 10**6)
        pairs = list(pairs)
        self._check([source for source, _ in pairs])
        return score_pairs(
            self.model, self.task.source_vocabulary, self.task.target_vocabulary, pairs, batchsize=batchsize
        )

    def attend_to(
        self, input: str, *, beam: int | None = None, length_penalty: float | None = None
    ) -> AttentionMap:
        """Answer one input and keep what each symbol of the answer attended to; the rest is as in `search`."""
        [[best, *_]] = self.search([input], beam=beam, length_penalty=length_penalty)
        return self.look_back(input, best)

    def look_back(self, input: str, answer: Translation) -> AttentionMap:
        """Return what each symbol of an answer that was found attended to."""
        return attend_pair(self.model, self.task, input, answer.tokens)

    def unseen(self, samples: int, seed: int) -> list[tuple[str, str]]:
        """Return at most so many pairs that training has not seen.

        Raises `InputError` where there are none.
        """
        raise NotImplementedError

    def importance(self, *, samples: int = 500, seed: int = 0) -> HeadImportance:
        """Return by how much the loss of each token rises when each head is off, over unseen pairs.

        Raises `InputError` for a model without attention, or where there are no such pairs.
        """
        check_range("samples", samples, 1, 10**7)
        pairs = self.unseen(samples, seed)

        def loss() -> float:
            found = self.score(pairs)
            return -sum(each.log_probability for each in found) / sum(each.tokens for each in found)

        return head_importance(self.model, loss, len(pairs))

    def examine(self, *, samples: int = 200, seed: int = 0) -> Examination:
        """Ask what the attention to the source means, over unseen pairs: see `regard.inspection.examination`.

        The decoder is fed the true targets. Raises `InputError` for a model without attention, or where there
        are no such pairs.
        """
        check_range("samples", samples, 2, 10**5)
        pairs, layers = self.unseen(samples, seed), list(self.model.cross_layers)
        importance = self.importance(seed=seed)
        probes, relevance = [], []
        for source, target in pairs:
            tokens = collate([self.task.target_vocabulary.encode(target)])
            batch = Pairs(collate([self.task.source_vocabulary.encode(source)]), tokens)
            batch = batch.to(next(self.model.parameters()).device)
            found = probe(self.model, self.model.input_embedding, partial(_copies, self.model, batch), layers)
            probes.append(
                replace(found, weights={short_name(name): each for name, each in found.weights.items()})
            )
            known = self.task.known(source)
            if known is not None:
                relevance.append(links([known], batch.source.shape[1], tokens.shape[1])[0].numpy())
        return examine(
            probes,
            relevance if len(relevance) == len(probes) else None,
            importance,
            task=self.task.name,
            seed=seed,
            alignment_error=self._alignment_error(samples, seed),
        )

    def _alignment_error(self, samples: int, seed: int) -> dict[str, float]:
        """Return the alignment error rate of each layer, where the alignment is known."""
        del samples, seed
        return {}

    def playback(self, input: str) -> Playback:
        """Return how attention on one input formed during training.

        The models of all snapshots are given the answer of the last one, symbol by symbol, so that their weights
        can be compared; their predictions are what they would write after each. Raises `InputError` where the
        run has kept no snapshots.
        """
        [[best, *_]] = self.search([input])
        return play_back(
            self.folder,
            self.model,
            lambda model: attend_pair(model, self.task, input, best.tokens, forced=True),
        )

    def _check(self, texts: list[str]) -> None:
        for index, text in enumerate(texts):
            if (reason := self.too_long(text)) is not None:
                raise InputError(f"text {index} {reason}")

    def too_long(self, text: str) -> str | None:
        """Say in what way a text is too long; None for one that is not."""
        vocabulary, most = self.task.source_vocabulary, self.task.longest_source
        # No vocabulary has more symbols than a text has characters, but for the blank before its first word.
        if len(text) < most or (length := len(vocabulary.encode(text))) <= most:
            return None
        return f"has {length} {vocabulary.unit}, at most {most} are taken"


def _copies(model: Seq2Seq, batch: Pairs, count: int) -> Tensor:
    """Feed copies of one pair to a model: logits (count, Tt, V)."""
    source, target_in = (part.expand(count, -1) for part in (batch.source, batch.target_in))
    return model(source, batch.source_mask.expand(count, -1), target_in)

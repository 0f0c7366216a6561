"""Sequence-to-sequence runs: translate, score, align, and inspect attention."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
import torch

from regard.arguments import public, show_value
from regard.attention.interventions import record_own
from regard.attention.names import short_name
from regard.attention.records import check_indices
from regard.convert.engine import Engines
from regard.convert.exportable import EngineName, Precision
from regard.data.batch import PairBatch, collate, read_source
from regard.data.bleu_tokenizer import check_bleu_tokenizer
from regard.data.parallel import PairSource, ParallelText
from regard.data.unknown_tokens import UnknownShares, read_unknown, unknown_in_pairs
from regard.data.vocabulary import BOS, EOS, PAD, SPECIAL, empty_if_blank, is_blank, replace_surrogates
from regard.data.word_alignment import Link, Symmetrization, WordAlignment, align_with_eflomal
from regard.decoding.controls import Controls
from regard.decoding.search_tree import SearchTree
from regard.decoding.translation import Candidate
from regard.errors import InputError, check_range, plural, shorten
from regard.evaluation.scoring import Scored
from regard.interpret.alignment import (
    AligningHeads,
    Alignment,
    AlignmentChoice,
    By,
    KeptHeads,
    all_weights,
    choose_heads,
    combine_heads,
    cross_attention_heads,
)
from regard.interpret.linear_pass import own_forward_pass
from regard.result import Result, percent
from regard.runs.alignment import Aligner, LinkedPair, combine_directions, link_words, place_terms, replace_unknown
from regard.runs.run import Figures, Run, add_note, visible
from regard.statistics import Interval
from regard.streams import make_generator
from regard.tasks.pairs import Pair, PairTask, SequenceTask, alignment_mask
from regard.training.config import ModelPart, TaskPart
from regard.viz.attention_map import AttentionMap, Playback, attach_original
from regard.viz.maps import CROSS, make_layer_map
from regard.viz.subject import ForwardPass, ProbeInput, Traits

if TYPE_CHECKING:
    from torch import Tensor

    from regard.data.tokenization import Unit
    from regard.evaluation.bleu import Quality
    from regard.models.base import Seq2Seq
    from regard.tasks.translation import Translation


def _check_vocabularies(run: SequenceRun, other: SequenceRun) -> None:
    def content(vocabulary: Any) -> Any:
        return vocabulary.to_json() if hasattr(vocabulary, "to_json") else vocabulary.symbols

    for side, own, others in zip(("source", "target"), run.task.vocabularies, other.task.vocabularies, strict=True):
        if run is not other and content(own) != content(others):
            raise InputError(
                f"the {side} vocabularies of {str(run.folder)!r} and {str(other.folder)!r} differ: "
                "give runs that were trained with the same vocabularies"
            )


LONGEST_SHOWN = 20  # Maximum number of characters of a text in an error message
MOST_SILVER = 200_000  # Maximum number of pairs of the training text from which eflomal also learns
MOST_UNKNOWN = 20  # Largest number of unknown symbols in a note


@public
@dataclass(frozen=True, repr=False)
class SequenceRun(Run[TaskPart, ModelPart]):
    """Base class of runs that answer with text."""

    task: SequenceTask
    model: Seq2Seq
    usual_beam: ClassVar[int] = 1
    """Default beam size; 1 is greedy search."""
    usual_length_penalty: ClassVar[float] = 0.0
    """Default exponent of the length penalty."""

    @property
    def traits(self) -> Traits:
        return Traits(samples=500)

    def translate(
        self,
        texts: Iterable[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        batchsize: int = 64,
        engine: EngineName = "regard",
        precision: Precision = "float32",
        controls: Controls | None = None,
        ensemble: Sequence[SequenceRun] = (),
    ) -> list[str]:
        """Return the best answer to each text, in order; options as in `search`."""
        options: dict[str, Any] = {name: value for name, value in locals().items() if name != "self"}
        return [best.text for best, *_ in self.search(**options, scored=False)]

    def search(
        self,
        texts: Iterable[str],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        n_best: int = 1,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        batchsize: int = 64,
        engine: EngineName = "regard",
        precision: Precision = "float32",
        scored: bool = True,
        traced: bool = False,
        controls: Controls | None = None,
        ensemble: Sequence[SequenceRun] = (),
    ) -> list[list[Candidate]]:
        """Return the `n_best` answers to each text, best first, with log-probabilities and scores.

        `beam`: beam size, 1 for greedy search. `length_penalty`: exponent, 0 to disable. None: the default of
        the run's class. If `temperature` is above 0, tokens are sampled with `seed` instead, with `top_k` and
        `top_p` only from likely tokens (see `decoding.truncate`). Symbols that are not in the vocabulary are
        read as the unknown symbol. A blank text has one empty answer. `engine`, `precision`: see
        `Engines.choose`. `scored`: if False, log-probabilities may be NaN to save time. `traced`: see
        `decoding.Search`. `controls`: constraints on the answers. `ensemble`: other runs with the same
        vocabularies; each token is predicted by the mean of the probabilities of all runs. Raises `InputError`
        for a text that is too long, invalid options, and a search that the engine does not support.
        """
        from regard.decoding.translation import Search, blank_answer, translate

        check_range("batchsize", batchsize, 1, 10**6)
        beam = (1 if temperature else self.usual_beam) if beam is None else beam
        penalty = self.usual_length_penalty if length_penalty is None else length_penalty
        drawn: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        options: dict[str, Any] = {"beam": beam, "length_penalty": penalty, "n_best": n_best, "traced": traced}
        search = Search(**options, **drawn, controls=controls or Controls())
        texts = [texts] if isinstance(texts, str) else list(texts)
        runs: list[SequenceRun[Any, Any]] = [self, *ensemble]
        for run in runs:
            run.check_texts(texts)
            _check_vocabularies(self, run)
        # A blank text has an empty answer, without a search.
        indices = [index for index, text in enumerate(texts) if not is_blank(text)]
        nonblank = [texts[index] for index in indices]
        search = search.select(indices, len(texts))
        opened = None
        own_engines = ("regard",) if nonblank else ("regard", "auto")  # auto opens no engine without texts
        if engine not in own_engines or precision != "float32":
            opened = self.engines.choose(search, engine, precision, models=len(runs), scored=scored)
        answers = [[blank_answer()] for _ in texts]
        if not nonblank:
            return answers
        longest = min(run.task.longest_target for run in runs)
        own = partial(translate, [run.model for run in runs], *self.task.vocabularies, max_len=longest)
        find = partial(own if opened is None else opened.search, batchsize=batchsize, scored=scored)
        found = find(nonblank, search)
        if search.controls.glossary:
            found = place_terms(find, self.aligner, nonblank, search, found)
        if search.controls.replace_unknown:
            found = replace_unknown(self.aligner, nonblank, found)
        for index, ranked in zip(indices, found, strict=True):
            answers[index] = ranked
        return answers

    @cached_property
    def engines(self) -> Engines:
        return Engines(self)

    def tree(self, input: str | None = None, *, beam: int | None = None, seed: int = 0) -> SearchTree:
        """Return the beam's prefixes for an input (default: a random input), with their possible next tokens."""
        from regard.decoding.search_tree import search_tree

        text = self.draw(seed=seed) if input is None else input
        self.check_texts([text])
        return search_tree(
            self.model,
            *self.task.vocabularies,
            text,
            beam=self.usual_beam if beam is None else beam,
            length_penalty=self.usual_length_penalty,
            max_len=self.task.longest_target,
        )

    def attend_tokens(self, input: str, tokens: list[int]) -> AttentionMap:
        """Return the attention map of the model for `input` and the answer `tokens`."""
        return attach_original(self.model, self.where, partial(self._map, input, tokens), wanted=False)

    def _map(self, source: str, tokens: list[int], *, forced: bool = False) -> AttentionMap:
        attention, heads = self._plain_map(self.model, source, tokens, forced=forced), self.kept_heads()
        if heads is None or "head" not in heads.ways:
            return attention
        [(layer, head)] = heads.ways["head"].heads
        return dataclasses.replace(attention, alignment_head=(short_name(layer), head))

    @torch.inference_mode()
    def _plain_map(self, model: Seq2Seq, source: str, tokens: list[int], *, forced: bool) -> AttentionMap:
        """Return the attention map of a model that answers `source` with `tokens` (without the end of sequence).

        The decoder processes all tokens at once, with the same attention as in a stepwise search. `forced`: the
        tokens are not the model's answer, and the map's prediction is the most probable token at each step.
        """
        model.eval()
        source = replace_surrogates(source)  # the text that the map shows
        batch, task = self._batch(source, tokens), self.task
        with record_own(model) as records:
            logits = model(batch.source, batch.source_mask, batch.target_in)
        probabilities = logits[0].float().softmax(-1).cpu()
        written = probabilities.argmax(-1) if forced else torch.tensor([*tokens, EOS])
        # Labels show the text, even if the model reads a symbol as unknown.
        sources = [*task.source_vocabulary.pieces(source), *task.source_vocabulary.labels([EOS])]
        targets = task.target_vocabulary.labels([*tokens, EOS])
        known, answer = task.known(source), task.target_vocabulary.decode(tokens)
        relevant = self._relevant(source, answer, len(sources), len(targets))
        outputs, inputs = [visible(label) for label in targets], [visible(label) for label in sources]
        fed = [*task.target_vocabulary.labels([BOS]), *outputs[:-1]]
        labels = {CROSS: (outputs, inputs), "encoder": (inputs, inputs), "decoder": (outputs, fed)}
        layers = {}
        for full, record in records.items():
            name, weights = short_name(full), record.weights[0].float().cpu().numpy()
            layers[name] = make_layer_map(name, weights, labels, relevant, written=True)
        return AttentionMap(
            task=task.name,
            input=source,
            prediction=task.target_vocabulary.decode(written.tolist()) if forced else answer,
            truth=known.target if known is not None else answer if forced else None,
            layers=layers,
            outputs=outputs,
            probabilities=probabilities[range(len(written)), written].tolist(),
        )

    def _batch(self, source: str, tokens: list[int]) -> PairBatch:
        batch = PairBatch(read_source([source], self.task.source_vocabulary), collate([tokens]))
        return batch.to(next(self.model.parameters()).device)

    def _relevant(self, source: str, answer: str, *steps: int) -> np.ndarray | None:
        known = self.task.known(source)
        if known is None or known.target != answer:  # the alignment of another answer is unknown
            return None
        return alignment_mask([known], *steps)[0].numpy()

    def forward_pass(self, input: str) -> ForwardPass:
        [[best, *_]] = self.search([input])
        batch, model = self._batch(replace_surrogates(input), best.tokens), self.model.eval()
        return own_forward_pass(model, partial(model, batch.source, batch.source_mask, batch.target_in))

    def score(self, pairs: Iterable[tuple[str, str]], *, batchsize: int = 64) -> list[Scored]:
        """Return the log-probability of each target given its source.

        Blank texts: see `score_pairs`. Raises `InputError` for a source that is too long.
        """
        from regard.evaluation.scoring import score_pairs

        check_range("batchsize", batchsize, 1, 10**6)
        pairs = list(pairs)
        self.check_texts([source for source, _ in pairs])
        return score_pairs(self.model, *self.task.vocabularies, pairs, batchsize=batchsize)

    @property
    def aligner(self) -> Aligner:
        return Aligner(self)

    @property
    def guided(self) -> bool:
        """Whether a head was trained with an alignment loss."""
        return False

    def kept_heads(self) -> KeptHeads | None:
        """Return the chosen alignment heads, else the head trained with an alignment loss, else None."""
        return self.aligner.kept()

    def align(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        by: By | None = None,
        unit: Unit | None = None,
        reverse: SequenceRun | None = None,
        symmetrise: Symmetrization = "product",
    ) -> list[LinkedPair]:
        """Return the links between the words of each target and the words of its source.

        The target is the decoder input. Each target word is linked to the source word with the largest weight
        in the heads from `choose_alignment`, or has no link if this weight is on the end of the source.

        `by`: a single head, a set of heads, or all heads. None: the best choice, or all heads if none were
        chosen. `unit`: words separated by whitespace, words without punctuation (parts), or pieces of the
        vocabulary. None: words, or characters for a task on characters. `reverse`: a run in the opposite
        direction. The method `symmetrise` combines the links of both directions. Raises `InputError` for a text
        that is too long, and for a model without attention.
        """
        pairs = [(empty_if_blank(source), empty_if_blank(target)) for source, target in pairs]
        self._check_pairs(pairs)
        forward = self.aligner.align(pairs, by, unit)
        if reverse is None:
            return forward
        backward = reverse.align([(target, source) for source, target in pairs], by=by, unit=unit)
        return combine_directions(forward, backward, symmetrise)

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
    ) -> AlignmentChoice:
        """Choose the heads for alignment on half of the pairs, and return their error rates on the other half.

        `known`: reference links of each pair. `against`: description of the reference links for a report.
        `reverse`: a run in the opposite direction, whose heads are chosen too. `others`: links of the same
        pairs from other methods, for the report. `keep`: save the choice in the folder of each run. Raises
        `InputError` for too few pairs, links to words that do not exist, and a model without attention.
        """
        self._check_pairs(pairs)
        if len(pairs) != len(known):
            raise InputError(
                f"links for {plural(len(known), 'pair')}, but there are {len(pairs)}: give links for every pair"
            )
        unit, turned = unit or self.aligner.unit, [(target, source) for source, target in pairs]
        if reverse is not None:
            turned_links = [links.turned() for links in known]
            reverse.choose_alignment(turned, turned_links, against=against, unit=unit, keep=keep, seed=seed)
        cuts, weights = all_weights(self.model, pairs, self.task.vocabularies, unit)
        for number, ((source, target), links) in enumerate(zip(cuts, known, strict=True), start=1):
            links.check(len(source.spans), len(target.spans), f"pair {number}")
        heads = cross_attention_heads(self.model)

        def compare(indices: Sequence[int], chosen: AligningHeads) -> dict[str, Sequence[frozenset[Link]]]:
            compared: dict[str, Sequence[frozenset[Link]]] = {}
            compared.update({name: [links[index] for index in indices] for name, links in (others or {}).items()})
            if reverse is None:
                return compared
            forward = [
                link_words(*cuts[index], combine_heads(weights[index], heads, chosen), chosen.name) for index in indices
            ]
            backward = reverse.aligner.align([turned[index] for index in indices], unit=unit)
            for method in get_args(Symmetrization):
                both = combine_directions(forward, backward, method)
                compared[f"both: {method}"] = [frozenset(pair.links) for pair in both]
            return compared

        choice = choose_heads(weights, heads, known, against=against, beside=compare, seed=seed)
        if keep:
            self.aligner.keep(choice)
        return choice

    def known_links(self, samples: int) -> tuple[list[tuple[str, str]], list[WordAlignment]]:
        """Return at most `samples` unseen pairs, and their links if the task defines links."""
        pairs = [(pair[0], pair[1]) for pair in self.unseen(samples, 0, purpose="align")]
        return pairs, []

    def silver_links(self, pairs: Sequence[tuple[str, str]]) -> list[frozenset[Link]]:
        """Return the links of eflomal between the words of pairs. See `word_spans`.

        eflomal also learns from the run's training text. Raises `InputError` without the extra `align`.
        """
        return align_with_eflomal(pairs, self.trained_on(MOST_SILVER), self.task.vocabularies)

    def trained_on(self, most: int) -> list[tuple[str, str]]:
        """Return at most `most` pairs of the training data, or pairs generated in the same way."""
        raise NotImplementedError

    def map_of_links(self, pair: LinkedPair) -> AttentionMap:
        """Return the attention of the alignment heads from target words to source words and its end, as one layer."""
        weights = np.concatenate([pair.weights, pair.nothing[:, None]], axis=1)
        linked = np.zeros(weights.shape, dtype=bool)
        for source, target in pair.links:
            linked[target, source] = True
        targets, sources = [visible(word) for word in pair.target], [visible(word) for word in pair.source]
        labels = {CROSS: (targets, [*sources, "</s>"])}
        layer = make_layer_map(CROSS, weights[None], labels, linked, written=True)
        return AttentionMap(
            task=self.task.name,
            input=" ".join(pair.source),
            prediction=" ".join(pair.target),
            truth=None,
            layers={CROSS: dataclasses.replace(layer, head_names=(pair.heads,))},
            outputs=targets,
            probabilities=[],
        )

    def attend(
        self,
        input: str | None = None,
        *,
        answer: Candidate | None = None,
        seed: int = 0,
        beam: int | None = None,
        length_penalty: float | None = None,
    ) -> AttentionMap:
        """Answer an input, and return the attention of each symbol of the answer in every layer.

        If `input` is None, a random input is generated with `seed`. `answer`: a result of `search` to use instead of
        the best one. If it is None, `original` has no intervention. Other options as in `search`.
        """
        if input is None and answer is not None:
            raise InputError("answer has no input: also give the input of the answer")
        text = self.draw(seed=seed) if input is None else input

        def make_map() -> AttentionMap:
            best = answer or self.search([text], beam=beam, length_penalty=length_penalty)[0][0]
            return self._map(text, best.tokens)

        attention = attach_original(self.model, self.where, make_map, wanted=answer is None)
        length, unknown = self.unseen_length(text), self.task.source_vocabulary.unknown(text)
        notes = [f"training {length}: expect errors"] if length else []
        if unknown:
            notes.append(f"not in the model's vocabulary: {', '.join(map(repr, unknown[:MOST_UNKNOWN]))}")
        return add_note(attention, "; ".join(notes))

    @property
    def longest_seen(self) -> int:
        """Length of the longest source in the training data, in units of its vocabulary."""
        raise NotImplementedError

    def unseen_length(self, text: str) -> str:
        """Return a note on the lengths in training if the text is longer, otherwise an empty string."""
        vocabulary, longest = self.task.source_vocabulary, self.longest_seen
        if len(text) < longest or (steps := len(vocabulary.pieces(text))) <= longest:
            return ""
        return f"used inputs of at most {longest} {vocabulary.unit}, but this input has {steps}"

    def playback(self, input: str | None = None, *, seed: int = 0) -> Playback:
        """Return the attention map for an input at each training snapshot.

        The decoder input is the answer of the trained model, so that weights can be compared. The predictions
        are the next symbols of each snapshot. Raises `InputError` for a run without snapshots.
        """
        text = self.draw(seed=seed) if input is None else input
        [[best, *_]] = self.search([text])
        return self._play_back(lambda model: self._plain_map(model, text, best.tokens, forced=True))

    def called(self, classes: Sequence[int]) -> list[str]:
        check_indices("class", classes, len(self.task.target_vocabulary))
        return [label for index in classes for label in self.task.target_vocabulary.labels([index])]

    def draw(self, *, seed: int = 0) -> str:
        raise InputError(f"input is missing: {self.name} cannot generate inputs")

    def look(self, input: Any) -> AttentionMap:
        source, target = self.prepare(input)[:2]
        return self._map(source, self.task.target_vocabulary.encode(target), forced=True)

    def losses(self, inputs: Sequence[Any]) -> np.ndarray:
        scores = self.score([tuple(self.prepare(pair)[:2]) for pair in inputs])
        return np.array([(-score.log_probability, score.tokens) for score in scores], dtype=np.float64)

    def prepare(self, input: Any) -> Any:
        if isinstance(input, str):
            return input, self.translate([input])[0]
        if not isinstance(input, tuple | list) or [type(text) for text in input[:2]] != [str, str]:
            raise InputError(f"input {show_value(input)} is not a text: give a source, or (source, target)")
        return input

    def trial(self, input: Any) -> ProbeInput:
        (source, target), task, model = self.prepare(input)[:2], self.task, self.model
        batch = self._batch(source, task.target_vocabulary.encode(target))
        relevant = self._relevant(source, target, *batch.source.shape[1:], *batch.target.shape[1:])

        def run_tokens(sources: Tensor) -> Tensor:
            logits: Tensor = model(sources, sources != PAD, batch.target_in.expand(len(sources), -1))
            return logits

        return ProbeInput(
            run=lambda count: run_tokens(batch.source.expand(count, -1)),
            embedding=model.input_embedding,
            layers=[*map(short_name, model.cross_layers)],
            relevant=relevant,
            tokens=batch.source[0],
            run_tokens=run_tokens,
            alphabet=range(len(SPECIAL), len(task.source_vocabulary)),
        )

    def check(self, input: str) -> None:
        if (reason := self.too_long(input)) is not None:
            raise InputError(f"input {reason}")

    def check_texts(self, texts: Iterable[str], *, target: bool = False) -> None:
        """Raise `InputError` for the first text that is too long."""
        for index, text in enumerate(texts):
            if (reason := self.too_long(text, target=target)) is not None:
                kind = "target" if target else "text"
                raise InputError(f"{kind} {index}, {shorten(text, LONGEST_SHOWN)}, {reason}")

    def _check_pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.check_texts(source for source, _ in pairs)
        self.check_texts((target for _, target in pairs), target=True)

    def too_long(self, text: str, *, target: bool = False) -> str | None:
        """Return why a source (or, if `target`, a target) is too long; None if its length is valid."""
        vocabulary, most = self.task.source_vocabulary, self.task.longest_source
        if target:
            vocabulary, most = self.task.target_vocabulary, self.task.longest_target
        # Most texts need no encoding here: a text has at most one token per character, plus an initial space.
        if len(text) < most or (length := len(vocabulary.encode(text))) <= most:
            return None
        return f"has {length} {vocabulary.unit}, but at most {most} are allowed"


# Runs of synthetic sequence tasks: test a run, and compare its attention with the known alignment.


CHUNK = 500  # Number of samples per batch in a test
MOST_GENERATED = 5000  # Maximum number of pairs that `trained_on` generates


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class PairReport(Result):
    """Result of a test on unseen samples."""

    samples: int
    exact_match: float
    """Fraction of samples (0 to 1) whose answer by greedy search is entirely correct."""
    alignments: dict[str, Alignment]
    """Alignment of each layer in which the target attends to the source. Empty for a model without attention."""

    def __str__(self) -> str:
        lines = [f"Exact match: {percent(self.exact_match, 2)} of {plural(self.samples, 'unseen sample')}"]
        for name, alignment in self.alignments.items():
            share = f"{percent(alignment.share)} of the attention is on"
            lines.append(f"{short_name(name)}: alignment error rate {alignment.error_text}, {share}")
            lines.append(f"  the source of each symbol (uniform attention: {percent(alignment.uniform)})")
        return "\n".join(lines)


@public
@dataclass(frozen=True, repr=False)
class PairRun(SequenceRun[TaskPart, ModelPart]):
    """A run of a task that generates pairs of source and target."""

    task: PairTask
    drawn_by = ("sample_len",)

    def test(self, *, samples: int = 2000, sample_len: int | None = None, seed: int = 0) -> PairReport:
        """Test on unseen samples: exact match, and agreement of the attention with the known alignment.

        `sample_len`: number of characters per sample, if the task has this option; by default as in training. The
        samples are generated with `seed`. Raises `InputError` for invalid options.
        """
        from regard.interpret.alignment import alignment

        check_range("samples", samples, 1, 10**7)
        generator = make_generator(seed, "test")
        pairs = self.task.pairs(samples, generator, sample_len=sample_len, unseen=True)
        answers = self.translate([pair.source for pair in pairs])
        right = [answer == pair.target for answer, pair in zip(answers, pairs, strict=True)]
        chunks = [pairs[begin : begin + CHUNK] for begin in range(0, len(pairs), CHUNK)]
        return PairReport(
            samples=samples, exact_match=sum(right) / len(right), alignments=alignment(self.model, self.task, chunks)
        )

    def attend(
        self,
        input: str | None = None,
        *,
        sample_len: int | None = None,
        answer: Candidate | None = None,
        seed: int = 0,
        beam: int | None = None,
        length_penalty: float | None = None,
    ) -> AttentionMap:
        """Answer an input such as `"3. Mai 1979"`, and return the attention of each character of the answer.

        If `input` is None, an unseen input with `sample_len` characters is generated with `seed`. `answer`: a
        result of `search` to use instead of the best answer. Other options as in `search`.
        """
        if input is None:
            input = self.draw(sample_len=sample_len, seed=seed)
        elif sample_len is not None:
            raise InputError("input is given: leave out sample_len, only for random inputs")
        return super().attend(input, answer=answer, beam=beam, length_penalty=length_penalty)

    @property
    def longest_seen(self) -> int:
        return self.task.max_source

    def draw(self, *, sample_len: int | None = None, seed: int = 0) -> str:
        """Return a random input that is not in the training data; options as in `attend`."""
        return self.task.pairs(1, make_generator(seed, "sample"), sample_len=sample_len, unseen=True)[0].source

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[Pair]:
        """Return pairs that are not in the training data. The pairs are the same for every purpose."""
        return self.task.pairs(samples, make_generator(seed, "examine"), unseen=True)

    def known_links(self, samples: int) -> tuple[list[tuple[str, str]], list[WordAlignment]]:
        """Return pairs that are not in the training data, with their links.

        A target symbol that depends on a single source symbol has a sure link. A target symbol that depends on
        several source symbols has possible links.
        """
        pairs, known = self.unseen(samples, 0), []
        for pair in pairs:
            links = [[(source, target) for source in sources] for target, sources in enumerate(pair.alignment)]
            sure = [symbol_links[0] for symbol_links in links if len(symbol_links) == 1]
            known.append(WordAlignment.of(sure, [link for symbol_links in links for link in symbol_links]))
        return [(pair.source, pair.target) for pair in pairs], known

    def trained_on(self, most: int) -> list[tuple[str, str]]:
        drawn = self.task.pairs(min(most, MOST_GENERATED), make_generator(0, "align"))
        return [(pair.source, pair.target) for pair in drawn]

    def alignment_error(self, inputs: Sequence[Pair]) -> dict[str, Interval]:
        from regard.interpret.alignment import alignment as alignment_

        alignments = alignment_(self.model, self.task, [list(inputs)])
        return {short_name(name): alignment.interval for name, alignment in alignments.items()}

    def figures(self, *, seed: int = 0) -> Figures:
        """Return the measurements for a comparison; the alignment is that of the last layer with the source."""
        report = self.test(seed=seed)
        if not report.alignments:
            return Figures(exact_match=report.exact_match)
        last = list(report.alignments.values())[-1]
        return Figures(
            exact_match=report.exact_match, relevance=last.share, uniform=last.uniform, alignment_error=last.error_rate
        )


# Runs on parallel text: translate, and measure the quality of the translations.


MOST_READ = 1000  # Number of pairs at the beginning of the text from which `draw` selects a pair


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class TranslationReport(Result):
    """Result of a test on parallel text."""

    translations: list[str]
    """Translations of the scored pairs."""
    lines: list[int]
    """Line number (from 1) of each pair in the text."""
    total_lines: int
    """Number of lines of the text, including omitted lines."""
    counts: str
    """Number of pairs and of omitted lines."""
    unknown: UnknownShares
    """Fractions of unknown tokens in the text."""
    learned: str
    """How many pairs are in the training text of the run; empty if few are."""
    quality: Quality
    seconds: float
    """Duration of the translation in seconds."""

    def __str__(self) -> str:
        sentences = len(self.translations)
        return "\n".join(
            [
                *self.quality.lines(),
                f"Exact match: {percent(self.quality.exact_match, 2)} of {plural(sentences, 'sentence')}, "
                f"translated in {self.seconds:.1f} seconds, {sentences / self.seconds:.0f} a second",
                *([f"Text: {self.counts}"] if "left out" in self.counts else []),
            ]
        )

    @property
    def warnings(self) -> list[str]:
        """Warnings about the reliability of the scores."""
        learned = self.learned and f"{self.learned} of the run, so that it translates them better than other text"
        return [*self.unknown.warnings, *filter(None, [learned, self.quality.warning])]

    @property
    def output(self) -> str:
        """The translations as text, each on the line of its source. Omitted lines are empty."""
        by_line = dict(zip(self.lines, self.translations, strict=True))
        return "".join(f"{by_line.get(line, '')}\n" for line in range(1, self.total_lines + 1))


@public
@dataclass(frozen=True, repr=False)
class TranslationRun(SequenceRun[TaskPart, ModelPart]):
    """A run on parallel text."""

    task: Translation
    usual_beam: ClassVar[int] = 5
    usual_length_penalty: ClassVar[float] = 1.0

    @property
    def longest_seen(self) -> int:
        return self.task.config.max_len

    def test(
        self,
        text: Sequence[str | Path] | None = None,
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        batchsize: int = 64,
        bleu_tokenize: str | None = None,
        lenient: bool = False,
    ) -> TranslationReport:
        """Translate the sources of a text, and score the translations against its targets.

        `text`: a source and a target file, or a file of tab-separated pairs. None: the run's test text.
        `bleu_tokenize`: tokenizer for BLEU. None: the tokenizer of the run, or else a tokenizer for the writing
        system of the targets. `lenient`: omit invalid lines of a file, instead of refusing the file. Other
        options as in `search`. Raises `InputError` if there is no text, or if the text cannot be read.
        """
        from regard.data.prepare import check_pairs, describe_learned  # imports tokenizers, as below
        from regard.evaluation.bleu import quality

        search: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "batchsize": batchsize}
        self.search([], **search)  # checks the options before the text is read
        task = self.task
        config = dataclasses.replace(task.config, lenient=True, strict=False) if lenient else task.config
        test_text = config.text("test") if text is None else ParallelText(text, lenient=lenient)
        if test_text is None:
            raise InputError(f"run {str(self.folder)!r} has no test text: give one with --data")
        tokenize = bleu_tokenize or self.config.bleu_tokenizer or config.bleu_tokenize
        if tokenize is not None:
            check_bleu_tokenizer(tokenize)
        pairs, lines = [], []
        for pair in test_text:
            pairs.append(pair)
            lines.append(test_text.number)
        check_pairs(pairs, test_text, "test")
        learned = ""
        with suppress(InputError):  # the text was moved
            learned = describe_learned(pairs, task.config.text("train") or ())
        begin = time.perf_counter()
        translations = self.translate([source for source, _ in pairs], **search)
        seconds = time.perf_counter() - begin
        scores = quality(translations, [target for _, target in pairs], lowercase=config.lowercase, tokenize=tokenize)
        return TranslationReport(
            translations=translations,
            lines=lines,
            total_lines=test_text.number,
            counts=str(test_text.counts),
            unknown=unknown_in_pairs("test", pairs, task.vocabularies),
            learned=learned,
            quality=scores,
            seconds=seconds,
        )

    def about(self) -> dict[str, Any]:
        shares = [str(share) for share in read_unknown(self.folder)]
        return {**super().about(), "bleu_tokenizer": self.config.bleu_tokenizer, "unknown": shares}

    def unseen(self, samples: int, seed: int, *, purpose: str = "examine") -> Sequence[tuple[str, str]]:
        """Return the first pairs of the validation text, or else of the test text. `seed` is not used.

        Raises `InputError` if the run has neither validation text nor test text.
        """
        from regard.data.prepare import read_pairs

        del seed
        text = self._unseen_text()
        if text is None:
            way_out = "give --data SOURCE TARGET" if purpose == "calibrate" else "train or import it with --valid"
            raise InputError(f"run {str(self.folder)!r} has no validation or test text: {way_out}")
        return [pair for pair in read_pairs(text, "validation") if self.too_long(pair[0]) is None][:samples]

    @property
    def guided(self) -> bool:
        return self.task.config.guide is not None

    def trained_on(self, most: int) -> list[tuple[str, str]]:
        text = self.task.config.text("train")
        return [] if text is None else list(islice(text, most))

    @property
    def draws(self) -> bool:
        try:
            return self.task.config.hub is None and self._unseen_text() is not None
        except InputError:
            return False  # the file was removed

    def draw(self, *, seed: int = 0) -> str:
        """Return a source that is not in the training text. Raises `InputError` if there is no such source."""
        sources = self.unseen(MOST_READ, seed)
        if not sources:
            raise InputError(f"run {str(self.folder)!r} has no text that is short enough for the model: type an input")
        return sources[seed % len(sources)][0]

    def _unseen_text(self) -> PairSource | None:
        return self.task.config.text("valid") or self.task.config.text("test")

    def figures(self, *, seed: int = 0) -> Figures:
        config = self.task.config
        report = self.test(config.test or config.valid or None)
        quality = report.quality
        return Figures(exact_match=quality.exact_match, bleu=quality.main, bleu_tokenizer=quality.tokenizer)

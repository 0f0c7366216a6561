"""Export of a Transformer to CTranslate2 (https://opennmt.net/CTranslate2), which serves translations in C++.

The exported folder also contains the vocabularies, as files of the `tokenizers` library, or for imported runs as
SentencePiece models (`source.spm`):

    tokenizer = tokenizers.Tokenizer.from_file("exported/source.json")
    translator = ctranslate2.Translator("exported")
    [result] = translator.translate_batch([tokenizer.encode("ein Hund rennt").tokens], disable_unk=True)
    "".join(result.hypotheses[0]).replace("▁", " ").strip()

With `return_attention=True` a translation includes the attention of the chosen alignment head.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.blocks import STANDARD, FeedForward, Residual
from regard.attention.multihead import MultiHeadAttention
from regard.attention.positions import BASE, Rotary
from regard.convert.certificate import ExportParts, ForcedOutput, get_transformer, token_names
from regard.convert.exportable import Exportable, Precision
from regard.data.batch import PairBatch, collate
from regard.data.imported_tokenizers import SentencePieceVocabulary
from regard.data.subwords import RESERVED, SubwordVocabulary
from regard.data.vocabulary import BOS, EOS, PAD
from regard.decoding.controls import Requirement, find_requirements, make_constraints
from regard.decoding.search import Hypothesis, length_penalty
from regard.decoding.translation import Candidate, Search, candidates, length_batches, longest_answer, search_batch
from regard.errors import InputError
from regard.evaluation.scoring import token_log_probabilities
from regard.fast.onednn import packed_logits
from regard.io import write_file
from regard.libraries import import_library, library_errors
from regard.models.transformer import Transformer, TransformerConfig

NO_PENALTY = 1e-9
"""Smallest length penalty of CTranslate2: at 0, its search stops as soon as one answer ends, unlike Regard's."""


def write_ctranslate2(run: Exportable, folder: Path) -> None:
    """Write a run's Transformer for CTranslate2 to an existing folder. Raises `InputError` if CTranslate2 does
    not support the model, or if the extra `export` is not installed. Raises `MachineError` if the disk cannot
    be written to."""
    specs = import_library("ctranslate2.specs", "exporting to CTranslate2", "export")
    model, config, source, target = get_ctranslate2_parts(run)
    head_width = config.hidden // config.heads
    # CTranslate2 returns the weights of one head: the best alignment head for generation, or the first of the
    # last layer.
    alignment_head = len(model.cross_layers) - 1, 0
    if (chosen := run.kept_heads()) is not None:
        [(layer, head)] = chosen.writing.heads
        alignment_head = model.cross_layers.index(layer), head
    kind = {
        "pre_norm": config.pre_norm,
        "activation": getattr(specs.common_spec.Activation, config.activation.upper()),
        "rotary_dim": head_width if config.embedding_positions == "rotary" else None,
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.enc_layers, config.heads, **kind),
        specs.TransformerDecoderSpec(config.dec_layers, config.heads, **kind, alignment_layer=alignment_head[0]),
    )
    steps = max(run.task.longest_source, run.task.longest_target) + 1
    _set_weights(spec, model, config, steps, alignment_head)
    spec.register_source_vocabulary(token_names(source))
    spec.register_target_vocabulary(token_names(target))
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.save(str(folder))
    for name, vocabulary in (("source", source), ("target", target)):
        if isinstance(vocabulary, SentencePieceVocabulary):
            write_file(folder / f"{name}.spm", vocabulary.model)
        else:
            write_file(folder / f"{name}.json", vocabulary.to_json().encode())


def get_ctranslate2_parts(run: Exportable) -> ExportParts:
    """Return a run's Transformer, its config, and its source and target vocabulary. Raises `InputError` if
    CTranslate2 does not support the model."""
    parts = get_transformer(run, "CTranslate2")
    config = parts.config
    bases = {layer.waves.base for layer in parts.model.modules() if isinstance(layer, Rotary)}
    if bases - {BASE}:
        raise InputError(
            f"attention {config.attention} is not supported in this export: rotary positions need base {BASE:g}"
        )
    supported = config.embedding_positions in ("sinusoidal", "learned", "rotary") and config.layer == STANDARD
    if not supported or config.score != "scaled_dot":
        raise InputError(
            "CTranslate2 supports positions sinusoidal, learned and rotary, score scaled_dot and layer "
            f"{STANDARD}; not positions {config.embedding_positions} with score {config.score} and layer "
            f"{config.layer}"
        )
    return parts


def open_translator(folder: Path, **options: Any) -> Any:
    """Return a `ctranslate2.Translator`. Its constructor changes the number of PyTorch's threads, which is restored."""
    import ctranslate2

    threads = torch.get_num_threads()
    try:
        return ctranslate2.Translator(str(folder), **options)
    finally:
        torch.set_num_threads(threads)


class CTranslate2Model:
    """A folder that `write_ctranslate2` wrote, opened in CTranslate2, on a CPU in float32."""

    program = "ctranslate2"
    missing = {
        "logits": "CTranslate2 provides only the log-probabilities of forced tokens",
        "weights": "CTranslate2 provides only the weights of one head of one layer",
    }

    def __init__(self, run: Exportable, folder: Path) -> None:
        import tokenizers

        import_library("ctranslate2", "CTranslate2", "export")
        with library_errors("ctranslate2", f"{str(folder)!r} cannot be loaded", "export it again"):
            self._translator = open_translator(folder, compute_type="float32", intra_threads=1)
        vocabulary = run.task.source_vocabulary
        self._read = vocabulary.encode  # programs that use the model tokenize with the same library
        if isinstance(vocabulary, SubwordVocabulary):
            tokenizer = tokenizers.Tokenizer.from_file(str(folder / "source.json"))
            self._read = lambda text: tokenizer.encode(text).ids
        self._source, self._target = (
            token_names(vocabulary) for vocabulary in (run.task.source_vocabulary, run.task.target_vocabulary)
        )

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        return [self._read(text) for text in texts]

    def force(self, batch: PairBatch) -> ForcedOutput:
        targets = _tokens(self._target, batch.target)
        scored = self._translator.score_batch(_tokens(self._source, batch.source), targets)
        log_probabilities = torch.zeros(batch.target.shape)
        for row, result in enumerate(scored):
            log_probabilities[row, : len(result.log_probs)] = torch.tensor(result.log_probs)
        return ForcedOutput(log_probabilities)

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        results = self._translator.translate_batch(
            _tokens(self._source, source),
            beam_size=beam,
            length_penalty=NO_PENALTY,
            min_decoding_length=0,
            max_decoding_length=most,
            disable_unk=True,
            suppress_sequences=[[RESERVED[PAD]], [RESERVED[BOS]]],
        )
        indices = {name: index for index, name in enumerate(self._target)}
        return [[indices[token] for token in result.hypotheses[0]] for result in results]


def _tokens(names: list[str], sentences: Tensor) -> list[list[str]]:
    """Return sentences (B, T) as token names, without the end of sequence."""
    return [[names[index] for index in row if index not in (PAD, EOS)] for row in sentences.tolist()]


def _set_weights(
    spec: Any, model: Transformer, config: TransformerConfig, steps: int, alignment_head: tuple[int, int]
) -> None:
    embedding = model.source_embedding or model.target_embedding
    spec.encoder.embeddings[0].weight = _array(embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_embedding.weight)
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = np.int8(1)
    if config.embedding_positions == "rotary":
        del spec.encoder.position_encodings  # the decoder has none already
    else:
        sides: Any = ((spec.encoder, model.source_positions), (spec.decoder, model.target_positions))
        for part, positions in sides:
            part.position_encodings.encodings = _array(positions.vectors(0, steps))
    for part, layers in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        if config.pre_norm:
            _set_norm(part.layer_norm, layers.norm)
    for part, layer in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        _set_attention(part.self_attention, layer.self_attention, layer.attention_residual)  # type: ignore[arg-type]
        _set_feed_forward(part.ffn, layer.feed_forward, layer.feed_forward_residual)  # type: ignore[arg-type]
    for number, (part, layer) in enumerate(zip(spec.decoder.layer, model.decoder.layers, strict=True)):
        first = alignment_head[1] if number == alignment_head[0] else 0
        _set_attention(part.self_attention, layer.self_attention, layer.self_residual)  # type: ignore[arg-type]
        layer_parts: Any = layer  # the types of PyTorch's modules allow a tensor for each part
        _set_attention(part.attention, layer_parts.cross, layer_parts.cross_residual, cross=True, first=first)
        _set_feed_forward(part.ffn, layer.feed_forward, layer.feed_forward_residual)  # type: ignore[arg-type]
    _set_linear(spec.decoder.projection, *model.vocabulary_layer)


def _set_attention(
    spec: Any, layer: MultiHeadAttention, residual: Residual, *, cross: bool = False, first: int = 0
) -> None:
    """Set the weights of an attention layer, with head `first` moved to the front: CTranslate2 returns head 0."""
    heads = np.arange(layer.query.out_features).reshape(layer.heads, -1)
    rows = np.concatenate([heads[[first]], np.delete(heads, first, axis=0)]).ravel()
    parts = [[layer.query], [layer.key, layer.value]] if cross else [[layer.query, layer.key, layer.value]]
    for linear, layers in zip(spec.linear, parts, strict=False):
        weight = torch.cat([part.weight[rows] for part in layers])
        bias = None if layer.query.bias is None else torch.cat([part.bias[rows] for part in layers])
        _set_linear(linear, weight, bias)
    _set_linear(spec.linear[-1], layer.output.weight[:, rows], layer.output.bias)
    _set_norm(spec.layer_norm, residual.norm)


def _set_feed_forward(spec: Any, layer: FeedForward, residual: Residual) -> None:
    _set_linear(spec.linear_0, layer.inner.weight, layer.inner.bias)
    _set_linear(spec.linear_1, layer.outer.weight, layer.outer.bias)
    _set_norm(spec.layer_norm, residual.norm)


def _set_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _set_norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


Pair = tuple[list[int], Requirement]  # The tokens of a source, and what the controls require of its answer
MIN_LOG_PROBABILITY = -1e30
"""Lowest log-probability of real prefixes: less likely prefixes only fill a beam that is wider than the vocabulary."""


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
            self._translator = open_translator(folder, compute_type=precision, inter_threads=threads, intra_threads=1)

    def search(self, texts: Sequence[str], search: Search, *, batchsize: int, scored: bool) -> list[list[Candidate]]:
        """Return the same answers as `regard.decoding.translation.translate`. If `scored` is False, a greedy search
        skips the log-probabilities, which are then NaN."""
        sources = self._source.encode_all(texts)
        limits = [longest_answer(source, self._max_len) for source in sources]
        requirements = find_requirements(search.controls, texts, limits, self._target, self._max_len)
        pairs = list(zip(sources, requirements, strict=True))
        batches, failure = [], f"{str(self._folder)!r} cannot translate"
        for indices in length_batches(sources, batchsize):
            batch = [pairs[index] for index in indices]
            with library_errors("ctranslate2", failure, "remove that folder"):
                batches.append((indices, batch, self._submit(batch, search, scored=scored)))
        answers: list[list[Candidate]] = [[] for _ in texts]
        for indices, batch, pending in batches:
            with library_errors("ctranslate2", failure, "remove that folder"):
                results = [result.result() for result in pending]
            ranked = [
                self._rank(result, search, requirement.limit, begin)
                for result, (_, requirement), begin in zip(results, batch, self._prefix_scores(batch), strict=True)
            ]
            doubtful = [pair for pair, hypotheses in zip(batch, ranked, strict=True) if not hypotheses]
            own = iter(self._own_search(doubtful, search) if doubtful else ())
            for index, hypotheses in zip(indices, ranked, strict=True):
                answers[index] = candidates(hypotheses or next(own), self._target)
        return answers

    def _submit(self, batch: Sequence[Pair], search: Search, *, scored: bool) -> Any:
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
        prefixes = [requirement.prefix for _, requirement in batch]
        if not any(prefixes):
            return [0.0] * len(prefixes)
        pairs = PairBatch(collate([source for source, _ in batch]), collate(prefixes))
        steps = token_log_probabilities(self._model.eval(), packed_logits(self._model), pairs)
        return [step[: len(prefix)].sum().item() for step, prefix in zip(steps, prefixes, strict=True)]

    def _own_search(self, batch: Sequence[Pair], search: Search) -> list[list[Hypothesis]]:
        requirements = [requirement for _, requirement in batch]
        return search_batch(
            self._model,
            collate([source for source, _ in batch]),
            search,
            most=[requirement.limit for requirement in requirements],
            constraints=make_constraints(search.controls, requirements),
        )

    def _rank(self, result: Any, search: Search, most: int, begin: float = 0.0) -> list[Hypothesis]:
        """Return the `n_best` hypotheses of a source, with at most `most` tokens. `begin`: log-probability of
        the prefix. Returns an empty list if Regard's own search might give other answers."""
        totals = [begin + score for score in result.scores or [math.nan]]
        finished = []
        for names, total in zip(result.hypotheses, totals, strict=True):
            tokens = [self._indices[name] for name in names]
            if (
                not tokens or tokens[-1] in search.controls.never or total < MIN_LOG_PROBABILITY
            ):  # an empty source has no tokens
                return []
            done = tokens[-1] == EOS and len(tokens) <= most + 1
            if done or math.isnan(total):  # a greedy answer without scores may be cut
                penalty = length_penalty(len(tokens), search.length_penalty) if search.beam > 1 else 1.0
                cut = tokens[:-1] if done else tokens[:most]
                finished.append(Hypothesis(tokens=cut, log_probability=total, score=total / penalty, finished=done))
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

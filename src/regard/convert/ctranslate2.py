"""A trained Transformer as a model of another program.

CTranslate2 (https://opennmt.net/CTranslate2) serves Transformers in C++. The folder that is written holds the
vocabularies as well, as files of the `tokenizers` library (or what an imported run cuts text by: a model of
SentencePiece, `source.spm`, or codes of subword-nmt, `source.codes`):

    tokenizer = tokenizers.Tokenizer.from_file("exported/source.json")
    translator = ctranslate2.Translator("exported")
    [found] = translator.translate_batch([tokenizer.encode("ein Hund rennt").tokens], disable_unk=True)
    "".join(found.hypotheses[0]).replace("▁", " ").strip()

With `return_attention=True` a translation brings what its tokens attended to, by the head chosen to align.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.attention import STANDARD, MultiHeadAttention
from regard.attention.blocks import FeedForward, Residual
from regard.convert.certificate import Forced
from regard.convert.exportable import Cut, Exportable, transformer_of
from regard.data import BOS, EOS, PAD, PairBatch, Vocabulary
from regard.data.bpe_codes import BpeCodesVocabulary, format_codes
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import RESERVED, SubwordVocabulary
from regard.errors import InputError
from regard.io import write_file
from regard.libraries import import_library, library_errors
from regard.models import Transformer, TransformerConfig


def write_ctranslate2(run: Exportable, folder: Path) -> None:
    """Write a run's Transformer for CTranslate2 into a folder that is there.

    Raises `InputError` where the run has no Transformer that CTranslate2 can run, or where the extra `export` is
    not installed; `MachineError` where the disk refuses.
    """
    specs = import_library("ctranslate2.specs", "exporting to CTranslate2", "export")
    model, config, source, target = for_ctranslate2(run)
    head_width = config.hidden // config.heads
    aligning = _aligning(run, model)
    kind = {
        "pre_norm": config.pre_norm,
        "activation": getattr(specs.common_spec.Activation, config.activation.upper()),
        "rotary_dim": head_width if config.positions == "rotary" else None,
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.enc_layers, config.heads, **kind),
        specs.TransformerDecoderSpec(config.dec_layers, config.heads, **kind, alignment_layer=aligning[0]),
    )
    steps = max(run.task.longest_source, run.task.longest_target) + 1
    _fill(spec, model, config, steps, aligning)
    spec.register_source_vocabulary(names_of(source))
    spec.register_target_vocabulary(names_of(target))
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.validate()
    spec.save(str(folder))
    for name, vocabulary in (("source", source), ("target", target)):
        if isinstance(vocabulary, SentencePieceVocabulary):
            write_file(folder / f"{name}.spm", vocabulary.model)
        elif isinstance(vocabulary, BpeCodesVocabulary):
            write_file(folder / f"{name}.codes", format_codes(vocabulary.codes).encode())
        else:
            write_file(folder / f"{name}.json", vocabulary.to_json().encode())


def for_ctranslate2(run: Exportable) -> tuple[Transformer, TransformerConfig, Cut, Cut]:
    """Return a run's Transformer, how it is built, and its vocabularies of source and target; raises `InputError`
    where CTranslate2 cannot run it."""
    model, config, source, target = transformer_of(run, "CTranslate2")
    known = config.positions in ("sinusoidal", "learned", "rotary") and config.layer == STANDARD
    if not known or config.score != "scaled_dot":
        raise InputError(
            f"CTranslate2 knows positions sinusoidal, learned and rotary, score scaled_dot and layer {STANDARD}; "
            f"not positions {config.positions} with score {config.score} and layer {config.layer}"
        )
    return model, config, source, target


class InCTranslate2:
    """A folder that `write_ctranslate2` wrote, opened in CTranslate2, on a CPU in float32."""

    program = "ctranslate2"
    missing = {
        "logits": "CTranslate2 gives the log-probabilities of given tokens only",
        "weights": "CTranslate2 gives those of one head of one layer only",
    }

    def __init__(self, run: Exportable, folder: Path) -> None:
        import tokenizers

        ctranslate2 = import_library("ctranslate2", "CTranslate2", "export")
        with library_errors("ctranslate2", f"{str(folder)!r} cannot be loaded", "export it anew"):
            self._translator = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
        vocabulary = run.task.source_vocabulary
        self._read = vocabulary.encode  # what cuts text there as well
        if isinstance(vocabulary, SubwordVocabulary):
            tokenizer = tokenizers.Tokenizer.from_file(str(folder / "source.json"))
            self._read = lambda text: tokenizer.encode(text).ids
        self._source, self._target = (
            names_of(vocabulary) for vocabulary in (run.task.source_vocabulary, run.task.target_vocabulary)
        )

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of texts, without the end of sequence."""
        return [self._read(text) for text in texts]

    def force(self, batch: PairBatch) -> Forced:
        """Feed a batch's targets."""
        targets = _tokens(self._target, batch.target)
        scored = self._translator.score_batch(_tokens(self._source, batch.source), targets)
        found = torch.zeros(batch.target.shape)
        for row, each in enumerate(scored):
            found[row, : len(each.log_probs)] = torch.tensor(each.log_probs)
        return Forced(found)

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Answer sources (B, Ts) with at most `most` tokens."""
        found = self._translator.translate_batch(
            _tokens(self._source, source),
            beam_size=beam,
            length_penalty=1e-9,  # at 0 it stops as soon as one answer ends
            min_decoding_length=0,
            max_decoding_length=most,
            disable_unk=True,
            suppress_sequences=[[RESERVED[PAD]], [RESERVED[BOS]]],
        )
        indices = {name: index for index, name in enumerate(self._target)}
        return [[indices[token] for token in each.hypotheses[0]] for each in found]


def names_of(vocabulary: Vocabulary) -> list[str]:
    """Return the tokens of a vocabulary as CTranslate2 is told of them."""
    return [*RESERVED, *vocabulary.symbols[len(RESERVED) :]]


def _tokens(names: list[str], sentences: Tensor) -> list[list[str]]:
    """Return sentences (B, T) as tokens, without the end of sequence."""
    return [[names[index] for index in row if index not in (PAD, EOS)] for row in sentences.tolist()]


def _aligning(run: Exportable, model: Transformer) -> tuple[int, int]:
    """Return the layer and head whose weights CTranslate2 is to give with its answers, as those of words that are
    written: the best of those that were chosen to align by; else the first of the last layer."""
    kept = run.kept_heads()
    if kept is None:
        return len(model.cross_layers) - 1, 0
    [(layer, head)] = kept.writing.heads
    return model.cross_layers.index(layer), head


def _fill(
    spec: Any, model: Transformer, config: TransformerConfig, steps: int, aligning: tuple[int, int]
) -> None:
    embedding = model.source_embedding or model.target_embedding
    _embed(spec.encoder, spec.encoder.embeddings[0], embedding)
    _embed(spec.decoder, spec.decoder.embeddings, model.target_embedding)
    if config.positions == "rotary":
        del spec.encoder.position_encodings  # the decoder has none already
    else:
        _place(spec.encoder, model.source_positions, steps)
        _place(spec.decoder, model.target_positions, steps)
    for part, layers in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        if config.pre_norm:
            _normalise(part.layer_norm, layers.norm)
    for part, layer in zip(spec.encoder.layer, model.encoder.layers, strict=True):
        _attend(part.self_attention, layer.self_attention, layer.attention_residual)  # type: ignore[arg-type]
        _feed_forward(part.ffn, layer.feed_forward, layer.feed_forward_residual)  # type: ignore[arg-type]
    for number, (part, layer) in enumerate(zip(spec.decoder.layer, model.decoder.layers, strict=True)):
        first = aligning[1] if number == aligning[0] else 0
        _attend(part.self_attention, layer.self_attention, layer.self_residual)  # type: ignore[arg-type]
        _attend(part.attention, layer.cross, layer.cross_residual, cross=True, first=first)  # type: ignore[arg-type]
        _feed_forward(part.ffn, layer.feed_forward, layer.feed_forward_residual)  # type: ignore[arg-type]
    weight, bias = model.vocabulary_layer
    spec.decoder.projection.weight = _array(weight)
    if bias is not None:
        spec.decoder.projection.bias = _array(bias)


def _embed(stack: Any, spec: Any, embedding: nn.Embedding) -> None:
    spec.weight = _array(embedding.weight)
    stack.scale_embeddings = np.int8(1)


def _place(stack: Any, positions: Any, steps: int) -> None:
    stack.position_encodings.encodings = _array(positions.vectors(0, steps))


def _attend(
    spec: Any, layer: MultiHeadAttention, residual: Residual, *, cross: bool = False, first: int = 0
) -> None:
    """Fill in a layer, with head `first` before the others."""
    heads = np.arange(layer.query.out_features).reshape(layer.heads, -1)
    rows = np.concatenate([heads[[first]], np.delete(heads, first, axis=0)]).ravel()
    parts = [[layer.query], [layer.key, layer.value]] if cross else [[layer.query, layer.key, layer.value]]
    for linear, together in zip(spec.linear, parts, strict=False):
        linear.weight = np.concatenate([_array(each.weight)[rows] for each in together])
        if layer.output.bias is not None:
            linear.bias = np.concatenate([_array(each.bias)[rows] for each in together])
    spec.linear[-1].weight = _array(layer.output.weight)[:, rows]
    if layer.output.bias is not None:
        spec.linear[-1].bias = _array(layer.output.bias)
    _normalise(spec.layer_norm, residual.norm)


def _feed_forward(spec: Any, layer: FeedForward, residual: Residual) -> None:
    for linear, ours in ((spec.linear_0, layer.inner), (spec.linear_1, layer.outer)):
        linear.weight, linear.bias = _array(ours.weight), _array(ours.bias)
    _normalise(spec.layer_norm, residual.norm)


def _normalise(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()

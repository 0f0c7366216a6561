"""A trained Transformer as a model of another program.

CTranslate2 (https://opennmt.net/CTranslate2) serves Transformers in C++. The folder that is written holds the
vocabularies as well, as files of the `tokenizers` library:

    tokenizer = tokenizers.Tokenizer.from_file("exported/source.json")
    translator = ctranslate2.Translator("exported")
    [found] = translator.translate_batch([tokenizer.encode("ein Hund rennt").tokens], disable_unk=True)
    "".join(found.hypotheses[0]).replace("▁", " ").strip()
"""

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from regard.attention import STANDARD, MultiHeadAttention
from regard.attention.blocks import FeedForward, Residual
from regard.errors import InputError
from regard.exchange.exportable import Exportable
from regard.files import holding, new_folder, write_file
from regard.models import Transformer, TransformerConfig
from regard.text.subwords import RESERVED, Subwords


def export_ctranslate2(run: Exportable, folder: str | Path) -> Path:
    """Write a run's Transformer for CTranslate2 into a new folder, and return it.

    Raises `InputError` where the run has no Transformer that CTranslate2 can run, where the folder exists, or
    where the extra `export` is not installed; `MachineError` where the disk refuses.
    """
    try:
        from ctranslate2.specs import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec
    except ImportError:
        raise InputError("exporting to CTranslate2 needs it installed: pip install 'regard[export]'") from None
    model: Any = run.model
    config: Any = run.config.model
    folder = Path(folder)
    source, target = (getattr(run.task, f"{side}_vocabulary", None) for side in ("source", "target"))
    ours = isinstance(model, Transformer) and isinstance(config, TransformerConfig)
    if not ours or not isinstance(source, Subwords) or not isinstance(target, Subwords):
        raise InputError(f"run {str(run.folder)!r} is no Transformer for translation: CTranslate2 cannot run it")
    known = config.positions in ("sinusoidal", "learned", "rotary") and config.layer == STANDARD
    if not known or config.score != "scaled_dot":
        raise InputError(
            f"CTranslate2 knows positions sinusoidal, learned and rotary, score scaled_dot and layer {STANDARD}; "
            f"not positions {config.positions} with score {config.score} and layer {config.layer}"
        )
    if run.config.kept_heads:
        raise InputError(f"run {str(run.folder)!r} is pruned: CTranslate2 wants as many heads in every layer")
    if folder.exists():
        raise InputError(f"{str(folder)!r} exists: choose another --output")
    head_width = config.hidden // config.heads
    kind = {"pre_norm": config.pre_norm, "rotary_dim": head_width if config.positions == "rotary" else None}
    spec = TransformerSpec(
        TransformerEncoderSpec(config.enc_layers, config.heads, **kind),
        TransformerDecoderSpec(config.dec_layers, config.heads, **kind),
    )
    steps = max(run.task.longest_source, run.task.longest_target) + 1
    _fill(spec, model, config, steps)
    spec.register_source_vocabulary([*RESERVED, *source.symbols[len(RESERVED) :]])
    spec.register_target_vocabulary([*RESERVED, *target.symbols[len(RESERVED) :]])
    spec.config.add_source_eos = True
    spec.validate()
    with holding(folder), new_folder(folder) as building:
        spec.save(str(building))
        for name, vocabulary in (("source", source), ("target", target)):
            write_file(building / f"{name}.json", vocabulary.to_json().encode())
    return folder


def _fill(spec: Any, model: Transformer, config: TransformerConfig, steps: int) -> None:
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
    for part, layer in zip(spec.decoder.layer, model.decoder.layers, strict=True):
        _attend(part.self_attention, layer.self_attention, layer.self_residual)  # type: ignore[arg-type]
        _attend(part.attention, layer.cross, layer.cross_residual, cross=True)  # type: ignore[arg-type]
        _feed_forward(part.ffn, layer.feed_forward, layer.feed_forward_residual)  # type: ignore[arg-type]
    spec.decoder.projection.weight = _array(model.vocabulary_layer[0])


def _embed(stack: Any, spec: Any, embedding: nn.Embedding) -> None:
    spec.weight = _array(embedding.weight)
    stack.scale_embeddings = np.int8(1)


def _place(stack: Any, positions: Any, steps: int) -> None:
    stack.position_encodings.encodings = _array(positions.vectors(0, steps))


def _attend(spec: Any, layer: MultiHeadAttention, residual: Residual, *, cross: bool = False) -> None:
    query, key, value = (_array(each.weight) for each in (layer.query, layer.key, layer.value))
    parts = [query, np.concatenate([key, value])] if cross else [np.concatenate([query, key, value])]
    for linear, weight in zip(spec.linear, [*parts, _array(layer.output.weight)], strict=True):
        linear.weight = weight
    _normalise(spec.layer_norm, residual.norm)


def _feed_forward(spec: Any, layer: FeedForward, residual: Residual) -> None:
    for linear, ours in ((spec.linear_0, layer.inner), (spec.linear_1, layer.outer)):
        linear.weight, linear.bias = _array(ours.weight), _array(ours.bias)
    _normalise(spec.layer_norm, residual.norm)


def _normalise(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()

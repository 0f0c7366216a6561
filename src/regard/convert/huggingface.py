"""A trained Transformer as a Marian model of Hugging Face, with its tokenizer.

    tokenizer = transformers.AutoTokenizer.from_pretrained("exported")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained("exported")
    found = model.generate(**tokenizer(["ein Hund rennt"], return_tensors="pt"))
    tokenizer.batch_decode(found, skip_special_tokens=True)

Marian (https://marian-nmt.github.io) is the paper's Transformer with biases in the projections, zero where the
run has none. Its positions have all sines before all cosines, ours have them in turn: so the whole model's width
is put into the order of theirs.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention import EPSILON, STANDARD
from regard.convert.conversion import Exportable, ExportableVocabulary, get_transformer
from regard.convert.parameters import get_sines_first_order, marian_modules, to_external
from regard.convert.transformers_model import quiet_transformers
from regard.data import BOS, EOS, PAD, UNKNOWN
from regard.data.bpe_codes import BpeCodesVocabulary
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import RESERVED
from regard.errors import InputError
from regard.io import write_file, write_json
from regard.libraries import import_library
from regard.models import Transformer, TransformerConfig

USE = """\
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
found = model.generate(**tokenizer(["..."], return_tensors="pt"), num_beams=5)
tokenizer.batch_decode(found, skip_special_tokens=True)
```"""
"""How the folder is used, for its model card."""
NEEDED: dict[str, Any] = {
    "positions": "sinusoidal",
    "score": "scaled_dot",
    "layer": STANDARD,
    "pre_norm": False,
    "norm_epsilon": EPSILON,
}
"""The flags of a Transformer that is a Marian model."""


def write_huggingface(run: Exportable, folder: Path) -> None:
    """Write a run's Transformer and tokenizer into a folder that is there, for `AutoModelForSeq2SeqLM` and
    `AutoTokenizer`.

    Raises `InputError` where the run has no Transformer that Marian's architecture holds, or where the extra
    `hub` is not installed; `MachineError` where the disk refuses.
    """
    transformers = import_library("transformers", "exporting to Hugging Face", "hub")
    model, config, source, target = get_huggingface_parts(run)
    special: dict[str, Any] = {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
    }
    marian = transformers.MarianConfig(
        vocab_size=len(source),
        decoder_vocab_size=len(target),
        share_encoder_decoder_embeddings=run.task.shared,
        tie_word_embeddings=config.tied,
        max_position_embeddings=max(run.task.longest_source, run.task.longest_target) + 1,
        d_model=config.hidden,
        encoder_layers=config.enc_layers,
        decoder_layers=config.dec_layers,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.inner,
        decoder_ffn_dim=config.inner,
        activation_function=config.activation,
        scale_embedding=True,
        dropout=config.dropout,
        forced_eos_token_id=None,
        **special,
    )
    theirs = transformers.MarianMTModel(marian)
    missing = theirs.load_state_dict(parameters(model, config), strict=False).missing_keys
    assert all("embed_positions" in name or name == "model.shared.weight" for name in missing), missing
    theirs.tie_weights()
    theirs.generation_config = transformers.GenerationConfig(
        max_length=run.task.longest_target, num_beams=1, suppress_tokens=[PAD, BOS, UNKNOWN], **special
    )
    with quiet_transformers(transformers):
        theirs.save_pretrained(folder)
    if isinstance(source, SentencePieceVocabulary) and isinstance(target, SentencePieceVocabulary):
        _write_marians_tokenizer(folder, source, target, marian.max_position_embeddings)
    else:
        _write_tokenizer(folder, source.to_json(), marian.max_position_embeddings)


def get_huggingface_parts(
    run: Exportable,
) -> tuple[Transformer, TransformerConfig, ExportableVocabulary, ExportableVocabulary]:
    """Return a run's Transformer, how it is built, and its vocabularies of source and target; raises `InputError`
    where Marian's architecture, or a tokenizer of Hugging Face, does not hold it."""
    model, config, source, target = get_transformer(run, "Hugging Face")
    for name, needed in NEEDED.items():
        if (found := getattr(config, name)) != needed:
            raise InputError(
                f"{name} {found} is not {needed}: Marian's models have no other; train with --preset marian"
            )
    if config.hidden % 2:
        raise InputError(f"hidden {config.hidden} is odd: Marian's positions are halves; choose an even one")
    if run.task.shared and not config.tied:
        raise InputError("tied is off with joint on: Marian's models with one vocabulary have one matrix for it")
    if isinstance(source, SentencePieceVocabulary):
        if source.lowercase:
            raise InputError("its vocabulary puts text into lower case: Marian's tokenizer does not")
    elif isinstance(source, BpeCodesVocabulary):
        raise InputError("tokenizer codes is not one of Marian's models: they have SentencePiece's or ours")
    elif not run.task.shared:
        raise InputError("joint is off: a tokenizer of Hugging Face holds one vocabulary; train with --joint")
    return model, config, source, target


def parameters(model: Transformer, config: TransformerConfig) -> dict[str, Tensor]:
    """Return a Transformer's parameters by the names, and in the order of the width, of `MarianMTModel`."""
    order, state = (
        get_sines_first_order(config.hidden),
        {name: each.detach() for name, each in model.state_dict().items()},
    )
    found = to_external(state, marian_modules(config.enc_layers, config.dec_layers), order)
    target, (logits, bias) = state["target_embedding.weight"], model.vocabulary_layer
    source = state.get("source_embedding.weight", target)
    found |= {
        "model.encoder.embed_tokens.weight": source[:, order],
        "model.decoder.embed_tokens.weight": target[:, order],
        "lm_head.weight": logits.detach()[:, order],
        "final_logits_bias": torch.zeros(1, len(target)) if bias is None else bias.detach()[None],
    }
    if source is target:
        found["model.shared.weight"] = found["model.encoder.embed_tokens.weight"]
    return {name: each.float().cpu().contiguous() for name, each in found.items()}


def _write_tokenizer(folder: Path, tokenizer: str, longest: int) -> None:
    from tokenizers import Tokenizer, processors

    ours = Tokenizer.from_str(tokenizer)
    end = RESERVED[EOS]
    ours.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, EOS)]
    )
    ours.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": RESERVED[PAD],
            "bos_token": RESERVED[BOS],
            "eos_token": end,
            "unk_token": RESERVED[UNKNOWN],
            "model_max_length": longest,
            "model_input_names": ["input_ids", "attention_mask"],
            "split_special_tokens": True,  # text can never spell them
            "clean_up_tokenization_spaces": False,
        },
    )


def _write_marians_tokenizer(
    folder: Path, source: SentencePieceVocabulary, target: SentencePieceVocabulary, longest: int
) -> None:
    """Write the files of a `MarianTokenizer`, whose indices are ours."""
    separate = source.symbols != target.symbols
    for name, vocabulary in (("source.spm", source), ("target.spm", target)):
        write_file(folder / name, vocabulary.model)
    for name, vocabulary in (("vocab.json", source), ("target_vocab.json", target))[: 1 + separate]:
        names = [*RESERVED, *vocabulary.symbols[len(RESERVED) :]]
        write_json(folder / name, {symbol: index for index, symbol in enumerate(names)})
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "pad_token": RESERVED[PAD],
            "eos_token": RESERVED[EOS],
            "unk_token": RESERVED[UNKNOWN],
            "model_max_length": longest,
            "separate_vocabs": separate,
            "split_special_tokens": True,  # text can never spell them
            "clean_up_tokenization_spaces": False,
        },
    )

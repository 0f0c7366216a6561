"""A trained Transformer as a Marian model of Hugging Face, with its tokenizer.

    tokenizer = transformers.AutoTokenizer.from_pretrained("exported")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained("exported")
    found = model.generate(**tokenizer(["ein Hund rennt"], return_tensors="pt"))
    tokenizer.batch_decode(found, skip_special_tokens=True)

Marian (https://marian-nmt.github.io) is the paper's Transformer with biases in the projections, zero where the
run has none. Its positions have all sines before all cosines, ours have them in turn: so the whole model's width
is put into the order of theirs.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention import EPSILON, STANDARD
from regard.convert.exportable import Cut, Exportable, transformer_of
from regard.convert.generating import InTransformers
from regard.convert.marian import modules
from regard.convert.parameters import Numbering, Rows, halves, to_theirs
from regard.data import BOS, EOS, PAD, UNKNOWN
from regard.data.bpe_codes import BpeCodesVocabulary
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import RESERVED
from regard.errors import InputError
from regard.io import write_file, write_json
from regard.libraries import import_library, library_errors, offline
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
    model, config, source, target = for_huggingface(run)
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
    with _quietly(transformers):
        theirs.save_pretrained(folder)
    if isinstance(source, SentencePieceVocabulary) and isinstance(target, SentencePieceVocabulary):
        _write_marians_tokenizer(folder, source, target, marian.max_position_embeddings)
    else:
        _write_tokenizer(folder, source.to_json(), marian.max_position_embeddings)


def for_huggingface(run: Exportable) -> tuple[Transformer, TransformerConfig, Cut, Cut]:
    """Return a run's Transformer, how it is built, and its vocabularies of source and target; raises `InputError`
    where Marian's architecture, or a tokenizer of Hugging Face, does not hold it."""
    model, config, source, target = transformer_of(run, "Hugging Face")
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
    order, state = halves(config.hidden), {name: each.detach() for name, each in model.state_dict().items()}
    found = to_theirs(state, modules(config.enc_layers, config.dec_layers), order)
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


class InHuggingFace(InTransformers):
    """A folder with a Marian model and its tokenizer, opened by `transformers`.

    `rows`: their index of each of our symbols, of the source's vocabulary and of the target's; None where they
    are the same.
    """

    def __init__(self, run: Exportable, folder: Path, rows: tuple[Rows, Rows] | None = None) -> None:
        vocabularies = run.task.source_vocabulary, run.task.target_vocabulary
        source, target = rows or tuple(range(len(each)) for each in vocabularies)
        model, self._tokenizer = load_marian(folder)
        super().__init__(model, Numbering(source), Numbering(target))

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of texts, without the end of sequence."""
        found: list[list[int]] = self._tokenizer(list(texts)).input_ids
        return [self.source.back(each[:-1]) for each in found]


def load_marian(folder: Path) -> tuple[Any, Any]:
    """Return a folder's Marian model, in float32, and its tokenizer; none of its code is run, nothing unpickled.

    Raises `InputError` where transformers is not installed, or cannot load it.
    """
    transformers = import_library("transformers", "importing a model of Hugging Face", "hub")
    what = f"{str(folder)!r} cannot be loaded"
    with library_errors("transformers", what, "fetch it anew"), offline(), _quietly(transformers):
        marian: Any = transformers.MarianMTModel
        model, about = marian.from_pretrained(
            folder,
            attn_implementation="eager",
            dtype=torch.float32,
            local_files_only=True,
            weights_only=True,
            output_loading_info=True,
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, split_special_tokens=True
        )
    lacking = [name for name in about["missing_keys"] if "embed_positions" not in name]
    if lacking:
        raise InputError(f"{str(folder)!r} is damaged: {lacking[0]} is missing from its weights; fetch it anew")
    return model.eval(), tokenizer


@contextmanager
def _quietly(transformers: Any) -> Iterator[None]:
    """Keep bars and warnings of the library, which say nothing that is not checked here, from the terminal."""
    talk = transformers.utils.logging
    said, bars = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")  # nothing of it is asked
            yield
    finally:
        talk.set_verbosity(said)
        if bars:
            talk.enable_progress_bar()

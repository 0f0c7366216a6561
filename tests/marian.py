"""A Hugging Face Marian model with random weights and its tokenizer, for the German text of the tests."""

import io
import json
from pathlib import Path
from typing import Any

from tests.german import sentences

SIZES = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "max_position_embeddings": 64, "init_std": 0.3}


def pieces_of(side: int) -> bytes:
    """Return the SentencePiece model of one side of the text, trained like the models of Marian."""
    from sentencepiece import SentencePieceTrainer

    made = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([pair[side] for pair in sentences()]),
        model_writer=made,
        vocab_size=60,
        hard_vocab_limit=False,
        bos_id=-1,
        pad_id=-1,
        eos_id=0,
        unk_id=1,
        num_threads=1,
        minloglevel=2,
    )
    return made.getvalue()


def vocabulary_of(*models: bytes) -> dict[str, int]:
    """Return a Marian vocabulary of the pieces of several models, except for a few omitted pieces."""
    from sentencepiece import SentencePieceProcessor

    found: set[str] = set()
    for model in models:
        processor = SentencePieceProcessor()
        processor.LoadFromSerializedProto(model)
        found |= {processor.IdToPiece(index) for index in range(2, processor.GetPieceSize())}
    kept = [piece for index, piece in enumerate(sorted(found)) if index % 19 != 18]
    # Padding has the same index in both vocabularies.
    named = (
        ["</s>", "<unk>", *kept, ">>en<<", "<pad>"] if len(models) > 1 else ["</s>", "<unk>", "<pad>", *kept, ">>en<<"]
    )
    return {piece: index for index, piece in enumerate(named)}


def write_marian(folder: Path, *, shared: bool = True, **options: Any) -> Path:
    """Write a model in the Marian format of Hugging Face, and return its folder. `options`: values of the config."""
    import torch
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    folder.mkdir()
    models = [pieces_of(side) for side in (0, 1)]
    vocabularies = [vocabulary_of(*models)] if shared else [vocabulary_of(model) for model in models]
    for name, content in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(content)
    for name, vocabulary in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=False):
        (folder / name).write_text(json.dumps(vocabulary), encoding="utf-8")
    about: dict[str, Any] = {"tokenizer_class": "MarianTokenizer", "source_lang": "de", "target_lang": "en"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**about, "separate_vocabs": not shared}))
    pad = vocabularies[0]["<pad>"]
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    special = {"pad_token_id": pad, "eos_token_id": 0, "bos_token_id": 0, "decoder_start_token_id": pad}
    sizes = {"vocab_size": len(vocabularies[0]), "decoder_vocab_size": len(vocabularies[-1])}
    kind = {"activation_function": "swish", "scale_embedding": True, "share_encoder_decoder_embeddings": shared}
    config = MarianConfig(**{**SIZES, **heads, **special, **sizes, **kind, "forced_eos_token_id": 0, **options})
    torch.manual_seed(0)
    model: Any = MarianMTModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:  # biases and gains are trivial at initialization
                parameter.add_(torch.randn_like(parameter) * 0.2)
            # Prevents the model from repeating its input, because the output layer is the embedding.
            elif "layers" in name:
                parameter.mul_(1.5)
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    model.generation_config = GenerationConfig(max_length=64, num_beams=4, bad_words_ids=[[pad]], **special)
    model.save_pretrained(folder)
    return folder

"""Folders with checkpoints in the format of fairseq 0.12 with random weights, for the German text of the
tests."""

import json
from argparse import Namespace
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.german import sentences

SIZES = {"embed_dim": 16, "ffn_embed_dim": 24, "attention_heads": 4, "layers": 2}
TEXTS = [source for source, _ in sentences()[:12]]


def settings(**options: Any) -> Namespace:
    """Return the model settings of a checkpoint: the names and defaults of `transformer_iwslt_de_en`."""
    parts = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()}
    return Namespace(
        **{
            "_name": "transformer_iwslt_de_en",
            "arch": "transformer_iwslt_de_en",
            **parts,
            "encoder_normalize_before": False,
            "decoder_normalize_before": False,
            "encoder_learned_pos": False,
            "decoder_learned_pos": False,
            "activation_fn": "relu",
            "dropout": 0.1,
            "share_all_embeddings": False,
            "share_decoder_input_output_embed": False,
            "decoder_input_dim": SIZES["embed_dim"],
            "decoder_output_dim": SIZES["embed_dim"],
            "adaptive_softmax_cutoff": None,
            "layernorm_embedding": False,
            "max_source_positions": 64,
            "max_target_positions": 64,
            "lr": [0.003],
            **options,
        }
    )


def codes_of(text: list[str]) -> list[tuple[str, str]]:
    """Return the BPE codes of a text, as subword-nmt learns them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    learned: Any = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    learned.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(vocab_size=90, end_of_word_suffix="</w>", show_progress=False)
    learned.train_from_iterator(text, trainer)
    return [(one, other) for one, other in json.loads(learned.to_str())["model"]["merges"]]


def dictionary(lines: list[list[str]]) -> dict[str, int]:
    """Return the symbols of tokenized text with their counts in the order of fairseq, except for a few omitted
    symbols."""
    counted = Counter(piece for line in lines for piece in line)
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return dict([*ranked[:-2], ("madeupword0000", 0)])


def write_fairseq(
    folder: Path, *, kind: str = "codes", joined: bool = True, old: bool = False, **options: Any
) -> Path:
    """Write the folder of a trained model.

    `kind`: codes, fastbpe, sentencepiece or words. `joined`: use one dictionary. `old`: use the format before
    fairseq 0.10. `options`: options of the model.
    """
    folder.mkdir()
    pairs = sentences()
    asked = settings(**options)
    text = [text for pair in pairs for text in pair]
    if kind in ("codes", "fastbpe"):
        from regard.data.bpe_codes import BpeCodesVocabulary

        codes = codes_of(text)
        counts, first = (" 7", "") if kind == "fastbpe" else ("", "#version: 0.2\n")
        lines = "".join(f"{one} {other}{counts}\n" for one, other in codes)
        (folder / ("bpecodes" if counts else "codes")).write_text(first + lines, encoding="utf-8")
        cut: Any = lambda text: list(BpeCodesVocabulary(codes, ["x"])._pieces(text))  # noqa: E731
    elif kind == "sentencepiece":
        from tests.marian import both_pieces

        processor, model = both_pieces()
        (folder / "sentencepiece.bpe.model").write_bytes(model)
        cut = processor.EncodeAsPieces
    else:
        cut = str.split
    sides = [[cut(source) for source, _ in pairs], [cut(target) for _, target in pairs]]
    tables = [dictionary(sides[0] + sides[1])] * 2 if joined else [dictionary(side) for side in sides]
    for language, table in zip(("de", "en"), tables, strict=True):
        content = "".join(f"{symbol} {count}\n" for symbol, count in table.items())
        (folder / f"dict.{language}.txt").write_text(content, encoding="utf-8")
    state = parameters(asked, [4 + len(table) for table in tables])
    if old:
        found: dict[str, Any] = {"args": asked, "model": aged(state)}
    else:
        task = {"_name": "translation", "source_lang": None, "target_lang": None}
        found = {"args": None, "cfg": {"model": asked, "task": task}, "model": OrderedDict(state)}
    found |= {"extra_state": {"val_loss": 5.7, "best": 5.7}, "optimizer_history": [{"criterion_name": "CE"}]}
    torch.save(found, folder / "checkpoint_best.pt")
    return folder


def parameters(asked: Namespace, symbols: list[int]) -> dict[str, Tensor]:
    """Return random parameters with the names of fairseq."""
    generator = torch.Generator().manual_seed(0)
    width, inner = asked.encoder_embed_dim, asked.encoder_ffn_embed_dim
    found: dict[str, Tensor] = {}

    def draw(name: str, *shape: int, std: float = 0.3, mean: float = 0.0) -> None:
        found[name] = mean + std * torch.randn(*shape, generator=generator)

    def norm(name: str) -> None:
        draw(f"{name}.weight", width, std=0.2, mean=1.0)
        draw(f"{name}.bias", width, std=0.2)

    def linear(name: str, rows: int, columns: int) -> None:
        draw(f"{name}.weight", rows, columns, std=0.5)  # prevents the model from repeating its input
        draw(f"{name}.bias", rows)

    for side, count in zip(("encoder", "decoder"), symbols, strict=True):
        found[f"{side}.version"] = torch.tensor([3.0])
        draw(f"{side}.embed_tokens.weight", count, width)
        found[f"{side}.embed_tokens.weight"][1] = 0  # padding
        if getattr(asked, f"{side}_learned_pos"):
            draw(f"{side}.embed_positions.weight", asked.max_source_positions + 2, width)
        else:
            found[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        for number in range(getattr(asked, f"{side}_layers")):
            layer = f"{side}.layers.{number}"
            for kind in ("self_attn", "encoder_attn")[: 1 + (side == "decoder")]:
                for letter in ("k", "v", "q"):
                    linear(f"{layer}.{kind}.{letter}_proj", width, width)
                linear(f"{layer}.{kind}.out_proj", width, width)
                norm(f"{layer}.{kind}_layer_norm")
            linear(f"{layer}.fc1", inner, width)
            linear(f"{layer}.fc2", width, inner)
            norm(f"{layer}.final_layer_norm")
            if side == "encoder":  # copies that fairseq 0.12 stores for PyTorch's fast path
                found[f"{layer}.in_proj_weight"] = torch.zeros(3 * width, width)
                found[f"{layer}.fc1_bias"] = torch.zeros(inner)
        if asked.encoder_normalize_before:
            norm(f"{side}.layer_norm")
    if asked.share_all_embeddings:
        found["decoder.embed_tokens.weight"] = found["encoder.embed_tokens.weight"]
    shared = asked.share_all_embeddings or asked.share_decoder_input_output_embed
    if shared:
        found["decoder.output_projection.weight"] = found["decoder.embed_tokens.weight"]
    else:
        draw("decoder.output_projection.weight", symbols[1], width)
    return found


def aged(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return parameters with the names used by fairseq in 2018."""
    found = {}
    for name, value in state.items():
        if name == "decoder.output_projection.weight":
            name = "decoder.embed_out"
        norms = ["self_attn", "encoder_attn", "final"] if name.startswith("decoder") else ["self_attn", "final"]
        for number, norm in enumerate(norms):
            name = name.replace(f"{norm}_layer_norm", f"layer_norms.{number}")
        if ".q_proj." in name:
            parts = [state[name.replace(".q_proj.", f".{letter}_proj.")] for letter in "qkv"]
            found[name.replace(".q_proj.", ".in_proj_")] = torch.cat(parts)
        elif not any(f".{letter}_proj." in name for letter in "kv"):
            found[name] = value
    return {name: value.half().float() for name, value in found.items() if "fc1_bias" not in name}

"""A trained Transformer as a Marian model of Hugging Face, with its tokenizer.

    tokenizer = transformers.AutoTokenizer.from_pretrained("exported")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained("exported")
    found = model.generate(**tokenizer(["ein Hund rennt"], return_tensors="pt"))
    tokenizer.batch_decode(found, skip_special_tokens=True)

Marian (https://marian-nmt.github.io) is the paper's Transformer with biases in the projections, here zero. Its
positions have all sines before all cosines, ours have them in turn: so the whole model's width is put into the
order of theirs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import STANDARD, MultiHeadAttention
from regard.errors import InputError
from regard.exchange.certificate import Forced, token_log_probabilities
from regard.exchange.exportable import Exportable, transformer_of
from regard.files import write_json
from regard.models import Transformer, TransformerConfig
from regard.text import BOS, EOS, PAD, UNKNOWN, PairBatch
from regard.text.subwords import RESERVED

USE = """\
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
found = model.generate(**tokenizer(["..."], return_tensors="pt"), num_beams=5)
tokenizer.batch_decode(found, skip_special_tokens=True)
```"""
"""How the folder is used, for its model card."""
NEEDED = {"positions": "sinusoidal", "score": "scaled_dot", "layer": STANDARD, "pre_norm": False}
"""The flags of a Transformer that is a Marian model."""


def write_huggingface(run: Exportable, folder: Path) -> None:
    """Write a run's Transformer and tokenizer into a folder that is there, for `AutoModelForSeq2SeqLM` and
    `AutoTokenizer`.

    Raises `InputError` where the run has no Transformer that Marian's architecture holds, or where the extra
    `hub` is not installed; `MachineError` where the disk refuses.
    """
    try:
        from transformers import GenerationConfig, MarianConfig, MarianMTModel
    except ImportError:
        raise InputError("exporting to Hugging Face needs transformers: pip install 'regard[hub]'") from None
    model, config, source, _ = transformer_of(run, "Hugging Face")
    for name, needed in NEEDED.items():
        if (found := getattr(config, name)) != needed:
            raise InputError(
                f"{name} {found} is not {needed}: Marian's models have no other; train with --preset marian"
            )
    if config.hidden % 2:
        raise InputError(f"hidden {config.hidden} is odd: Marian's positions are halves; choose an even one")
    if not run.task.shared:
        raise InputError("joint is off: a tokenizer of Hugging Face holds one vocabulary; train with --joint")
    special: dict[str, Any] = {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
    }
    marian = MarianConfig(
        vocab_size=len(source),
        max_position_embeddings=max(run.task.longest_source, run.task.longest_target) + 1,
        d_model=config.hidden,
        encoder_layers=config.enc_layers,
        decoder_layers=config.dec_layers,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.inner,
        decoder_ffn_dim=config.inner,
        activation_function="relu",
        scale_embedding=True,
        dropout=config.dropout,
        forced_eos_token_id=None,
        **special,
    )
    theirs: Any = MarianMTModel(marian)
    missing = theirs.load_state_dict(parameters(model, config), strict=False).missing_keys
    assert all("embed_positions" in name for name in missing), missing  # those are computed
    theirs.tie_weights()
    generation: Any = GenerationConfig  # which has no types
    theirs.generation_config = generation(
        max_length=run.task.longest_target, num_beams=1, suppress_tokens=[PAD, BOS, UNKNOWN], **special
    )
    theirs.save_pretrained(folder)
    _write_tokenizer(folder, source.to_json(), marian.max_position_embeddings)


def parameters(model: Transformer, config: TransformerConfig) -> dict[str, Tensor]:
    """Return a Transformer's parameters by the names, and in the order of the width, of `MarianMTModel`."""
    order = torch.cat([torch.arange(0, config.hidden, 2), torch.arange(1, config.hidden, 2)])
    embedding = model.target_embedding.weight.detach()[:, order]
    found = {
        f"model.{name}.weight": embedding for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
    }
    found |= {"lm_head.weight": embedding, "final_logits_bias": torch.zeros(1, len(embedding))}

    def put(name: str, layer: nn.Linear, *, reads: bool = True, writes: bool = False) -> None:
        weight = layer.weight.detach()
        bias = torch.zeros(len(weight)) if layer.bias is None else layer.bias.detach()
        weight = weight[:, order] if reads else weight
        found[f"{name}.weight"], found[f"{name}.bias"] = (
            (weight[order], bias[order]) if writes else (weight, bias)
        )

    def attend(name: str, layer: MultiHeadAttention, norm: nn.LayerNorm) -> None:
        put(f"{name}.q_proj", layer.query)
        put(f"{name}.k_proj", layer.key)
        put(f"{name}.v_proj", layer.value)
        put(f"{name}.out_proj", layer.output, reads=False, writes=True)
        normalise(f"{name}_layer_norm", norm)

    def normalise(name: str, norm: nn.LayerNorm) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = norm.weight.detach()[order], norm.bias.detach()[order]

    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for number, each in enumerate(stack.layers):
            layer: Any = each
            name = f"model.{side}.layers.{number}"
            if side == "encoder":
                attend(f"{name}.self_attn", layer.self_attention, layer.attention_residual.norm)
            else:
                attend(f"{name}.self_attn", layer.self_attention, layer.self_residual.norm)
                attend(f"{name}.encoder_attn", layer.cross, layer.cross_residual.norm)
            put(f"{name}.fc1", layer.feed_forward.inner)
            put(f"{name}.fc2", layer.feed_forward.outer, reads=False, writes=True)
            normalise(f"{name}.final_layer_norm", layer.feed_forward_residual.norm)
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


class InHuggingFace:
    """A folder with a sequence-to-sequence model and its tokenizer, opened by `transformers`."""

    program = "transformers"
    missing: dict[str, str] = {}

    def __init__(self, run: Exportable, folder: Path) -> None:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        del run
        options = {"local_files_only": True, "trust_remote_code": False}
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, **options)
        self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager", **options)
        self._model.eval()

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of texts, without the end of sequence."""
        found: list[list[int]] = self._tokenizer(list(texts)).input_ids
        return [each[:-1] for each in found]

    def force(self, batch: PairBatch) -> Forced:
        """Feed a batch's targets."""
        found = self._model(
            input_ids=batch.source,
            attention_mask=batch.source_mask.long(),
            decoder_input_ids=batch.target_in,
            output_attentions=True,
            use_cache=False,
        )
        kinds = (
            ("encoder.layers.{}.self_attention", found.encoder_attentions),
            ("decoder.layers.{}.self_attention", found.decoder_attentions),
            ("decoder.layers.{}.cross", found.cross_attentions),
        )
        weights = {name.format(layer): each for name, layers in kinds for layer, each in enumerate(layers)}
        return Forced(token_log_probabilities(found.logits, batch), found.logits, weights)

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Answer sources (B, Ts) with at most `most` tokens."""
        mask = (source != PAD).long()
        options = {"num_beams": beam, **({"length_penalty": 0.0, "early_stopping": False} if beam > 1 else {})}
        found = self._model.generate(
            input_ids=source,
            attention_mask=mask,
            max_new_tokens=most,
            max_length=None,
            do_sample=False,
            **options,
        )
        rows = [row[1:] for row in found.tolist()]
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]

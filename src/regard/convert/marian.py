"""Marian's Transformer (Junczys-Dowmunt et al. 2018) as Hugging Face has it: its settings and parameters."""

from collections.abc import Iterator
from typing import Any

from regard.convert.parameters import Renamed
from regard.errors import InputError

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
"""What Hugging Face calls the activations that we have."""


def modules(enc_layers: int, dec_layers: int) -> Iterator[Renamed]:
    """Yield all modules of a Marian model but its embeddings and its output layer."""
    for side, layers in (("encoder", enc_layers), ("decoder", dec_layers)):
        for number in range(layers):
            theirs, ours = f"model.{side}.layers.{number}", f"{side}.layers.{number}"
            first = "attention_residual" if side == "encoder" else "self_residual"
            yield from _attention(f"{theirs}.self_attn", f"{ours}.self_attention", f"{ours}.{first}")
            if side == "decoder":
                yield from _attention(f"{theirs}.encoder_attn", f"{ours}.cross", f"{ours}.cross_residual")
            yield Renamed(f"{theirs}.fc1", f"{ours}.feed_forward.inner", reads=True)
            yield Renamed(f"{theirs}.fc2", f"{ours}.feed_forward.outer", writes=True)
            yield Renamed(f"{theirs}.final_layer_norm", f"{ours}.feed_forward_residual.norm", writes=True)


def _attention(theirs: str, ours: str, residual: str) -> Iterator[Renamed]:
    for name, part in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value")):
        yield Renamed(f"{theirs}.{name}", f"{ours}.{part}", reads=True)
    yield Renamed(f"{theirs}.out_proj", f"{ours}.output", writes=True)
    yield Renamed(f"{theirs}_layer_norm", f"{residual}.norm", writes=True)


def settings_of(config: Any) -> dict[str, Any]:
    """Return the flags of a Transformer that is the Marian model of a `MarianConfig`.

    Raises `InputError`, which names the setting, for a model that ours cannot be.
    """
    for name in ("attention_heads", "ffn_dim"):
        one, other = (getattr(config, f"{side}_{name}") for side in ("encoder", "decoder"))
        if one != other:
            raise InputError(
                f"decoder_{name} {other} is not encoder_{name} {one}: a Transformer here has as many in both"
            )
    if config.activation_function not in ACTIVATIONS:
        raise InputError(
            f"activation_function {config.activation_function} is unknown here: "
            f"there are {', '.join(ACTIVATIONS)}"
        )
    if not config.scale_embedding:
        raise InputError("scale_embedding is off: embeddings are always scaled here")
    if config.d_model % 2:
        raise InputError(f"d_model {config.d_model} is odd: the waves of its positions are no pairs")
    shared, tied = bool(config.share_encoder_decoder_embeddings), bool(config.tie_word_embeddings)
    if shared and not tied:
        raise InputError(
            "tie_word_embeddings is off with share_encoder_decoder_embeddings on: "
            "one vocabulary has one matrix here"
        )
    return {
        "hidden": config.d_model,
        "heads": config.encoder_attention_heads,
        "enc_layers": config.encoder_layers,
        "dec_layers": config.decoder_layers,
        "inner": config.encoder_ffn_dim,
        "activation": ACTIVATIONS[config.activation_function],
        "dropout": float(config.dropout),
        "positions": "sinusoidal",
        "pre_norm": False,
        "bias": True,
        "tied": tied,
        "output_bias": True,
        "joint": shared,
    }

"""Configs and parameters of GPT-2 (Radford et al. 2019) and Llama (Touvron et al. 2023) in Hugging Face.

Two differences from Regard concern parameters. GPT-2 keeps queries, keys and values in one matrix, and all
matrices transposed. Llama rotates dimensions i and i + d/2 of a head of width d, Regard 2i and 2i + 1; the rows
of queries and keys are therefore permuted.

Letters: D: width of the states; d: width of a head; V: number of symbols.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.convert.conversion import check_supported
from regard.convert.parameters import get_sines_first_order
from regard.errors import InputError

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
"""Regard's activations by their names in GPT-2."""
LLAMA_TYPES = ("llama", "mistral", "qwen2")
"""Model types with the parameters of Llama."""
MAX_LEN = 100_000
"""Largest context length of a run."""


class Names(NamedTuple):
    """Names of a model's modules by Regard's names."""

    outer: Mapping[str, str]
    """Modules outside the layers."""
    layers: str
    """Name of the list of layers."""
    parts: Mapping[str, str]
    """Modules of a layer."""

    def external(self, name: str) -> str:
        """Return the model's name of a parameter of Regard.

        >>> LLAMA.external("decoder.layers.3.feed_forward.inner.weight")
        'model.layers.3.mlp.up_proj.weight'
        """
        module, _, kind = name.rpartition(".")
        if not module.startswith(OUR_LAYERS):
            return f"{self.outer[module]}.{kind}"
        number, _, part = module.removeprefix(OUR_LAYERS).partition(".")
        return f"{self.layers}{number}.{self.parts[part]}.{kind}"

    def ours(self, name: str) -> str:
        """Return Regard's name of a parameter of the model; raises `InputError` if there is none.

        >>> LLAMA.ours("lm_head.weight")
        'output.weight'
        """
        module, _, kind = name.rpartition(".")
        number, _, part = module.removeprefix(self.layers).partition(".")
        inner = module.startswith(self.layers)
        modules = {theirs: ours for ours, theirs in (self.parts if inner else self.outer).items()}
        if (own := modules.get(part if inner else module)) is None:
            raise InputError(f"parameter {name} has no counterpart in Regard's decoder: it cannot be imported")
        return f"{OUR_LAYERS}{number}.{own}.{kind}" if inner else f"{own}.{kind}"


OUR_LAYERS = "decoder.layers."
GPT2 = Names(
    outer={
        "embedding": "transformer.wte",
        "positions": "transformer.wpe",
        "decoder.norm": "transformer.ln_f",
        "output": "lm_head",
    },
    layers="transformer.h.",
    parts={
        "attention_residual.norm": "ln_1",
        "self_attention.query": "attn.query",
        "self_attention.key": "attn.key",
        "self_attention.value": "attn.value",
        "self_attention.output": "attn.c_proj",
        "feed_forward_residual.norm": "ln_2",
        "feed_forward.inner": "mlp.c_fc",
        "feed_forward.outer": "mlp.c_proj",
    },
)
"""`attn.query`, `attn.key` and `attn.value` are the parts of GPT-2's `attn.c_attn`."""
LLAMA = Names(
    outer={"embedding": "model.embed_tokens", "decoder.norm": "model.norm", "output": "lm_head"},
    layers="model.layers.",
    parts={
        "attention_residual.norm": "input_layernorm",
        "self_attention.query": "self_attn.q_proj",
        "self_attention.key": "self_attn.k_proj",
        "self_attention.value": "self_attn.v_proj",
        "self_attention.output": "self_attn.o_proj",
        "feed_forward_residual.norm": "post_attention_layernorm",
        "feed_forward.gate": "mlp.gate_proj",
        "feed_forward.inner": "mlp.up_proj",
        "feed_forward.outer": "mlp.down_proj",
    },
)
GPT2_PROJECTIONS = ("attn.query", "attn.key", "attn.value")


def read_gpt2_settings(config: Any) -> dict[str, Any]:
    """Convert a `GPT2Config` to flags of the model `decoder`; raises `InputError` for an unsupported setting."""
    check_supported("activation_function", config.activation_function, ACTIVATIONS)
    if config.add_cross_attention:
        raise InputError("add_cross_attention is on: Regard's decoder has no cross attention")
    return {
        "hidden": config.n_embd,
        "layers": config.n_layer,
        "heads": config.n_head,
        "inner": 4 * config.n_embd if config.n_inner is None else config.n_inner,
        "activation": ACTIVATIONS[config.activation_function],
        "positions": "learned",
        "norm": "layer",
        "norm_epsilon": config.layer_norm_epsilon,
        "bias": True,
        "dropout": float(config.resid_pdrop),
        "max_len": config.n_positions,
    }


def read_llama_settings(config: Any) -> dict[str, Any]:
    """Convert a config of Llama's form to flags of the model `decoder`.

    Raises `InputError` with the name of a setting that differs from Llama's form.
    """
    kind, rope, longest = config.model_type, config.rope_parameters, config.max_position_embeddings
    check_supported("hidden_act", config.hidden_act, ("silu",))
    scaled = {name: rope.get(name, standard) for name, standard in ROPE.items()}
    for name, standard in ROPE.items():
        if scaled[name] != standard:
            raise InputError(
                f"{name} {scaled[name]} of rope_scaling is not supported: Regard's rotary positions have "
                f"{name} {standard}"
            )
    window = getattr(config, "sliding_window", None)
    if window is not None and getattr(config, "use_sliding_window", True) and window < longest:
        raise InputError(
            f"sliding_window {window} is below max_position_embeddings {longest}: {kind} then differs from "
            f"Llama, and Regard's decoder attends to all earlier tokens"
        )
    biased = kind == "qwen2" or getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False)
    return {
        "hidden": config.hidden_size,
        "layers": config.num_hidden_layers,
        "heads": config.num_attention_heads,
        "head_size": getattr(config, "head_dim", None),
        "key_value_heads": config.num_key_value_heads,
        "inner": config.intermediate_size,
        "activation": "swiglu",
        "positions": "rotary",
        "rotary_base": float(rope["rope_theta"]),
        "norm": "rms",
        "norm_epsilon": config.rms_norm_eps,
        "bias": bool(biased),
        "dropout": 0.0,
        "max_len": min(longest, MAX_LEN),
    }


ROPE = {"rope_type": "default", "partial_rotary_factor": 1.0}
"""Settings of rotary positions that Regard requires."""


def left_out(config: Any, flags: Mapping[str, Any]) -> list[str]:
    """Return a line for each setting of a model that a run does not keep, and that its outputs do not show."""
    lines = []
    dropouts = ("embd_pdrop", "attn_pdrop") if config.model_type == "gpt2" else ("attention_dropout",)
    for name in dropouts:
        rate = getattr(config, name, 0.0)
        if rate and (name != "embd_pdrop" or rate != flags["dropout"]):
            lines.append(f"{name} {rate} is left out, it matters only in training: dropout is {flags['dropout']}")
    longest = getattr(config, "max_position_embeddings", flags["max_len"])
    if longest > flags["max_len"]:
        lines.append(f"max_position_embeddings {longest:,} is cut to {flags['max_len']:,} tokens")
    return lines


def import_gpt2(state: Mapping[str, Tensor], config: Any, flags: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the parameters of a `GPT2LMHeadModel` by Regard's names.

    Divisions of scores (`scale_attn_by_inverse_layer_idx`) become a part of the queries.
    """
    parameters: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if ".h." in name and name.endswith("weight") and tensor.dim() == 2:
            tensor = tensor.T.contiguous()
        if ".attn.c_attn." not in name:
            parameters[GPT2.ours(name)] = tensor
            continue
        for part, rows in zip(GPT2_PROJECTIONS, tensor.chunk(3), strict=True):
            parameters[GPT2.ours(name.replace("attn.c_attn", part))] = rows.clone()
    for layer in range(flags["layers"]):
        factor = 1.0 if config.scale_attn_weights else (flags["hidden"] // flags["heads"]) ** 0.5
        factor /= layer + 1 if config.scale_attn_by_inverse_layer_idx else 1
        for kind in ("weight", "bias"):
            parameters[f"{OUR_LAYERS}{layer}.self_attention.query.{kind}"] *= factor
    return parameters


def import_llama(state: Mapping[str, Tensor], config: Any, flags: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the parameters of a model of Llama's form by Regard's names. Missing biases are zeros."""
    del config
    parameters = {LLAMA.ours(name): tensor for name, tensor in state.items()}
    if flags["bias"]:
        for name, tensor in list(parameters.items()):
            if name.startswith(OUR_LAYERS) and tensor.dim() == 2:
                parameters.setdefault(name.removesuffix("weight") + "bias", torch.zeros(len(tensor)))
    return _reorder_heads(parameters, flags, inverse=True)


def _reorder_heads(
    parameters: Mapping[str, Tensor], flags: Mapping[str, Any], *, inverse: bool
) -> dict[str, Tensor]:
    """Move the even dimensions of each head of queries and keys before its odd ones, or with `inverse` back."""
    width = flags["head_size"] or flags["hidden"] // flags["heads"]
    order = get_sines_first_order(width)
    order = order.argsort() if inverse else order
    return {
        name: tensor.unflatten(0, (-1, width))[:, order].flatten(0, 1)
        if ".self_attention.query." in name or ".self_attention.key." in name
        else tensor
        for name, tensor in parameters.items()
    }


def export_gpt2(state: Mapping[str, Tensor], flags: Mapping[str, Any], longest: int) -> dict[str, Tensor]:
    """Return a run's parameters by the names of a `GPT2LMHeadModel`; missing biases are zeros, and so are the
    positions of a model without positions."""
    complete = {**state, "positions.weight": state.get("positions.weight", torch.zeros(longest, flags["hidden"]))}
    for name, tensor in state.items():
        if name.startswith("decoder.") and name.endswith("weight"):
            complete.setdefault(name.removesuffix("weight") + "bias", torch.zeros(len(tensor)))
    exported = {GPT2.external(name): tensor for name, tensor in complete.items()}
    for layer in range(flags["layers"]):
        for kind in ("weight", "bias"):
            parts = [exported.pop(f"{GPT2.layers}{layer}.{part}.{kind}") for part in GPT2_PROJECTIONS]
            exported[f"{GPT2.layers}{layer}.attn.c_attn.{kind}"] = torch.cat(parts)
    return {
        name: tensor.T.contiguous() if ".h." in name and tensor.dim() == 2 else tensor
        for name, tensor in exported.items()
    }


def export_llama(state: Mapping[str, Tensor], flags: Mapping[str, Any], longest: int) -> dict[str, Tensor]:
    del longest
    return {LLAMA.external(name): tensor for name, tensor in _reorder_heads(state, flags, inverse=False).items()}


class Family(NamedTuple):
    """A form of decoder-only models: GPT-2's or Llama's."""

    read_settings: Callable[[Any], dict[str, Any]]
    """Convert a config of transformers to flags."""
    import_parameters: Callable[[Mapping[str, Tensor], Any, Mapping[str, Any]], dict[str, Tensor]]
    """Return a model's parameters by Regard's names, for its config and flags."""
    export_parameters: Callable[[Mapping[str, Tensor], Mapping[str, Any], int], dict[str, Tensor]]
    """Return a run's parameters by the model's names, for its flags and the largest number of tokens."""


GPT2_FAMILY = Family(read_gpt2_settings, import_gpt2, export_gpt2)
LLAMA_FAMILY = Family(read_llama_settings, import_llama, export_llama)
FAMILIES = {"gpt2": GPT2_FAMILY, **dict.fromkeys(LLAMA_TYPES, LLAMA_FAMILY)}
"""Family of each supported model type."""

"""Tiny configs of any transformers architecture, derived from its default config by rules on field names.

    config = tiny_config("qwen3_next")

The rules reduce widths, heads, layers, vocabularies, experts, windows and nested configs consistently.
`OVERRIDES` contains the exceptions. Windows and top-k are smaller than the inputs of the checks.
"""

import dataclasses
import re
from typing import Any

WIDTH, HEADS, LAYERS, VOCAB, WINDOW = 64, 4, 2, 99, 4
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
RULES: list[tuple[str, int]] = [
    (r".*codebook_size", 64),
    (r"^index_topk(_freq)?$|.*index.*topk$", WINDOW),
    (r".*(num_labels|num_channels|in_channels|in_chans|num_mel_bins|feature_size)$", 10**9),
    (r".*vocab_size.*", VOCAB),
    (r".*mamba.*(num|n)_heads|n_mamba_heads|mamba_num_heads|mamba_n_heads", 8),
    (r".*(kv_heads|key_value_heads|num_key_heads|index_n_heads)$", 2),
    (r".*head_dim(_\w+)?$|.*headdim$|d_kv|.*kv_channels|mamba_d_head|d_head|qk_nope_head_dim|v_head_dim", 16),
    (r".*qk_rope_head_dim|.*rotary_dim", 8),
    (r".*heads$|n_head|.*num_attn_heads|.*attention_heads.*|heads", HEADS),
    (r".*(lora_rank|adapter_rank|low_rank_dim|latent_size)$", 16),
    (r".*(experts_per_tok(en)?|moe_topk|moe_k|experts_top_k|num_selected_experts|top_k_experts)$|top_k", 2),
    (r".*(n_group|topk_group|n_shared_experts|num_shared_experts|first_k_dense_replace|moe_layer_start_index)$", 1),
    (r".*experts?$|num_experts.*|moe_num_experts", 4),
    (r".*(sliding_window|window_size|attention_window|local_attention|attention_chunk_size)(_size)?$", WINDOW),
    (r".*max_.*position.*|n_positions|.*max_seq_len.*|.*max_length|max_sequence_length|n_ctx|seq_length", 128),
    (r"(image|img|input|spatial)_size|image_(height|width)", 32),
    (r".*patch_size$", 8),
    (
        r".*(intermediate|ffn|feed_?forward|mlp|inner).*(size|dim|hidden|units)?s?$|d_ff|hidden_dim|dff|n_inner|d_inner",
        96,
    ),
    (r".*(num|n)_.*(layers?|blocks)$|.*_layers|n_layers?|depth|.*_depth|num_layers|layers", LAYERS),
    (
        r".*(hidden_size|d_model|n_embd|embed_dim|embedding_size|emb_dim|embd_dim|projection_dim|_width|hidden_dim)\w*$",
        WIDTH,
    ),
    (r"dim|width|.*_proj_dim|.*hidden_channels|.*out_channels|.*fpn.*dim|.*conv_dim|.*_dim|.*_channels", WIDTH),
    (r".*chunk_size.*", 8),
    (r"num_codebooks|num_quantizers", 4),
]
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
OVERRIDES: dict[str, dict[str, Any]] = {
    "autoformer": {"prediction_length": 4, "context_length": 12, "lags_sequence": [1, 2]},
    "bamba": {"attn_layer_indices": [1], "num_hidden_layers": 3},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE["rope_parameters"]}},
    "deepseek_ocr2_text": {"num_experts_per_tok": 2, "mlp_layer_types": ["dense", "sparse"]},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dinov3_vit": {"head_dim": 16},
    "esm": {"mask_token_id": 3, "vocab_size": VOCAB},
    "gemma3n_text": {"intermediate_size": [96] * 4, "num_hidden_layers": 4, "num_kv_shared_layers": 2}
    | {"layer_types": ["sliding_attention", "full_attention"] * 2, "activation_sparsity_pattern": [0.0] * 4}
    | {"vocab_size_per_layer_input": VOCAB},
    "laguna": {"num_attention_heads_per_layer": [4, 4]},
    "longcat_flash": {"head_dim": 8},
    "qwen4_exp_text": {"num_key_value_heads": 2},
    "esmc": {"num_key_value_heads": 4},
    "falcon_h1": {"mamba_d_ssm": 128, "mamba_d_head": 16},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2},
    "zamba": {"layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"], "num_hidden_layers": 4},
    "glm5_next_text": {"num_key_value_heads": 4, "index_topk": 4, "index_kpool": 2},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]]},
    "hunyuan_v1_dense": ROPE | {"head_dim": 16},
    "hunyuan_v1_moe": ROPE | {"head_dim": 16},
    "hunyuan_vl_text": ROPE | {"head_dim": 16},
    "informer": {"prediction_length": 4, "context_length": 12, "lags_sequence": [1, 2]},
    "jamba": {"num_hidden_layers": 3, "attn_layer_period": 3, "attn_layer_offset": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2, "num_dense_layers": 1},
    "ministral": ROPE | {"head_dim": 16},
    "nemotron": {"head_dim": 16, "num_key_value_heads": 2},
    "paddleocr_vl_text": {"rope_parameters": ROPE["rope_parameters"] | {"mrope_section": [2, 3, 3]}},
    "step3p5": {"sliding_window": WINDOW},
    "xmod": {"default_language": "en_XX"},
    "openai-gpt": {},
    "recurrent_gemma": {"num_hidden_layers": 3, "block_types": ["recurrent", "recurrent", "attention"]}
    | {"lru_width": 64},
    "reformer": {"axial_pos_shape": [4, 8], "axial_pos_embds_dim": [32, 32], "is_decoder": True}
    | {"attn_layers": ["lsh", "local"]},
    "swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 2},
    "swinv2": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 2},
    "donut-swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 2},
    "maskformer-swin": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4} | {"patch_size": 2},
    "swin2sr": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 1},
    "time_series_transformer": {"prediction_length": 4, "context_length": 12, "lags_sequence": [1, 2]},
    "youtu": {},
}
"""Fields by model type for which the rules give invalid values."""


def tiny_config(name: str) -> Any:
    """Return a small config of a model type; raises the error of the config class if the sizes do not fit."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return _tiny(CONFIG_MAPPING[name])


def _tiny(kind: Any) -> Any:
    default = _default(kind)
    fields = small_fields(kind, default)
    fields |= OVERRIDES.get(kind.model_type, {})
    return kind(**fields)


def _default(kind: Any) -> Any:
    try:
        return kind()
    except Exception:  # a composite config needs its parts
        return None


def small_fields(kind: Any, default: Any) -> dict[str, Any]:
    """Return small values for the fields of a config class."""
    subs = getattr(kind, "sub_configs", {})
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        name = field.name
        value = _value(default, field)
        if name in subs:
            fields[name] = _nested(subs[name], value)
            continue
        small = _small(name, value)
        if small is not None:
            fields[name] = small
    _adapt_layers(kind, default, fields)
    _adapt_heads(kind, default, fields)
    return fields


def _value(default: Any, field: Any) -> Any:
    """Return the default of a field, or the value from the config if the default is a single value."""
    try:
        return getattr(default, field.name)
    except Exception:  # no default config, or a value that differs by layer
        return None if field.default is dataclasses.MISSING else field.default


def _nested(kind: Any, value: Any) -> Any:
    if hasattr(value, "model_type") and value.model_type:
        kind = type(value)
    if not hasattr(kind, "__dataclass_fields__") or kind.__name__ in ("AutoConfig", "PreTrainedConfig"):
        return value
    return _tiny(kind)


def _small(name: str, value: Any) -> Any:
    """Return the small value of a field; None if it does not change."""
    if name.endswith(("token_id", "token_index", "token_ids")):
        return _token(name, value)
    if isinstance(value, bool) or value is None:
        return None
    if name == "mrope_section" or not isinstance(value, int | list | tuple):
        return None
    if isinstance(value, list | tuple):
        if not value or not all(type(each) is int for each in value):
            return None
        found = [_small(name.removesuffix("s") if name.endswith("s") else name, each) for each in value]
        return type(value)(each if new is None else new for each, new in zip(value, found, strict=True))
    for pattern, most in RULES:
        if re.fullmatch(pattern, name):
            return min(value, most) if value > 0 else None
    return None


def _token(name: str, value: Any) -> Any:
    if name in TOKENS:
        return TOKENS[name] if value is not None or name in ("pad_token_id", "eos_token_id") else None
    if isinstance(value, int) and value >= VOCAB:
        return VOCAB - 1 - sum(map(ord, name)) % 20
    return None


def _adapt_heads(kind: Any, default: Any, fields: dict[str, Any]) -> None:
    """Give each head of latent attention separate keys, and adapt rotary dimensions to the width of a head."""
    if "kv_lora_rank" in fields and "num_key_value_heads" in fields:
        fields["num_key_value_heads"] = fields.get("num_attention_heads", HEADS)
    for name in ("rope_parameters", "rope_scaling"):
        rope = getattr(default, name, None) if default is not None else None
        takes = "mrope_section" in (getattr(kind, "ignore_keys_at_rope_validation", None) or ())
        if isinstance(rope, dict) and rope and (takes or "mrope_section" in rope):
            sections = rope.get("mrope_section") or [16, 24, 24]
            width = fields.get("head_dim") or WIDTH // HEADS
            width = int(width * rope.get("partial_rotary_factor", 1)) // 2
            sizes = [max(width * each // sum(sections), 1) for each in sections]
            fields[name] = rope | {"mrope_section": [width - sum(sizes[1:]), *sizes[1:]]}


def _adapt_layers(kind: Any, default: Any, fields: dict[str, Any]) -> None:
    """Retain one layer of every kind, and at least two layers."""
    for alias in ("layer_types", "layers_block_type", "layer_type", "mlp_layer_types", "ffn_layer_types"):
        types = getattr(default, alias, None)
        name = getattr(kind, "attribute_map", {}).get(alias, alias)
        if isinstance(getattr(kind, name, None), property):
            continue
        if not isinstance(types, list) or not all(isinstance(each, str) for each in types):
            continue
        distinct = list(dict.fromkeys(types))
        count = fields.get("num_hidden_layers", LAYERS)
        if alias in ("layer_types", "layers_block_type", "layer_type"):
            chosen = distinct if len(distinct) > 1 else distinct * LAYERS
            fields[name] = chosen
            count = len(chosen)
            for each in ("num_hidden_layers", "num_layers", "n_layer"):
                if each in fields:
                    fields[each] = count
        else:
            fields[name] = (distinct * count)[:count]

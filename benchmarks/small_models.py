"""Configs of small transformers models; see `architectures` for the fields."""

from typing import Any

from architectures import Architecture

TEXT: dict[str, Any] = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 80,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = TEXT | {"num_key_value_heads": 2, "head_dim": 8}
PAIR: dict[str, Any] = {
    "vocab_size": 60,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 80,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
    "scale_embedding": False,
}
T5: dict[str, Any] = {
    "vocab_size": 60,
    "d_model": 32,
    "d_kv": 8,
    "num_layers": 2,
    "num_heads": 4,
    "d_ff": 48,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
}
GPT: dict[str, Any] = {
    "vocab_size": 60,
    "n_positions": 80,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
XLM: dict[str, Any] = {"vocab_size": 60, "emb_dim": 32, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 80}
IMAGE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 16,
    "patch_size": 4,
}
SOUND: dict[str, Any] = {
    "vocab_size": 30,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "conv_dim": (16, 16),
    "conv_stride": (5, 4),
    "conv_kernel": (10, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "num_codevectors_per_group": 4,
    "codevector_dim": 8,
    "layerdrop": 0.0,
}
MOE: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 2}
HAND: dict[str, Any] = {"implementations": ("eager",)}
BANDS = (
    "the model returns bands of weights. Regard converts the bands to rows over all keys, including the global"
    " keys. The model never computes a full row, so you can switch heads off, but you cannot set weights"
    " outside a band."
)
ARCHITECTURES: list[Architecture] = [
    *[
        Architecture(name, "encoder", TEXT)
        for name in ("bert", "roberta", "xlm-roberta", "camembert", "ernie", "roberta-prelayernorm")
    ],
    Architecture("data2vec-text", "encoder", TEXT),
    Architecture("electra", "encoder", TEXT | {"embedding_size": 16}),
    Architecture("albert", "encoder", TEXT | {"embedding_size": 16, "num_hidden_layers": 3}),
    Architecture("distilbert", "encoder", {"vocab_size": 60, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
    Architecture("modernbert", "encoder", TEXT | {"local_attention": 4, "global_attn_every_n_layers": 2}, window=True),
    Architecture("esm", "encoder", TEXT | {"mask_token_id": 3}),
    Architecture("mobilebert", "encoder", TEXT | {"embedding_size": 16, "intra_bottleneck_size": 16}),
    Architecture("layoutlm", "encoder", TEXT),
    Architecture("nomic_bert", "encoder", TEXT),
    Architecture("eurobert", "encoder", GROUPED, grouped_heads=True),
    Architecture("deberta", "encoder", TEXT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, **HAND),
    Architecture(
        "deberta-v2",
        "encoder",
        TEXT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
        **HAND,
    ),
    Architecture("mpnet", "encoder", TEXT, **HAND),
    Architecture("longformer", "encoder", TEXT | {"attention_window": [4, 6]}, window=True, **HAND, note=BANDS),
    Architecture("big_bird", "encoder", TEXT | {"block_size": 4, "num_random_blocks": 1}, **HAND),
    Architecture(
        "xlnet", "encoder", {"vocab_size": 60, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}, **HAND
    ),
    Architecture(
        "funnel",
        "encoder",
        {"vocab_size": 60, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48, "block_sizes": [1, 1]}
        | {"block_repeats": [1, 1], "num_decoder_layers": 1},
        model="FunnelModel",
        **HAND,
    ),
    Architecture(
        "squeezebert",
        "encoder",
        TEXT | {"embedding_size": 32},
        **HAND,
        note="the model returns scores; Regard records their softmax.",
    ),
    Architecture("convbert", "encoder", TEXT | {"embedding_size": 16, "conv_kernel_size": 3}, **HAND),
    Architecture("roformer", "encoder", TEXT | {"embedding_size": 16}, **HAND),
    Architecture("rembert", "encoder", TEXT | {"input_embedding_size": 16}, **HAND),
    Architecture("megatron-bert", "encoder", TEXT, **HAND),
    Architecture("xlm", "encoder", XLM, **HAND),
    Architecture("flaubert", "encoder", XLM, **HAND),
    Architecture("ibert", "encoder", TEXT, **HAND),
    *[
        Architecture(name, "decoder", GROUPED, grouped_heads=True)
        for name in ("llama", "qwen2", "qwen3", "gemma", "phi3", "olmo2", "granite", "smollm3", "cohere", "helium")
    ],
    Architecture("gpt2", "decoder", GPT),
    Architecture("gpt_bigcode", "decoder", GPT, grouped_heads=True),
    Architecture("opt", "decoder", TEXT | {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    Architecture("gpt_neox", "decoder", TEXT),
    Architecture("phi", "decoder", TEXT),
    Architecture("stablelm", "decoder", TEXT | {"num_key_value_heads": 2}, grouped_heads=True),
    Architecture("starcoder2", "decoder", GROUPED, grouped_heads=True),
    Architecture("mistral", "decoder", GROUPED | {"sliding_window": 4}, grouped_heads=True, window=True),
    Architecture("mixtral", "decoder", GROUPED | MOE, grouped_heads=True),
    Architecture("gemma2", "decoder", GROUPED | {"sliding_window": 4}, grouped_heads=True, window=True, **HAND),
    Architecture("gemma3_text", "decoder", GROUPED | {"sliding_window": 4}, grouped_heads=True, window=True),
    Architecture("gpt_oss", "decoder", GROUPED | MOE | {"sliding_window": 4}, grouped_heads=True, window=True, **HAND),
    Architecture(
        "deepseek_v3",
        "decoder",
        TEXT
        | {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
        | {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 16, "num_key_value_heads": 4},
    ),
    Architecture("biogpt", "decoder", TEXT),
    Architecture("ctrl", "decoder", GPT | {"dff": 48}),
    Architecture(
        "gpt_neo",
        "decoder",
        {"vocab_size": 60, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "max_position_embeddings": 80}
        | {"attention_types": [[["global", "local"], 1]], "window_size": 4, "pad_token_id": 0, "eos_token_id": 2},
        window=True,
        **HAND,
    ),
    Architecture("gptj", "decoder", GPT | {"rotary_dim": 4}, **HAND),
    Architecture("codegen", "decoder", GPT | {"rotary_dim": 4}, **HAND),
    Architecture("bloom", "decoder", {"vocab_size": 60, "hidden_size": 32, "n_layer": 2, "n_head": 4}, **HAND),
    Architecture(
        "mpt", "decoder", {"vocab_size": 60, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 80}, **HAND
    ),
    Architecture("falcon", "decoder", TEXT | {"alibi": False}, grouped_heads=True),
    Architecture("openai-gpt", "decoder", GPT, generates=False, **HAND),
    Architecture(
        "xglm",
        "decoder",
        {"vocab_size": 60, "d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48, "pad_token_id": 0},
        **HAND,
    ),
    *[
        Architecture(name, "encoder-decoder", PAIR)
        for name in ("bart", "mbart", "marian", "pegasus", "blenderbot", "blenderbot-small", "m2m_100", "plbart")
    ],
    Architecture("mvp", "encoder-decoder", PAIR, **HAND),
    Architecture("t5", "encoder-decoder", T5),
    Architecture("mt5", "encoder-decoder", T5),
    Architecture("umt5", "encoder-decoder", T5),
    Architecture(
        "switch_transformers",
        "encoder-decoder",
        T5
        | {
            "num_decoder_layers": 2,
            "num_experts": 4,
            "num_sparse_encoder_layers": 1,
            "num_sparse_decoder_layers": 1,
            "expert_capacity": 16,
        },
        **HAND,
    ),
    Architecture("led", "encoder-decoder", PAIR | {"attention_window": [4, 6]}, window=True, **HAND, note=BANDS),
    Architecture(
        "prophetnet",
        "encoder-decoder",
        {each: size for each, size in TEXT.items() if not each.startswith("num_")}
        | {"num_encoder_layers": 2, "num_decoder_layers": 2, "ngram": 2, "decoder_start_token_id": 1}
        | {"num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4, "num_buckets": 8}
        | {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "relative_max_distance": 16},
        **HAND,
        note="each prediction stream has separate records, in a pass without a cache.",
    ),
    Architecture("vit", "vision", IMAGE),
    Architecture("deit", "vision", IMAGE),
    Architecture("beit", "vision", IMAGE | {"use_relative_position_bias": True}),
    Architecture("dinov2", "vision", IMAGE),
    Architecture(
        "siglip_vision_model",
        "vision",
        IMAGE,
        note="the model returns no weights of its pooling attention, which is a PyTorch layer.",
    ),
    Architecture("yolos", "vision", IMAGE | {"image_size": [16, 16], "num_detection_tokens": 3}),
    Architecture(
        "swin",
        "vision",
        {"image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4},
        window=True,
        note="each window of an input has a separate map; the model returns the weights of only one layer of each"
        " stage.",
    ),
    Architecture(
        "segformer",
        "vision",
        {"num_encoder_blocks": 2, "depths": [1, 1], "hidden_sizes": [16, 32], "num_attention_heads": [2, 4]}
        | {"sr_ratios": [2, 1], "patch_sizes": [3, 3], "strides": [2, 2], "mlp_ratios": [2, 2]}
        | {"decoder_hidden_size": 16},
    ),
    Architecture("wav2vec2", "speech", SOUND),
    Architecture("hubert", "speech", SOUND),
    Architecture("unispeech", "speech", SOUND),
    Architecture(
        "wavlm", "speech", SOUND, **HAND, note="the model returns the mean of all heads; Regard records each head."
    ),
    Architecture(
        "whisper",
        "speech",
        PAIR
        | {"num_mel_bins": 8, "max_source_positions": 12, "max_target_positions": 80, "suppress_tokens": None}
        | {"begin_suppress_tokens": None},
    ),
    Architecture(
        "audio-spectrogram-transformer",
        "speech",
        IMAGE | {"max_length": 24, "num_mel_bins": 16, "frequency_stride": 4, "time_stride": 4},
    ),
    Architecture(
        "reformer",
        "encoder",
        {"vocab_size": 60, "hidden_size": 32, "attention_head_size": 8, "num_attention_heads": 4}
        | {"feed_forward_size": 48, "attn_layers": ["lsh"], "axial_pos_shape": [4, 4], "axial_pos_embds_dim": [16, 16]}
        | {"lsh_attn_chunk_length": 4, "num_buckets": 2, "is_decoder": False, "pad_token_id": 0},
        unsupported="queries attend to positions with the same hash, in several rounds, so there is no matrix of"
        " weights over keys.",
    ),
    Architecture(
        "mamba",
        "decoder",
        {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
        unsupported="the model has no attention.",
    ),
    Architecture(
        "fnet",
        "encoder",
        {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48}
        | {"max_position_embeddings": 80, "pad_token_id": 0},
        unsupported="the model mixes tokens by a Fourier transform, without attention.",
    ),
    Architecture(
        "clip",
        "two towers",
        {"text_config": TEXT | {"max_position_embeddings": 20}, "vision_config": IMAGE, "projection_dim": 16},
    ),
    Architecture(
        "blip",
        "two towers",
        {"text_config": TEXT | {"encoder_hidden_size": 32}, "vision_config": IMAGE, "projection_dim": 16}
        | {"image_text_hidden_size": 16},
        **HAND,
    ),
]

"""Export of a language model to Hugging Face, as a GPT-2 or Llama model with its tokenizer.

    tokenizer = transformers.AutoTokenizer.from_pretrained("exported")
    model = transformers.AutoModelForCausalLM.from_pretrained("exported")
    output = model.generate(**tokenizer(["Once"], return_tensors="pt"))

Models with layer normalization become GPT-2 models, those with `--norm rms` Llama models. Parts that these have
and the run lacks (biases, positions, feed-forward layers) are exported as zeros, which leave the outputs equal.
"""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention.hooks import attention_layers
from regard.attention.multihead import MultiHeadAttention
from regard.convert.conversion import check_attention
from regard.convert.language_certificate import ConvertedLanguageModel, LanguageModelRun
from regard.convert.language_import import load_language_model
from regard.convert.language_models import ACTIVATIONS, GPT2_FAMILY, LLAMA_FAMILY, OUR_LAYERS, Family
from regard.convert.transformers_model import quiet_transformers
from regard.data.imported_tokenizer import ImportedTokenizer
from regard.data.subwords import RESERVED, SubwordVocabulary
from regard.data.vocabulary import BLANK, UNKNOWN
from regard.errors import InputError
from regard.io.writing import write_file, write_json
from regard.libraries import import_library
from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from regard.tasks.tokens import TokenTask

USE = """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForCausalLM.from_pretrained("FOLDER")
output = model.generate(**tokenizer(["..."], return_tensors="pt", return_token_type_ids=False), max_new_tokens=20)
tokenizer.batch_decode(output, skip_special_tokens=True)
```"""
"""Usage instructions for the model card."""
GPT2_REQUIRED: dict[str, tuple[Any, ...]] = {
    "pre_norm": (True,),
    "embedding_positions": ("learned", "none"),
    "activation": ("relu", "gelu", "gelu_tanh"),
}
"""Flags that GPT-2 models require."""
LLAMA_REQUIRED: dict[str, tuple[Any, ...]] = {
    "pre_norm": (True,),
    "embedding_positions": ("rotary",),
    "activation": ("swiglu",),
}
"""Flags that Llama models require."""
NO_TOKEN = "<unknown>"
"""Text of an unknown token in the tokenizer of a task without such a token, where it is an error."""


def check_language_model(run: Any) -> Family:
    """Return the form in which a run is exported.

    Raises `InputError` if neither GPT-2 nor Llama models can represent it.
    """
    config, model = run.config.model, run.model
    if not isinstance(model, DecoderOnly) or not isinstance(config, DecoderOnlyConfig):
        raise InputError(f"run {str(run.folder)!r} is not a decoder-only model: Hugging Face cannot run it")
    if run.task.input_width:
        raise InputError(f"run {str(run.folder)!r} reads real numbers: Hugging Face's models read tokens")
    if run.config.kept_heads or any(layer.heads != config.heads for layer in attention_layers(model).values()):
        raise InputError(
            f"run {str(run.folder)!r} is pruned: Hugging Face needs the same number of heads in every layer"
        )
    check_attention(model, config.attention, "Hugging Face")
    if config.norm == "none":
        raise InputError("norm none is not GPT-2's layer or Llama's rms: train with --norm layer or --norm rms")
    llama = config.norm == "rms"
    name, required = ("Llama", LLAMA_REQUIRED) if llama else ("GPT-2", GPT2_REQUIRED)
    for flag, choices in required.items():
        if flag == "activation" and not config.feed_forward:
            continue
        if (value := getattr(config, flag)) not in choices:
            flag = flag.removeprefix("embedding_")
            raise InputError(
                f"{flag} {value} is not {' or '.join(map(str, choices))}, which {name} models require: a model "
                f"with norm {config.norm} is exported as {name}; train with another --{flag}"
            )
    groups = run.model.decoder.layers[0].self_attention.groups
    if not llama and groups != config.heads:
        raise InputError(
            f"key_value_heads {groups} is not supported by GPT-2 models, to which norm layer is "
            f"exported: train with --norm rms, or without --key_value_heads"
        )
    if not llama and config.head_width * config.heads != config.hidden:
        raise InputError(
            f"head_size {config.head_width} is not hidden / heads, which GPT-2 models require: train with "
            f"--norm rms, or without --head_size"
        )
    return LLAMA_FAMILY if llama else GPT2_FAMILY


def write_language_model(run: Any, folder: Path) -> None:
    """Write a run's model and tokenizer to an existing folder, for `AutoModelForCausalLM` and `AutoTokenizer`.

    Raises `InputError` if Hugging Face's models cannot represent the run, or if the extra `hub` is not installed.
    Raises `MachineError` if the disk cannot be written.
    """
    transformers = import_library("transformers", "exporting to Hugging Face", "hub")
    family, config, task = check_language_model(run), run.config.model, run.task
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    special |= getattr(getattr(task, "tokenizer", None), "special", {})
    sizes = {"vocab_size": task.outputs, "tie_word_embeddings": config.tied, **special}
    layer = run.model.decoder.layers[0].self_attention
    make = _gpt2_config if family is GPT2_FAMILY else partial(_llama_config, layer)
    with quiet_transformers(transformers):
        with torch.random.fork_rng(devices=[]):
            settings = make(transformers, config, task.longest, sizes)
            theirs = transformers.AutoModelForCausalLM.from_config(settings)
        state = {name: tensor.detach().float().cpu() for name, tensor in run.model.state_dict().items()}
        state = state if config.feed_forward else _with_feed_forward(state, config)
        exported = family.export_parameters(state, vars(config), task.longest)
        missing = theirs.load_state_dict(exported, strict=False).missing_keys
        assert missing == ["lm_head.weight"] * config.tied, missing
        theirs.tie_weights()
        theirs.generation_config = transformers.GenerationConfig(**special)
        theirs.save_pretrained(folder)
    _write_tokenizer(task, folder, special)


def open_language_model(run: LanguageModelRun, folder: Path) -> ConvertedLanguageModel:
    del run
    model, tokenizer, _ = load_language_model(folder)
    return ConvertedLanguageModel(model, tokenizer)


def _gpt2_config(transformers: Any, config: DecoderOnlyConfig, longest: int, sizes: Mapping[str, Any]) -> Any:
    return transformers.GPT2Config(
        n_embd=config.hidden,
        n_layer=config.layers,
        n_head=config.heads,
        n_inner=config.inner if config.feed_forward else 1,
        n_positions=longest,
        activation_function=next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
        if config.feed_forward
        else "relu",
        layer_norm_epsilon=config.norm_epsilon,
        resid_pdrop=config.dropout,
        embd_pdrop=config.dropout,
        attn_pdrop=0.0,
        **sizes,
    )


def _llama_config(
    layer: MultiHeadAttention,
    transformers: Any,
    config: DecoderOnlyConfig,
    longest: int,
    sizes: Mapping[str, Any],
) -> Any:
    assert layer.rotary is not None
    return transformers.LlamaConfig(
        hidden_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=layer.groups,
        head_dim=config.head_width,
        intermediate_size=config.inner if config.feed_forward else 1,
        max_position_embeddings=longest,
        rms_norm_eps=config.norm_epsilon,
        rope_parameters={"rope_type": "default", "rope_theta": layer.rotary.waves.base},
        attention_bias=config.bias,
        mlp_bias=config.bias,
        **sizes,
    )


def _with_feed_forward(state: Mapping[str, Tensor], config: DecoderOnlyConfig) -> dict[str, Tensor]:
    """Return the parameters of an attention-only model with feed-forward layers of width 1 that return zeros."""
    complete, matrices = dict(state), ["inner", "gate"] if config.norm == "rms" else ["inner"]
    for layer in range(config.layers):
        name = f"{OUR_LAYERS}{layer}.feed_forward"
        complete[f"{name}_residual.norm.weight"] = torch.ones(config.hidden)
        complete[f"{name}.outer.weight"] = torch.zeros(config.hidden, 1)
        complete |= {f"{name}.{matrix}.weight": torch.zeros(1, config.hidden) for matrix in matrices}
        if config.bias:
            complete[f"{name}.outer.bias"] = torch.zeros(config.hidden)
            complete |= {f"{name}.{matrix}.bias": torch.zeros(1) for matrix in matrices}
    return complete


def _write_tokenizer(task: TokenTask, folder: Path, special: Mapping[str, int | None]) -> None:
    vocabulary, unknown = getattr(task, "tokenizer", None), None
    if isinstance(vocabulary, ImportedTokenizer):
        content = vocabulary.tokenizer_json
    elif isinstance(vocabulary, SubwordVocabulary):
        content, unknown = _text_tokenizer(vocabulary), RESERVED[UNKNOWN]
    else:
        content = _task_tokenizer(task)
    write_file(folder / "tokenizer.json", content.encode())
    names = {name.removesuffix("_id"): index for name, index in special.items() if index is not None}
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": task.longest,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "unk_token": unknown,
        **{name: task.vocabulary[index] for name, index in names.items()},
    }
    write_json(folder / "tokenizer_config.json", settings)


def _text_tokenizer(vocabulary: SubwordVocabulary) -> str:
    """Return the JSON of a tokenizer for text of many lines.

    A line feed is the token with the index of the end of sequence, and each line is tokenized separately.
    """
    from tokenizers import Regex, Tokenizer, decoders

    stored = json.loads(vocabulary.to_json())
    line_end = RESERVED[vocabulary.line_feed]
    names = stored["model"]["vocab"]
    if isinstance(names, dict):
        stored["model"]["vocab"] = {"\n" if name == line_end else name: index for name, index in names.items()}
    else:
        stored["model"]["vocab"] = [["\n" if name == line_end else name, score] for name, score in names]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    stored["added_tokens"] = [{"id": vocabulary.line_feed, "content": "\n", **flags}]
    tokenizer = Tokenizer.from_str(json.dumps(stored))
    steps: list[Any] = [decoders.Replace(BLANK, " "), decoders.Fuse()]
    if vocabulary.splits_at_blanks:  # each line begins with a blank, which is not in the text
        steps += [decoders.Strip(" ", 1, 0), decoders.Replace(Regex("\n "), "\n")]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer.to_str(pretty=True)


def _task_tokenizer(task: TokenTask) -> str:
    """Return the JSON of a tokenizer for a task without text, such as induction."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    indices = {token: index for index, token in enumerate(task.vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(indices, unk_token=NO_TOKEN))
    if task.separator:
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
        tokenizer.decoder = decoders.Fuse()
    return tokenizer.to_str(pretty=True)

"""Configs and parameters of GPT-2 (Radford et al. 2019) and Llama (Touvron et al. 2023) in Hugging Face.

Two differences from Regard concern parameters. GPT-2 keeps queries, keys and values in one matrix, and all
matrices transposed. Llama rotates dimensions i and i + d/2 of a head of width d, Regard 2i and 2i + 1; the rows
of queries and keys are therefore permuted.

Letters: D: width of the states; d: width of a head; V: number of symbols.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.layer import attention_layers
from regard.convert.certificate import ImportedModel, check_attention, check_supported
from regard.convert.huggingface import MEND, get_sines_first_order, load_pretrained, quiet_transformers
from regard.data.imported_tokenizers import SPECIAL_TOKENS, ImportedTokenizer
from regard.data.subwords import RESERVED, SubwordVocabulary, make_tokenizer
from regard.data.vocabulary import BLANK, UNKNOWN
from regard.errors import InputError
from regard.io import DamageError, is_file, write_file, write_json
from regard.libraries import import_library
from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from regard.progress import print_status
from regard.tasks.tokens import TokenTask

ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
"""Regard's activations by their names in GPT-2."""
LLAMA_TYPES = ("llama", "mistral", "qwen2")  # Model types with the parameters of Llama
MAX_LEN = 100_000  # Largest context length of a run


class Names(NamedTuple):
    """Names of a model's modules by Regard's names."""

    outer: Mapping[str, str]  # Modules outside the layers
    layers: str  # Name of the list of layers
    parts: Mapping[str, str]  # Modules of a layer

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
    """Convert a config of Llama's form to flags of the model `decoder`. Raises `InputError` with the name of a
    setting that differs from Llama's form."""
    kind, rope, longest = config.model_type, config.rope_parameters, config.max_position_embeddings
    check_supported("hidden_act", config.hidden_act, ("silu",))
    for name, standard in ROPE.items():
        if (value := rope.get(name, standard)) != standard:
            raise InputError(
                f"{name} {value} of rope_scaling is not supported: Regard's rotary positions have {standard}"
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


ROPE = {"rope_type": "default", "partial_rotary_factor": 1.0}  # Settings of rotary positions that Regard requires


def import_gpt2(state: Mapping[str, Tensor], config: Any, flags: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the parameters of a `GPT2LMHeadModel` by Regard's names. Divisions of scores
    (`scale_attn_by_inverse_layer_idx`) become a part of the queries."""
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
    parameters = {LLAMA.ours(name): tensor for name, tensor in state.items()}
    if flags["bias"]:
        for name, tensor in list(parameters.items()):
            if name.startswith(OUR_LAYERS) and tensor.dim() == 2:
                parameters.setdefault(name.removesuffix("weight") + "bias", torch.zeros(len(tensor)))
    return _reorder_heads(parameters, flags, inverse=True)


def _reorder_heads(parameters: Mapping[str, Tensor], flags: Mapping[str, Any], *, inverse: bool) -> dict[str, Tensor]:
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
    return {LLAMA.external(name): tensor for name, tensor in _reorder_heads(state, flags, inverse=False).items()}


class Family(NamedTuple):
    """A form of decoder-only models: GPT-2's or Llama's."""

    read_settings: Callable[[Any], dict[str, Any]]  # Convert a config of transformers to flags
    import_parameters: Callable[[Mapping[str, Tensor], Any, Mapping[str, Any]], dict[str, Tensor]]
    """Return a model's parameters by Regard's names, for its config and flags."""
    export_parameters: Callable[[Mapping[str, Tensor], Mapping[str, Any], int], dict[str, Tensor]]
    """Return a run's parameters by the model's names, for its flags and the largest number of tokens."""


GPT2_FAMILY = Family(read_gpt2_settings, import_gpt2, export_gpt2)
LLAMA_FAMILY = Family(read_llama_settings, import_llama, export_llama)
FAMILIES = {"gpt2": GPT2_FAMILY, **dict.fromkeys(LLAMA_TYPES, LLAMA_FAMILY)}  # Family of each supported model type


TOKENIZER_FILES = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("tokenizer.model",))
"""Sets of files from which transformers builds a tokenizer."""
NO_WEIGHTS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
"""Ends of the names of tensors in old files that are not parameters."""
MAX_VOCABULARY = 10**6  # Largest vocabulary of the task `text`


class ConvertedLanguageModel:
    """A language model and its tokenizer, opened by `transformers`. Token indices are those of the run."""

    program = "transformers"

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer
        model.generation_config = type(model.generation_config)(pad_token_id=0)

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)  # a warning for texts longer than the model's context
        try:
            return [self._tokenizer(text).input_ids for text in texts]
        finally:
            logging.disable(before)

    def force(self, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return logits (B, T, V) of tokens (B, T), and the weights (B, H, T, T) of each layer."""
        output = self._model(input_ids=tokens, output_attentions=True, use_cache=False)
        return output.logits, list(output.attentions)

    def continue_greedily(self, prompts: Sequence[Sequence[int]], new: int) -> list[list[int]]:
        """Return the `new` most likely tokens after each prompt, chosen one by one."""
        longest = max(map(len, prompts))
        tokens = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.arange(longest) >= torch.tensor([longest - len(prompt) for prompt in prompts])[:, None]
        generated = self._model.generate(
            input_ids=tokens, attention_mask=mask.long(), max_new_tokens=new, max_length=None, do_sample=False
        )
        answers: list[list[int]] = generated[:, longest:].tolist()
        return answers


def read_language_model(folder: Path) -> ImportedModel:
    """Read a folder with a decoder-only model, written by `save_pretrained`. Only weights in safetensors files
    are read, and code in the folder is not run. Raises `InputError` if the folder is damaged or lacks weights
    or tokenizer, if Regard's decoder cannot represent the model, or if the extra `hub` is not installed."""
    _check_files(folder)
    model, tokenizer = load_language_model(folder)
    config = model.config
    family = FAMILIES[config.model_type]
    flags = family.read_settings(config)
    vocabulary = _read_tokenizer(folder, tokenizer, config.vocab_size)
    tied = model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    state = {name: tensor for name, tensor in model.state_dict().items() if not (tied and "lm_head" in name)}
    flags |= {"tied": tied, "tokenizer": "imported", "vocab_size": config.vocab_size, "valid_share": 1.0}
    # Settings that a run does not keep, and that its outputs do not show.
    for name in ("embd_pdrop", "attn_pdrop") if config.model_type == "gpt2" else ("attention_dropout",):
        rate, kept = getattr(config, name, 0.0), flags["dropout"]
        if rate and (name != "embd_pdrop" or rate != kept):
            line = f"{name} {rate} is left out, it matters only in training: dropout is {kept}"
            print_status(line, show=True)
    longest = getattr(config, "max_position_embeddings", flags["max_len"])
    if longest > flags["max_len"]:
        print_status(f"max_position_embeddings {longest:,} is cut to {flags['max_len']:,} tokens", show=True)
    return ImportedModel(
        flags,
        (vocabulary,),
        family.import_parameters(state, config, flags),
        lambda run: ConvertedLanguageModel(model, tokenizer),
        task="text",
    )


def _check_files(folder: Path) -> None:
    """Raise `InputError` for a folder with pickled weights only, without weights, or without a tokenizer.
    Without its files, transformers would build an empty tokenizer."""
    if not any(folder.glob("*.safetensors")):
        if any(folder.glob("pytorch_model*.bin*")):
            raise InputError(
                f"weights in {str(folder)!r} are pickled, which can run code: if you trust them, convert them"
                ' with python -c "import transformers as t; t.AutoModelForCausalLM.from_pretrained'
                f'({str(folder)!r}).save_pretrained({str(folder)!r})"'
            )
        raise InputError(f"{str(folder)!r} has no model.safetensors: {MEND}")
    if not any(all(is_file(folder / name) for name in names) for names in TOKENIZER_FILES):
        raise InputError(
            f"{str(folder)!r} has no tokenizer.json: save the model's tokenizer in the folder with "
            f"tokenizer.save_pretrained({str(folder)!r})"
        )


def load_language_model(folder: Path) -> tuple[Any, Any]:
    """Load a folder's model in float32 and its tokenizer. Raises `InputError` if transformers is not installed
    or cannot load the folder, and for missing or unknown parameters."""
    purpose, options = "a language model of Hugging Face", {"use_safetensors": True, "trust_remote_code": False}
    model, tokenizer, unexpected = load_pretrained(folder, "AutoModelForCausalLM", purpose, **options)
    unknown = [name for name in unexpected if not name.endswith(NO_WEIGHTS)]
    if unknown:
        raise InputError(
            f"parameter {unknown[0]} in {str(folder)!r} is not a parameter of {model.config.model_type} models: "
            "the model differs from its config, and cannot be imported"
        )
    return model, tokenizer


def _read_tokenizer(folder: Path, tokenizer: Any, size: int) -> ImportedTokenizer:
    if size > MAX_VOCABULARY:
        raise InputError(f"vocab_size {size:,} is too large: Regard supports up to {MAX_VOCABULARY:,}")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError(
            f"the tokenizer in {str(folder)!r} cannot be written as tokenizer.json: only such tokenizers can be "
            "imported"
        )
    special = {name: index for name in SPECIAL_TOKENS if (index := getattr(tokenizer, name)) is not None}
    try:
        return ImportedTokenizer(make_tokenizer(backend.to_str()), size, special)
    except DamageError as error:
        raise InputError(f"the tokenizer in {str(folder)!r} does not belong to the model: {error}; {MEND}") from error


USE = """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForCausalLM.from_pretrained("FOLDER")
output = model.generate(**tokenizer(["..."], return_tensors="pt", return_token_type_ids=False), max_new_tokens=20)
tokenizer.batch_decode(output, skip_special_tokens=True)
```"""
"""Usage instructions for the model card."""
REQUIRED: dict[str, dict[str, tuple[Any, ...]]] = {
    "GPT-2": {
        "pre_norm": (True,),
        "embedding_positions": ("learned", "none"),
        "activation": ("relu", "gelu", "gelu_tanh"),
    },
    "Llama": {"pre_norm": (True,), "embedding_positions": ("rotary",), "activation": ("swiglu",)},
}
"""Flags that models of each form require."""
NO_TOKEN = "<unknown>"  # Text of an unknown token in the tokenizer of a task without such a token, where it is an error


def check_language_model(run: Any) -> Family:
    """Return the form in which a run is exported. Raises `InputError` if neither GPT-2 nor Llama fits."""
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
    name = "Llama" if llama else "GPT-2"
    for flag, choices in REQUIRED[name].items():
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
    Raises `InputError` if Hugging Face's models cannot represent the run, or if the extra `hub` is not
    installed. Raises `MachineError` if the disk cannot be written."""
    transformers = import_library("transformers", "exporting to Hugging Face", "hub")
    family, config, task = check_language_model(run), run.config.model, run.task
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    special |= getattr(getattr(task, "tokenizer", None), "special", {})
    sizes = {"vocab_size": task.outputs, "tie_word_embeddings": config.tied, **special}
    layer = run.model.decoder.layers[0].self_attention
    inner = config.inner if config.feed_forward else 1
    with quiet_transformers(transformers):
        if family is GPT2_FAMILY:
            activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
            settings = transformers.GPT2Config(
                n_embd=config.hidden,
                n_layer=config.layers,
                n_head=config.heads,
                n_inner=inner,
                n_positions=task.longest,
                activation_function=activations[config.activation] if config.feed_forward else "relu",
                layer_norm_epsilon=config.norm_epsilon,
                resid_pdrop=config.dropout,
                embd_pdrop=config.dropout,
                attn_pdrop=0.0,
                **sizes,
            )
        else:
            settings = transformers.LlamaConfig(
                hidden_size=config.hidden,
                num_hidden_layers=config.layers,
                num_attention_heads=config.heads,
                num_key_value_heads=layer.groups,
                head_dim=config.head_width,
                intermediate_size=inner,
                max_position_embeddings=task.longest,
                rms_norm_eps=config.norm_epsilon,
                rope_parameters={"rope_type": "default", "rope_theta": layer.rotary.waves.base},
                attention_bias=config.bias,
                mlp_bias=config.bias,
                **sizes,
            )
        with torch.random.fork_rng(devices=[]):
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
    """Return the JSON of a tokenizer for text of many lines. A line feed is the token with the index of the end
    of sequence, and each line is tokenized separately."""
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
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    indices = {token: index for index, token in enumerate(task.vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(indices, unk_token=NO_TOKEN))
    if task.separator:
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
        tokenizer.decoder = decoders.Fuse()
    return tokenizer.to_str(pretty=True)

"""Import of a GPT-2 or Llama model of Hugging Face, with its tokenizer, as a run of the task `text`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from regard.convert.conversion import ImportedModel
from regard.convert.language_certificate import ConvertedLanguageModel
from regard.convert.language_models import FAMILIES, left_out
from regard.convert.transformers_model import load_pretrained
from regard.data.imported_tokenizer import SPECIAL_TOKENS, ImportedTokenizer
from regard.data.subwords import make_tokenizer
from regard.errors import InputError
from regard.io.reading import DamageError, is_file
from regard.progress import print_status

MEND = "download the folder again"
TOKENIZER_FILES = (("tokenizer.json",), ("vocab.json", "merges.txt"), ("tokenizer.model",))
"""Sets of files from which transformers builds a tokenizer."""
NO_WEIGHTS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")
"""Ends of the names of tensors in old files that are not parameters."""
MAX_VOCABULARY = 10**6
"""Largest vocabulary of the task `text`."""


def read_language_model(folder: Path) -> ImportedModel:
    """Read a folder with a decoder-only model, written by `save_pretrained`.

    Only weights in safetensors files are read, and code in the folder is not run. Raises `InputError` if the
    folder is damaged or lacks weights or tokenizer, if Regard's decoder cannot represent the model, or if the
    extra `hub` is not installed.
    """
    _check_files(folder)
    model, tokenizer = _load(folder)
    config = model.config
    family = FAMILIES[config.model_type]
    flags = family.read_settings(config)
    vocabulary = _read_tokenizer(folder, tokenizer, config.vocab_size)
    tied = model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    state = {name: tensor for name, tensor in model.state_dict().items() if not (tied and "lm_head" in name)}
    flags |= {"tied": tied, "tokenizer": "imported", "vocab_size": config.vocab_size, "valid_share": 1.0}
    for line in left_out(config, flags):
        print_status(line, show=True)
    return ImportedModel(
        flags,
        (vocabulary,),
        family.import_parameters(state, config, flags),
        lambda run: ConvertedLanguageModel(model, tokenizer),
        task="text",
    )


def _check_files(folder: Path) -> None:
    """Raise `InputError` for a folder with pickled weights only, without weights, or without a tokenizer.

    Without its files, transformers would build an empty tokenizer.
    """
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


def load_language_model(folder: Path) -> tuple[Any, Any, Mapping[str, Any]]:
    """Load a folder's model in float32, its tokenizer, and a report of its parameters.

    Raises `InputError` if transformers is not installed or cannot load the folder.
    """
    purpose, options = "a language model of Hugging Face", {"use_safetensors": True, "trust_remote_code": False}
    return load_pretrained(folder, "AutoModelForCausalLM", purpose, MEND, **options)


def _load(folder: Path) -> tuple[Any, Any]:
    """Load a folder's model and tokenizer; raises `InputError` for missing and for unknown parameters."""
    model, tokenizer, info = load_language_model(folder)
    if missing := sorted(info["missing_keys"]):
        raise InputError(f"{str(folder)!r} is damaged: {missing[0]} is missing from its weights; {MEND}")
    unknown = [name for name in sorted(info["unexpected_keys"]) if not name.endswith(NO_WEIGHTS)]
    if unknown:
        raise InputError(
            f"parameter {unknown[0]} in {str(folder)!r} is not a parameter of {model.config.model_type} models: "
            "the model differs from its config, and cannot be imported"
        )
    return model, tokenizer


def _read_tokenizer(folder: Path, tokenizer: Any, size: int) -> ImportedTokenizer:
    """Return a tokenizer of transformers for a model with `size` outputs."""
    if size > MAX_VOCABULARY:
        raise InputError(f"vocab_size {size:,} is too large: Regard supports up to {MAX_VOCABULARY:,}")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise InputError(
            f"the tokenizer in {str(folder)!r} cannot be written as tokenizer.json: only such tokenizers can be "
            "imported"
        )
    special = {name: getattr(tokenizer, name) for name in SPECIAL_TOKENS}
    try:
        return ImportedTokenizer(
            make_tokenizer(backend.to_str()),
            size,
            {name: index for name, index in special.items() if index is not None},
        )
    except DamageError as error:
        raise InputError(
            f"the tokenizer in {str(folder)!r} does not belong to the model: {error}; {MEND}"
        ) from error

"""`look`: turn a PyTorch module, a folder or a name on the Hugging Face Hub into a subject."""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from torch import nn

from regard.activations.modules import check_weights, find_base_model, is_transformers_model, parameter_names, unwrap
from regard.arguments import Limits, check_value, public
from regard.errors import InputError, shorten
from regard.external.adapters import (
    MAX_GENERATED,
    Adapter,
    CausalLMAdapter,
    ClassifierAdapter,
    CustomModel,
    EncoderAdapter,
    Loss,
    MaskedLMAdapter,
    NameSteps,
    Seq2SeqAdapter,
)
from regard.external.head_pruning import KEPT, pruned_class
from regard.external.model import ExternalModel
from regard.external.model_input import ImageProcessor, TextEncoder, as_inputs, load_image_processor
from regard.io import is_file, is_folder
from regard.libraries import check_hub_name, import_library, library_errors, offline
from regard.training.run_folder import is_run_folder, warn_not_finite

PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "pytorch_model.pt")
CONFIG = "config.json"
TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken")
"""Files of which a folder with a tokenizer contains at least one."""
TOKENIZER_METHODS = ("convert_ids_to_tokens", "get_vocab", "decode")
RELOAD = "fetch or copy the folder again"
NO_DOWNLOAD = "check the name, or add --download (in Python download=True) to fetch the model from the Hugging Face Hub"
HUB_TIMEOUT = 5.0
"""Timeout of requests to the Hub, in seconds."""
SIZES = {
    r"(^|_)(n_layers?|num_layers|hidden_layers|(en|de)coder_layers|depths?|blocks)$": Limits(0, 1000),
    r"^(n_heads?|num_heads|(num_|encoder_|decoder_)?attention_heads)$": Limits(1, 4096),
    r"heads$": Limits(0, 4096),
    r"vocab_size$": Limits(0, 10**7),
    r"^(hidden_size|d_model|n_embd|dim|embed_dim|d_ff|ffn_dim|intermediate_size)$": Limits(1, 10**6),
    r"^n_inner$": Limits(0, 10**6),
    r"(size|dim|width|experts|channels)$": Limits(-1, 10**7),
    r"positions$|^n_ctx$": Limits(-1, 10**8),
}
"""Possible sizes in a config of transformers, by patterns of names. -1 may mean that a size does not apply."""


@public
def look(
    model: nn.Module | str | Path | Any,
    tokenizer: Any = None,
    *,
    inputs: str | Iterable[Any] = (),
    loss: Loss | None = None,
    names: Callable[[Any], Sequence[str]] | None = None,
    modules: str | None = None,
    generate: Annotated[int, Limits(0, MAX_GENERATED)] = 0,
    trust_code: bool = False,
    download: bool = False,
) -> ExternalModel:
    """Return a model as a subject whose attention can be viewed, changed and analyzed.

    `model`: a module, a folder written by `save_pretrained`, or a name on the Hugging Face Hub (needs the extra `hub`).
    A model given by name is read from the local cache; only `download=True` fetches a model. PEFT adapters, weights
    offloaded by accelerate and `DataParallel` are supported. `tokenizer`: a tokenizer of transformers or tokenizers;
    or, for a custom module, a function that converts an input to the arguments of the module: a tensor, a tuple or a
    dict of tensors. `inputs`: default inputs: texts, pairs of source and target, images, or inputs of the function.
    `loss`: a function of the model and an input, instead of the model's own loss. `names`: a function that labels the
    steps of an input. `modules`: name pattern of modules through which weights pass, as in `regard.record`. `generate`:
    largest number of generated tokens. `trust_code`: run code that comes with a folder. Only weights in safetensors
    files are read. Raises `InputError` if the model cannot be loaded or its inputs are unknown.

        >>> import torch
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> subject = look(layer, lambda text: torch.ones(1, len(text.split()), 8), inputs=["The cat sat"])
        >>> [(layer.name, layer.heads) for layer in subject.layers]
        [('self_attn', 2)]
    """
    if not isinstance(model, nn.Module | str | Path):
        if isinstance(getattr(model, "model", None), nn.Module):
            raise InputError(f"{type(model).__name__} is a pipeline: pass its parts, look(pipe.model, pipe.tokenizer)")
        raise InputError(f"model: expected a torch module, a folder or a Hub name, got {shorten(str(model))}")
    where = type(unwrap(model)).__name__ if isinstance(model, nn.Module) else str(model)
    folder = None
    if not isinstance(model, nn.Module):
        folder = Path(model) if is_folder(Path(model)) else None
        model, tokenizer = _load(str(model), folder, tokenizer, trust_code=trust_code, download=download)
    model = unwrap(model)
    check_weights(model)
    model.eval()
    warn_not_finite(model.state_dict(), where)
    return ExternalModel(
        model=model,
        adapter=_choose_adapter(model, tokenizer, loss, names, folder),
        name=Path(where).name or where,
        where=where,
        inputs=as_inputs(inputs),
        modules=modules,
        generate=generate,
        folder=folder,
    )


def _choose_adapter(
    model: nn.Module, tokenizer: Any, loss: Loss | None, names: NameSteps | None, folder: Path | None
) -> Adapter:
    base = find_base_model(model)
    class_name = type(base).__name__
    if not is_transformers_model(base) or not (tokenizer is None or _is_tokenizer(tokenizer)):
        if is_transformers_model(base) and not callable(tokenizer):
            raise InputError(
                f"tokenizer {shorten(str(tokenizer))} is not a tokenizer: pass a tokenizer from "
                f"AutoTokenizer.from_pretrained, or a function from an input to the arguments of {class_name}"
            )
        if not callable(tokenizer) or _is_tokenizer(tokenizer):
            raise InputError(
                f"{class_name} is not a transformers model: pass look() a function that converts an input to tensors"
            )
        return CustomModel(tokenizer, loss, names)
    parameters = set(parameter_names(base))
    takes_images = "pixel_values" in parameters and "input_ids" not in parameters
    if not takes_images and "input_ids" not in parameters:  # a model of speech, or of time series
        raise InputError(
            f"{class_name} takes {base.main_input_name}, not texts or images: from Python, pass look() a "
            f"function that makes this input, instead of a tokenizer"
        )
    generates = getattr(base, "can_generate", lambda: False)()
    if {"pixel_values", "input_ids"} <= parameters and not generates:
        raise InputError(
            f"{class_name} takes a text and an image at once: from Python, pass look() a function that makes "
            f"both, instead of a tokenizer"
        )
    if tokenizer is None and not takes_images:
        raise InputError(f"{class_name} reads texts: pass its tokenizer to look()")
    inputs: TextEncoder | ImageProcessor = (
        load_image_processor(model.config, folder) if takes_images else TextEncoder(tokenizer)
    )
    if loss is not None:
        return CustomModel(lambda value: inputs.tensors(model, value), loss, names)
    if "Classification" in class_name:
        return ClassifierAdapter(inputs)
    if isinstance(inputs, TextEncoder):
        if getattr(model.config, "is_encoder_decoder", False) and generates:
            return Seq2SeqAdapter(inputs)
        if "MaskedLM" in class_name:
            return MaskedLMAdapter(inputs)
        if generates:
            return CausalLMAdapter(inputs)
    return EncoderAdapter(inputs)


def _is_tokenizer(value: Any) -> bool:
    return any(hasattr(value, name) for name in ("convert_ids_to_tokens", "id_to_token"))


def _load(name: str, folder: Path | None, tokenizer: Any, *, trust_code: bool, download: bool) -> tuple[nn.Module, Any]:
    """Load a model from a folder or by its Hub name; returns the model and its tokenizer (None without a tokenizer)."""
    if folder is not None:
        _check_folder(folder)
        purpose = f"to look at {name!r}"
    else:
        check_hub_name(name)
        purpose = f"a model {name!r} of the Hugging Face Hub"
        if find_spec("transformers") is None:
            raise InputError(
                f"{name!r} is not a folder: check the path. (Names on the Hugging Face Hub need the extra hub.)"
            )
    transformers = import_library("transformers", purpose, "hub")
    options: dict[str, Any] = {"trust_remote_code": trust_code}
    no_download = None
    if folder is None:
        no_download = _why_unreachable(name) if download else NO_DOWNLOAD
        options["local_files_only"] = no_download is not None
    logging: Any = transformers.utils.logging
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with (
            library_errors("transformers", f"{name!r} cannot be loaded", RELOAD, prints=folder is None),
            nullcontext() if folder is None and no_download is None else offline(),
        ):
            try:
                check_sizes(name, transformers.PretrainedConfig.get_config_dict(name, **options)[0])
                config = transformers.AutoConfig.from_pretrained(name, **options)
                model, info = _find_class(transformers, config, name, trust_code).from_pretrained(
                    name,
                    config=config,
                    use_safetensors=True,
                    dtype="float32",
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,
                    **options,
                )
                if tokenizer is None and "input_ids" in parameter_names(model):
                    tokenizer = _load_tokenizer(transformers, name, folder, options)
            except (OSError, ValueError) as error:
                explained = _explain(error, name, folder, no_download)
                if explained is None:
                    raise
                raise explained from error
    finally:
        logging.set_verbosity(verbosity)
    if info["mismatched_keys"]:
        parameter, stored, expected = sorted(info["mismatched_keys"])[0]
        raise InputError(
            f"{name!r} cannot be loaded: its weights have {parameter} {tuple(stored)}, but the sizes in its "
            f"config give {tuple(expected)}: correct {CONFIG}"
        )
    if missing := sorted(info["missing_keys"]):
        warnings.warn(
            f"{len(missing)} parameters are not in the weights of {name!r} and are random: {missing[0]}, ...",
            stacklevel=4,
        )
    return model, tokenizer


def check_sizes(name: str, config: Mapping[str, Any]) -> None:
    """Raise `InputError` for a size in a config.json with which no model can be built, at any depth."""
    for field, content in config.items():
        for value in content if isinstance(content, list | tuple) else [content]:
            if isinstance(value, Mapping):
                check_sizes(name, value)
                continue
            limits = next((limits for pattern, limits in SIZES.items() if re.search(pattern, field)), None)
            if limits is not None and isinstance(value, int | str) and not isinstance(value, bool):
                check_value(f"{name!r} cannot be loaded: its config has {field}", value, Annotated[int, limits])


def _explain(error: Exception, name: str, folder: Path | None, no_download: str | None) -> InputError | None:
    """Return a one-line error for an exception of transformers; None if its cause is unknown."""
    if "trust_remote_code" in str(error):
        return InputError(f"{name!r} contains its own code: read the code, and then add --trust_code")
    if not isinstance(error, OSError):
        return None
    if no_download is not None:
        return InputError(f"{name!r} is not a folder here, and the Hugging Face cache has no copy: {no_download}")
    if folder is None and "safetensors" in str(error):
        return InputError(
            f"{name!r} has no weights in safetensors, and pickled weights can run code: convert the weights first"
        )
    return None


def _load_tokenizer(transformers: Any, name: str, folder: Path | None, options: Mapping[str, Any]) -> Any:
    """Return the tokenizer of a model. Raises `InputError` for a folder without a tokenizer, for which transformers may
    build an empty tokenizer, and for an incomplete tokenizer class that the code in a folder defines."""
    if folder is not None and not any(path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)):
        raise InputError(
            f"folder {str(folder)!r} has no tokenizer: save the model's tokenizer in the folder with "
            f"tokenizer.save_pretrained({str(folder)!r}), or from Python pass a tokenizer to look()"
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
    missing = [method for method in TOKENIZER_METHODS if not hasattr(tokenizer, method)]
    if missing or not callable(tokenizer):
        raise InputError(
            f"tokenizer class {type(tokenizer).__name__} of {name!r} is not a transformers tokenizer (it has "
            f"no {(missing or ['__call__'])[0]}): name another class in tokenizer_config.json"
        )
    return tokenizer


def _why_unreachable(name: str) -> str | None:
    """Return the reason why a model cannot be fetched from the Hub; None if it can be fetched."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "the model cannot be fetched, because HF_HUB_OFFLINE is set"
    try:
        get_session().head(f"{constants.ENDPOINT}/{name}/resolve/main/{CONFIG}", timeout=HUB_TIMEOUT)
    except Exception as error:  # the HTTP client, and so its exceptions, depend on the version of huggingface_hub
        return f"it cannot be fetched: {shorten(' '.join(str(error).split()) or type(error).__name__, 100)}"
    return None


def _check_folder(folder: Path) -> None:
    """Raise `InputError` for a folder without a model, or with only pickled weights."""
    if is_run_folder(folder):
        raise InputError(f"{str(folder)!r} is a run of Regard: open it with `regard show {folder}`")
    if not is_file(folder / CONFIG):
        raise InputError(f"folder {str(folder)!r} has no {CONFIG}: give a folder written by save_pretrained")
    if any(folder.glob("*.safetensors")):
        return
    if any(is_file(folder / name) for name in PICKLED):
        raise InputError(
            f"weights in {str(folder)!r} are pickled, which can run code: if you trust them, convert them once"
            ' with python -c "import transformers as t; t.AutoModel.from_pretrained'
            f"({str(folder)!r}).save_pretrained('converted')\""
        )
    raise InputError(f"folder {str(folder)!r} has no weights: give a folder with model.safetensors")


def _find_class(transformers: Any, config: Any, name: str, trust_code: bool) -> Any:
    """Return the class of a model, its pruned class if heads were removed, or an auto class for trusted code."""
    architecture = (getattr(config, "architectures", None) or [""])[0]
    known = getattr(transformers, architecture.removeprefix("Pruned"), None)
    if known is not None:
        return known if getattr(config, KEPT, None) is None else pruned_class(known)
    if not trust_code:
        raise InputError(
            f"{name!r} is of class {architecture or 'unknown'!r}, which transformers does not know: the model "
            f"needs its own code; read that code, and then add --trust_code"
        )
    auto_map = getattr(config, "auto_map", None) or {}
    best = next((auto_class for auto_class in auto_map if auto_class.startswith("AutoModelFor")), "AutoModel")
    return getattr(transformers, best)

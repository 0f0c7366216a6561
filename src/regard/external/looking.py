"""`look`: a model that was not built here, however it is given, as a subject."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import nn

from regard.errors import InputError, begun, check_range
from regard.external.asked import all_asked
from regard.external.families import Family, Guesser, Pairs, Writer
from regard.external.interface import is_peer
from regard.external.model import MOST, ForeignModel
from regard.external.pictures import Pictures, pictures_of
from regard.external.readers import Loss, Name, OwnReader
from regard.external.removing import KEPT, pruned_kind
from regard.external.texts import Texts, parameters_of
from regard.external.whole import Classifier, States
from regard.external.wrappers import base_of, check_weights, unwrapped
from regard.io.reading import is_file, is_folder
from regard.libraries import calling, check_hub_name, import_library, offline
from regard.training.run_folder import is_run_folder
from regard.training.tensor_file import warn_not_finite

PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "pytorch_model.pt")
CONFIG = "config.json"
TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "*.tiktoken")
"""Files of which a folder with a tokenizer has one or more."""
ANEW = "fetch or copy the folder anew"
NEEDED = ("convert_ids_to_tokens", "get_vocab", "decode")
"""Methods of a tokenizer."""
NOT_ASKED = "check the name, or add --download (in Python download=True) to fetch it from the Hugging Face Hub"
PATIENCE = 5.0
"""Seconds to wait for it."""


def look(
    model: nn.Module | str | Path,
    tokenizer: Any = None,
    *,
    inputs: Iterable[Any] = (),
    loss: Loss | None = None,
    names: Callable[[Any], Sequence[str]] | None = None,
    at: str | None = None,
    generate: int = 0,
    trust_code: bool = False,
    download: bool = False,
) -> ForeignModel:
    """Return a model, whoever built it, as a subject: to be looked at, touched and asked.

    `model`: a module, or a folder as `save_pretrained` writes it, or the name of a model on the Hugging Face Hub
    (which needs the extra `hub`); of that, the copy in the local cache is used, and it is fetched only with
    `download`. A model with adapters of PEFT's is looked at with them, one that accelerate offloads where its
    weights are, and one in `DataParallel` without that.
    `tokenizer`: of transformers or tokenizers; or, for a module of one's own, a function that makes of an input
    what the module is called with: a tensor, a tuple or a dict of them.
    `inputs`: what it is asked over: texts, pairs of source and target, pictures, or what the function takes.
    `loss`: a function of the model and an input, instead of the model's own. `names`: a function that names the
    steps of an input. `at`: modules through which weights pass that nothing else sees, as in `regard.record`.
    `generate`: tokens that it writes at most. Code in a folder runs only with `trust_code`,
    and weights are read from safetensors alone. Raises `InputError` where any of that cannot be.
    """
    if not isinstance(model, nn.Module | str | Path):
        if isinstance(getattr(model, "model", None), nn.Module):
            raise InputError(
                f"{type(model).__name__} is a pipeline: give its parts, look(pipe.model, pipe.tokenizer)"
            )
        raise InputError(f"model {begun(str(model))} is none: give a module, a folder, or a name on the Hub")
    check_range("generate", generate, 0, MOST)
    where = type(unwrapped(model)).__name__ if isinstance(model, nn.Module) else str(model)
    folder = None
    if not isinstance(model, nn.Module):
        folder = Path(model) if is_folder(Path(model)) else None
        model, tokenizer = _loaded(str(model), folder, tokenizer, trust_code=trust_code, download=download)
    model = unwrapped(model)
    check_weights(model)
    model.eval()
    warn_not_finite(model.state_dict(), where)
    return ForeignModel(
        model=model,
        family=_family(model, tokenizer, loss, names, folder),
        name=Path(where).name or where,
        where=where,
        inputs=all_asked(inputs),
        at=at,
        generate=generate,
    )


def _family(
    model: nn.Module, tokenizer: Any, loss: Loss | None, names: Name | None, folder: Path | None
) -> Family:
    """Return how a model is fed, and what it answers."""
    base = base_of(model)
    if not is_peer(base) or not (tokenizer is None or _is_tokenizer(tokenizer)):
        kind = type(base).__name__
        if is_peer(base) and not callable(tokenizer):
            raise InputError(
                f"tokenizer {begun(str(tokenizer))} is none: give what AutoTokenizer.from_pretrained returns, or"
                f" a function from an input to what {kind} is called with"
            )
        if not callable(tokenizer) or _is_tokenizer(tokenizer):
            raise InputError(
                f"{kind} is no model of Hugging Face's: give look() a function that makes tensors of an input"
            )
        return OwnReader(tokenizer, loss, names)
    kind = type(base).__name__
    taken = parameters_of(base)
    pictures = "pixel_values" in taken and "input_ids" not in taken
    if not pictures and "input_ids" not in taken:  # one of speech, or of series
        raise InputError(
            f"{kind} takes {base.main_input_name}, neither texts nor pictures: from Python, give look() a"
            " function that makes them, instead of a tokenizer"
        )
    writes = getattr(base, "can_generate", lambda: False)()
    if {"pixel_values", "input_ids"} <= taken and not writes:
        raise InputError(
            f"{kind} takes a text and a picture at once: from Python, give look() a function that makes both,"
            " instead of a tokenizer"
        )
    if tokenizer is None and not pictures:
        raise InputError(f"{kind} reads texts: give look() its tokenizer")
    inputs: Texts | Pictures = pictures_of(model.config, folder) if pictures else Texts(tokenizer)
    if loss is not None:
        return OwnReader(lambda given: inputs.tensors(model, given), loss, names)
    if "Classification" in kind:
        return Classifier(inputs)
    if isinstance(inputs, Texts):
        if getattr(model.config, "is_encoder_decoder", False) and writes:
            return Pairs(inputs)
        if "MaskedLM" in kind:
            return Guesser(inputs)
        if writes:
            return Writer(inputs)
    return States(inputs)


def _is_tokenizer(each: Any) -> bool:
    return any(hasattr(each, name) for name in ("convert_ids_to_tokens", "id_to_token"))


def _loaded(
    name: str, folder: Path | None, tokenizer: Any, *, trust_code: bool, download: bool
) -> tuple[nn.Module, Any]:
    """Load a folder, or what has a name on the Hub; returns the model and its tokenizer, or None."""
    if folder is not None:
        _check(folder)
    else:
        check_hub_name(name)
    purpose = (
        f"{name!r} is no folder; a model of that name on the Hub" if folder is None else f"to look at {name!r}"
    )
    transformers = import_library("transformers", purpose, "hub")
    options: dict[str, Any] = {"trust_remote_code": trust_code}
    why = None
    if folder is None:
        why = _unreachable(name) if download else NOT_ASKED
        options["local_files_only"] = why is not None
    talk: Any = transformers.utils.logging
    said = talk.get_verbosity()
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        with (
            calling("transformers", f"{name!r} cannot be loaded", ANEW, prints=folder is None),
            nullcontext() if folder is None and why is None else offline(),
        ):
            try:
                config = transformers.AutoConfig.from_pretrained(name, **options)
                model, about = _kind(transformers, config, name, trust_code).from_pretrained(
                    name,
                    config=config,
                    use_safetensors=True,
                    dtype="float32",
                    output_loading_info=True,
                    **options,
                )
                taken = parameters_of(model)
                if tokenizer is None and "input_ids" in taken:
                    _check_tokenizer(folder)
                    tokenizer = transformers.AutoTokenizer.from_pretrained(name, **options)
                    _check_kind(tokenizer, name)
            except (OSError, ValueError) as error:
                if "trust_remote_code" in str(error):
                    raise InputError(
                        f"{name!r} needs code of its own: read it, and then say --trust-code"
                    ) from error
                if not isinstance(error, OSError):
                    raise
                if why is not None:  # nor was it fetched before
                    raise InputError(
                        f"{name!r} is not a folder here, and no copy is in the cache of Hugging Face: {why}"
                    ) from error
                if folder is None and "safetensors" in str(error):
                    what = f"{name!r} has no weights in safetensors, and pickled ones can run code"
                    raise InputError(f"{what}: convert them first") from error
                raise
    finally:
        talk.set_verbosity(said)
    if missing := sorted(about["missing_keys"]):
        warnings.warn(
            f"{len(missing)} parameters are not in the weights of {name!r} and are random: {missing[0]}, ...",
            stacklevel=3,
        )
    return model, tokenizer


def _check_kind(tokenizer: Any, name: str) -> None:
    """Raise `InputError` for a tokenizer, as code in a folder may name one, that lacks what one has."""
    lacking = [each for each in NEEDED if not hasattr(tokenizer, each)]
    if lacking or not callable(tokenizer):
        raise InputError(
            f"tokenizer class {type(tokenizer).__name__} of {name!r} is no tokenizer of transformers"
            f" (it has no {(lacking or ['__call__'])[0]}): name another in tokenizer_config.json"
        )


def _unreachable(name: str) -> str | None:
    """Return why a model cannot be fetched from the Hub, asked once; None where it can."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "it cannot be fetched, because HF_HUB_OFFLINE is set"
    try:
        get_session().head(f"{constants.ENDPOINT}/{name}/resolve/main/{CONFIG}", timeout=PATIENCE)
    except Exception as error:  # whatever client it works with
        return f"it cannot be fetched: {begun(' '.join(str(error).split()) or type(error).__name__, 100)}"
    return None


def _check(folder: Path) -> None:
    """Raise `InputError` for a folder that holds no model, or one whose weights are pickled."""
    if is_run_folder(folder):
        raise InputError(f"{str(folder)!r} is a run of Regard's: open it with `regard show {folder}`")
    if not is_file(folder / CONFIG):
        raise InputError(f"folder {str(folder)!r} has no {CONFIG}: give one as save_pretrained writes it")
    if any(folder.glob("*.safetensors")):
        return
    if any(is_file(folder / each) for each in PICKLED):
        raise InputError(
            f"weights in {str(folder)!r} are pickled, which can run code: where you trust them, convert them once"
            ' with python -c "import transformers as t; t.AutoModel.from_pretrained'
            f"({str(folder)!r}).save_pretrained('converted')\""
        )
    raise InputError(f"folder {str(folder)!r} has no weights: give one with model.safetensors")


def _check_tokenizer(folder: Path | None) -> None:
    """Raise `InputError` for a folder without a tokenizer: of some models, transformers makes an empty one up."""
    if folder is not None and not any(found for each in TOKENIZERS for found in folder.glob(each)):
        raise InputError(
            f"folder {str(folder)!r} has no tokenizer: put the model's there with tokenizer.save_pretrained"
            f"({str(folder)!r}), or from Python give look() one"
        )


def _kind(transformers: Any, config: Any, name: str, trust_code: bool) -> Any:
    """Return what builds a model: its own class, also where heads have been taken out, or an automatic one."""
    architecture = (getattr(config, "architectures", None) or [""])[0]
    known = getattr(transformers, architecture.removeprefix("Pruned"), None)
    if known is not None:
        return known if getattr(config, KEPT, None) is None else pruned_kind(known)
    if not trust_code:
        raise InputError(
            f"{name!r} is of class {architecture or 'unknown'!r}, which transformers does not know: it needs code"
            " of its own; read that, and then say --trust-code"
        )
    automatic = getattr(config, "auto_map", None) or {}
    best = next((each for each in automatic if each.startswith("AutoModelFor")), "AutoModel")
    return getattr(transformers, best)

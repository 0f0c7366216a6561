"""Import of a JoeyNMT 2 Transformer (Kreutzer et al. 2019) from its training folder.

JoeyNMT's Transformer has Regard's order of sines and cosines, biases in the attention projections, and a layer
norm epsilon of 1e-6. Checkpoints contain more than tensors and are read with `weights_only`, which runs no code.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.convert.certificate import token_log_probabilities
from regard.convert.conversion import (
    RESTORE,
    ExportableVocabulary,
    ForcedOutput,
    ImportedModel,
    check_equal,
    check_supported,
    hide_logs,
    name_damaged,
)
from regard.convert.parameters import (
    JOEYNMT,
    IndexMap,
    OuterWeights,
    Rows,
    check_tensors,
    convert_outer_weights,
    from_external,
    load_checkpoint,
    module_names,
)
from regard.data import BOS, PAD, PairBatch
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import vocabulary_from_symbols
from regard.errors import InputError
from regard.io.reading import damaged_file, is_file, read_bytes, read_text
from regard.libraries import library_errors
from regard.plugins import describe_error

INSTALL = "pip install --no-deps joeynmt==2.3.0 subword-nmt 'importlib_metadata<8' zipp"
ACTIVATIONS = ("relu", "gelu", "swish")
SETTINGS = {
    "hidden": "encoder.hidden_size",
    "heads": "encoder.num_heads",
    "enc_layers": "encoder.num_layers",
    "dec_layers": "decoder.num_layers",
    "inner": "encoder.ff_size",
}
"""Names of sizes in Regard and in JoeyNMT's configuration."""
SPECIAL = {"pad": (1, "<pad>"), "bos": (2, "<s>"), "eos": (3, "</s>"), "unk": (0, "<unk>")}
"""Default index and spelling of the special symbols, in Regard's order."""
LEVELS = {"word": "words", "char": "characters", "sentencepiece": "sentencepiece"}
"""Regard's names of JoeyNMT's tokenizers."""
STEPS = 5000
"""Number of positions in JoeyNMT's table."""
SCALAR: Any = np.float64(0).__reduce__()[0]
NUMPY: list[Any] = [
    *((SCALAR, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    *(np.dtype, type(np.dtype(np.float64)), type(np.dtype(np.int64))),
]
"""Classes of the values in a checkpoint that are not tensors: validation scores, written by NumPy 1 or 2."""


def read_joeynmt(folder: Path) -> ImportedModel:
    """Read a training folder: `config.yaml`, `best.ckpt`, `src_vocab.txt` and `trg_vocab.txt`.

    Raises `InputError` if the folder has no Transformer, if Regard's Transformer cannot represent the model, if
    a file is damaged, or if JoeyNMT (which the certificate needs) is not installed.
    """
    with library_errors("joeynmt", "the certificate needs joeynmt", INSTALL):
        import joeynmt.model  # noqa: F401
        import yaml
    try:
        config = yaml.safe_load(read_text(folder / "config.yaml", RESTORE))
        data, model = config["data"], config["model"]
        flags = _make_flags(model)
        sides = [_read_vocabulary(folder, data, side) for side in ("src", "trg")]
        scales = [_get_scale(model[side]["embeddings"], flags["hidden"]) for side in ("encoder", "decoder")]
        longest = max(int(data[side].get("max_length", -1)) for side in ("src", "trg"))
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise damaged_file(folder / "config.yaml", describe_error(error, 100), RESTORE) from error
    state = _read_state(folder)
    (source, source_rows), (target, target_rows) = sides
    if flags["joint"] and source_rows != target_rows:
        raise InputError(
            "tied_embeddings is on with two vocabularies: Regard needs one vocabulary per embedding matrix"
        )
    if flags["tied"] and scales[1] != 1:
        raise InputError("embeddings.scale is off with tied_softmax: Regard always scales embeddings")
    try:
        parameters = from_external(state, module_names(JOEYNMT, flags))
        source_matrix, target_matrix = (
            state[f"{side}_embed.lut.weight"] * scale for side, scale in zip(("src", "trg"), scales, strict=True)
        )
        outer = OuterWeights(source_matrix, target_matrix, state["decoder.output_layer.weight"])
    except KeyError as error:
        raise damaged_file(folder / "best.ckpt", f"it has no {error}", RESTORE) from error
    parameters |= convert_outer_weights(outer, (source_rows, target_rows), flags)
    flags |= {
        "tokenizer": get_tokenizer_kind(data["src"]),
        "vocab_size": max(len(source), len(target)),
        "max_len": min(longest if longest > 0 else 256, STEPS // 4 - 1),
        "lowercase": bool(data["src"].get("lowercase", False)),
    }
    opened = partial(JoeyNMTModel, folder=folder, config=config, state=state, rows=(source_rows, target_rows))
    return ImportedModel(flags, (source, target), parameters, lambda run: opened())


def _make_flags(model: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a model configuration to flags of Regard's Transformer.

    Raises `InputError` with the name of an unsupported setting.
    """
    sides = {side: {"activation": "relu", **model[side]} for side in ("encoder", "decoder")}
    for side, part in sides.items():
        if (kind := part.get("type", "recurrent")) != "transformer":
            raise InputError(f"{side}.type {kind} is not supported: only transformer can be imported")
        if part.get("layer_norm") not in ("pre", "post"):
            raise InputError(
                f"{side}.layer_norm is neither pre nor post: JoeyNMT's default mixes pre-norm and "
                "post-norm, which Regard does not support"
            )
        if (alpha := part.get("alpha", 1.0)) != 1:
            raise InputError(f"{side}.alpha {alpha} is not 1: Regard does not support weighted residuals")
        check_supported(f"{side}.activation", part["activation"], ACTIVATIONS)
    settings = {f"{side}.{name}": value for side, part in sides.items() for name, value in part.items()}
    check_equal(settings, ("layer_norm", "activation", "num_heads", "hidden_size", "ff_size"), ".")
    return {
        **{ours: settings[theirs] for ours, theirs in SETTINGS.items()},
        "activation": settings["encoder.activation"],
        "dropout": float(settings.get("encoder.dropout", 0.1)),
        "positions": "sinusoidal",
        "pre_norm": settings["encoder.layer_norm"] == "pre",
        "norm_epsilon": 1e-6,
        "bias": True,
        "tied": bool(model.get("tied_softmax", False)),
        "joint": bool(model.get("tied_embeddings", False)),
    }


def _get_scale(embeddings: Mapping[str, Any], width: int) -> float:
    """Return the factor on an embedding that undoes Regard's scaling by √D if JoeyNMT does not scale
    embeddings."""
    return 1.0 if embeddings.get("scale", False) else width**-0.5


def _read_state(folder: Path) -> dict[str, Tensor]:
    """Return the parameters of the best checkpoint, or of the latest checkpoint."""
    file = next((folder / name for name in ("best.ckpt", "latest.ckpt") if is_file(folder / name)), None)
    if file is None:
        raise InputError(f"{str(folder)!r} has no best.ckpt: give the folder of a model trained with JoeyNMT")
    state = load_checkpoint(file, NUMPY, lambda checkpoint: checkpoint["model_state"], RESTORE)
    return check_tensors(file, "model_state", state, RESTORE)


def get_tokenizer_kind(side: Mapping[str, Any]) -> str:
    """Return Regard's name of the tokenizer of a side; raises `InputError` for unsupported settings."""
    level = side["level"]
    if level == "bpe":
        level = side.get("tokenizer_type", side.get("bpe_type", "sentencepiece"))
    if level not in LEVELS:
        raise InputError(f"tokenizer_type {level} is not supported: use word, char or sentencepiece")
    if side.get("normalize", False):
        raise InputError("normalize is on: Regard does not support JoeyNMT's normalization")
    if (pretokenizer := side.get("tokenizer_cfg", {}).get("pretokenizer", "none")) != "none":
        raise InputError(f"pretokenizer {pretokenizer} is not supported: only none is")
    return LEVELS[level]


def _special_symbols(data: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Return the special symbols in Regard's order; raises `InputError` for further special symbols."""
    settings = data.get("special_symbols", {})
    for name in ("sep_token", "lang_tags"):
        if settings.get(name):
            raise InputError(f"special_symbols.{name} {settings[name]} is not supported: Regard has no prompts")
    return {
        name: (settings.get(f"{name}_id", number), settings.get(f"{name}_token", token))
        for name, (number, token) in SPECIAL.items()
    }


def _read_symbols(folder: Path, data: Mapping[str, Any], side: str) -> list[str]:
    """Return the symbols of a vocabulary file in the order of JoeyNMT's indices."""
    special = (token for _, token in sorted(_special_symbols(data).values()))
    return list(dict.fromkeys([*special, *read_text(folder / f"{side}_vocab.txt", RESTORE).splitlines()]))


def _read_vocabulary(folder: Path, data: Mapping[str, Any], side: str) -> tuple[ExportableVocabulary, Rows]:
    """Return the vocabulary of a side, and JoeyNMT's index of each symbol."""
    settings, symbols, special = data[side], _read_symbols(folder, data, side), _special_symbols(data)
    for number, token in special.values():
        if symbols[number] != token:
            raise damaged_file(
                folder / f"{side}_vocab.txt", f"symbol {number} of the file is not {token}", RESTORE
            )
    first = [number for number, _ in special.values()]
    rest = [number for number in range(len(symbols)) if number not in first]
    names = [symbols[number] for number in rest]
    kind, lowercase = get_tokenizer_kind(settings), bool(settings.get("lowercase", False))
    if kind != "sentencepiece":
        return vocabulary_from_symbols(names, words=kind == "words", lowercase=lowercase), [*first, *rest]
    file = _find_sentencepiece_file(folder, settings)
    with name_damaged(file, RESTORE):
        return SentencePieceVocabulary(read_bytes(file), names, lowercase=lowercase), [*first, *rest]


def _find_sentencepiece_file(folder: Path, settings: Mapping[str, Any]) -> Path:
    """Return the path of the SentencePiece model, which JoeyNMT copies to the training folder."""
    named = Path(settings["tokenizer_cfg"]["model_file"])
    return folder / named.name if is_file(folder / named.name) else named


class JoeyNMTModel:
    """A trained model opened by `joeynmt`, with parameters `state`; `rows`: JoeyNMT's indices of the run's
    symbols."""

    program = "joeynmt"
    missing: dict[str, str] = {}

    def __init__(
        self,
        *,
        folder: Path,
        config: Mapping[str, Any],
        state: Mapping[str, Tensor],
        rows: tuple[Rows, Rows],
    ) -> None:
        from joeynmt.model import build_model
        from joeynmt.tokenizers import _build_tokenizer
        from joeynmt.vocabulary import Vocabulary

        data = config["data"]
        named = _special_symbols(data)
        special = SimpleNamespace(
            **{f"{name}_id": number for name, (number, _) in named.items()},
            **{f"{name}_token": token for name, (_, token) in named.items()},
            sep_id=None,
            sep_token=None,
            lang_tags=[],
        )
        source, target = (Vocabulary(_read_symbols(folder, data, side), special) for side in ("src", "trg"))
        self._vocabulary, self._source, self._target = source, IndexMap(rows[0]), IndexMap(rows[1])
        side = {**data["src"], "tokenizer_cfg": dict(data["src"].get("tokenizer_cfg", {}))}
        if get_tokenizer_kind(side) == "sentencepiece":
            side["tokenizer_cfg"]["model_file"] = str(_find_sentencepiece_file(folder, side))
        with library_errors("joeynmt", f"{str(folder)!r} cannot be opened", RESTORE):
            self._tokenizer: Any = _build_tokenizer(side)
            try:
                self._tokenizer.set_vocab(source)
            except AttributeError as error:
                problem = f"joeynmt does not support this version of sentencepiece ({describe_error(error, 80)})"
                raise InputError(f"{problem}: pip install sentencepiece==0.2.0") from error
            with hide_logs():
                self._model: Any = build_model(dict(config["model"]), src_vocab=source, trg_vocab=target)
            self._model.load_state_dict(state)
        self._model.eval()

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts, without the end of sequence."""
        tokenized = [self._tokenizer(self._tokenizer.pre_process(text)) for text in texts]
        return [self._source.back([self._vocabulary.lookup(token) for token in tokens]) for tokens in tokenized]

    def force(self, batch: PairBatch) -> ForcedOutput:
        """Run the model on a batch with forced targets."""
        weights: dict[str, Tensor] = {}
        hooks = [
            module.softmax.register_forward_hook(partial(_store_weights, weights, _layer_name(name)))
            for name, module in self._model.named_modules()
            if hasattr(module, "softmax")
        ]
        mask = batch.source_mask.unsqueeze(1)
        memory, _ = self._model._encode(self._source.there[batch.source], batch.source_mask.sum(1), mask)
        target_mask = (batch.target_in != PAD).unsqueeze(1)
        output, *_ = self._model._decode(
            memory,
            None,
            mask,
            self._target.there[batch.target_in],
            batch.target_in.shape[1],
            trg_mask=target_mask,
        )
        for hook in hooks:
            hook.remove()
        logits = self._target.logits(output)
        return ForcedOutput(token_log_probabilities(logits, batch), logits, weights)

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Translate sources (B, Ts) to at most `most` tokens."""
        from joeynmt.search import beam_search, greedy

        mask = (source != PAD).unsqueeze(1)
        memory, _ = self._model._encode(self._source.there[source], mask.sum(-1).squeeze(1), mask)
        inputs = {"model": self._model, "encoder_output": memory, "encoder_hidden": None, "src_mask": mask}
        options = {"max_output_length": most, "generate_unk": False, "min_output_length": 0}
        hook = self._model.decoder.output_layer.register_forward_hook(self._exclude_padding)
        if beam == 1:
            answers, *_ = greedy(**inputs, **options)
        else:
            answers, *_ = beam_search(**inputs, **options, beam_size=beam, alpha=-1)
        hook.remove()
        rows = self._target.answers(np.asarray(answers).tolist())
        return [row[1:] if row[:1] == [BOS] else row for row in rows]

    def _exclude_padding(self, module: object, inputs: object, logits: Tensor) -> Tensor:
        """Exclude the padding symbol from the output, as in Regard; JoeyNMT itself does not."""
        del module, inputs
        return logits.index_fill(-1, self._target.there[[PAD]], -torch.inf)


def _store_weights(weights: dict[str, Tensor], name: str, module: object, inputs: object, output: Tensor) -> None:
    del module, inputs
    weights[name] = output


def _layer_name(name: str) -> str:
    """Return Regard's name of an attention layer."""
    layer, _, kind = name.rpartition(".")
    return f"{layer}.{'cross' if kind == 'src_trg_att' else 'self_attention'}"

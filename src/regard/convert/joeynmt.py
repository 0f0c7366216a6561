"""Import of a JoeyNMT 2 Transformer (Kreutzer et al. 2019) from the folder of its training.

JoeyNMT's Transformer has Regard's order of sines and cosines, biases in the attention projections, and a layer
norm epsilon of 1e-6. Checkpoints contain more than tensors and are read with `weights_only`, which runs no code.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.convert.certificate import ForcedOutput, token_log_probabilities
from regard.convert.huggingface_import import ImportedModel
from regard.convert.joeynmt_vocabulary import (
    MEND,
    find_sentencepiece_file,
    get_special_symbols,
    get_tokenizer_kind,
    read_symbols,
    read_vocabulary,
)
from regard.convert.parameters import IndexMap, ModuleMapping, Rows, from_external, load_checkpoint, select_rows
from regard.data import BOS, EOS, PAD, PairBatch
from regard.errors import InputError
from regard.io.reading import damaged_file, is_file, read_text
from regard.libraries import library_errors
from regard.plugins import describe_error

INSTALL = "pip install --no-deps joeynmt==2.3.0 subword-nmt 'importlib_metadata<8' zipp"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish"}
STEPS = 5000
"""Number of positions in JoeyNMT's table."""
SCALAR: Any = np.float64(0).__reduce__()[0]
NUMPY: list[Any] = [
    *((SCALAR, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    *(np.dtype, type(np.dtype(np.float64)), type(np.dtype(np.int64))),
]
"""Other classes in a checkpoint: validation scores, written by NumPy 1 or 2."""


def read_joeynmt(folder: Path) -> ImportedModel:
    """Read the folder of a training: `config.yaml`, `best.ckpt`, `src_vocab.txt` and `trg_vocab.txt`.

    Raises `InputError` if it has no Transformer, if Regard's cannot represent it, if a file is damaged, or if
    JoeyNMT is not installed, which the certificate needs.
    """
    with library_errors("joeynmt", "the certificate needs joeynmt", INSTALL):
        import joeynmt.model  # noqa: F401
        import yaml
    try:
        config = yaml.safe_load(read_text(folder / "config.yaml", MEND))
        data, model = config["data"], config["model"]
        flags = _make_flags(model)
        sides = [read_vocabulary(folder, data, side) for side in ("src", "trg")]
        scales = [_get_scale(model[side]["embeddings"], flags["hidden"]) for side in ("encoder", "decoder")]
        longest = max(int(data[side].get("max_length", -1)) for side in ("src", "trg"))
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise damaged_file(folder / "config.yaml", describe_error(error, 100), MEND) from error
    state = _read_state(folder)
    (source, source_rows), (target, target_rows) = sides
    try:
        parameters = from_external(state, _modules(flags), torch.arange(flags["hidden"]))
        embeddings = {name: state[f"{name}_embed.lut.weight"] for name in ("src", "trg")}
        output = state["decoder.output_layer.weight"]
    except KeyError as error:
        raise damaged_file(folder / "best.ckpt", f"it has no {error}", MEND) from error
    if flags["joint"] and source_rows != target_rows:
        raise InputError(
            "tied_embeddings is on with two vocabularies: Regard needs one vocabulary per embedding matrix"
        )
    parameters["target_embedding.weight"] = select_rows(embeddings["trg"], target_rows) * scales[1]
    if not flags["joint"]:
        parameters["source_embedding.weight"] = select_rows(embeddings["src"], source_rows) * scales[0]
    if flags["tied"] and scales[1] != 1:
        raise InputError("embeddings.scale is off with tied_softmax: Regard always scales embeddings")
    if not flags["tied"]:
        parameters["output.weight"] = select_rows(output, target_rows)
    flags |= {
        "tokenizer": get_tokenizer_kind(data["src"]),
        "vocab_size": max(len(source), len(target)),
        "max_len": min(longest if longest > 0 else 256, STEPS // 4 - 1),
        "lowercase": bool(data["src"].get("lowercase", False)),
    }
    opened = partial(JoeyNMTModel, folder=folder, config=config, state=state, rows=(source_rows, target_rows))
    return ImportedModel(flags, (source, target), parameters, opened)


def _make_flags(model: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a model configuration to flags of Regard's Transformer.

    Raises `InputError` with the name of an unsupported setting.
    """
    encoder, decoder = model["encoder"], model["decoder"]
    for side, part in (("encoder", encoder), ("decoder", decoder)):
        if part.get("type", "recurrent") != "transformer":
            kind = part.get("type", "recurrent")
            raise InputError(f"{side}.type {kind} is not supported: only transformer can be imported")
        if part.get("layer_norm") not in ("pre", "post"):
            raise InputError(
                f"{side}.layer_norm is neither pre nor post: JoeyNMT's default mixes them, which Regard does "
                "not support"
            )
        if (alpha := part.get("alpha", 1.0)) != 1:
            raise InputError(f"{side}.alpha {alpha} is not 1: Regard does not support weighted residuals")
        if (activation := part.get("activation", "relu")) not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise InputError(f"{side}.activation {activation} is not supported: choose {known}")
    for name in ("layer_norm", "activation", "num_heads", "hidden_size", "ff_size"):
        ours, theirs = encoder.get(name, "relu"), decoder.get(name, "relu")  # activation's default
        if ours != theirs:
            raise InputError(
                f"decoder.{name} {theirs} differs from encoder.{name} {ours}: Regard needs equal values"
            )
    return {
        "hidden": encoder["hidden_size"],
        "heads": encoder["num_heads"],
        "enc_layers": encoder["num_layers"],
        "dec_layers": decoder["num_layers"],
        "inner": encoder["ff_size"],
        "activation": ACTIVATIONS[encoder.get("activation", "relu")],
        "dropout": float(encoder.get("dropout", 0.1)),
        "positions": "sinusoidal",
        "pre_norm": encoder["layer_norm"] == "pre",
        "norm_epsilon": 1e-6,
        "bias": True,
        "tied": bool(model.get("tied_softmax", False)),
        "joint": bool(model.get("tied_embeddings", False)),
    }


def _get_scale(embeddings: Mapping[str, Any], width: int) -> float:
    """Return the factor of an embedding that undoes Regard's scaling by √D if JoeyNMT does not scale."""
    return 1.0 if embeddings.get("scale", False) else width**-0.5


def _modules(flags: Mapping[str, Any]) -> Iterator[ModuleMapping]:
    """Yield all modules of JoeyNMT's Transformer except embeddings and output layer."""
    for side in ("encoder", "decoder"):
        for number in range(flags[f"{side[:3]}_layers"]):
            name = f"{side}.layers.{number}"
            if side == "encoder":
                yield from _attention(f"{name}.src_src_att", f"{name}.self_attention")
                yield ModuleMapping(f"{name}.layer_norm", f"{name}.attention_residual.norm")
            else:
                yield from _attention(f"{name}.trg_trg_att", f"{name}.self_attention")
                yield from _attention(f"{name}.src_trg_att", f"{name}.cross")
                yield ModuleMapping(f"{name}.x_layer_norm", f"{name}.self_residual.norm")
                yield ModuleMapping(f"{name}.dec_layer_norm", f"{name}.cross_residual.norm")
            yield ModuleMapping(f"{name}.feed_forward.pwff_layer.0", f"{name}.feed_forward.inner")
            yield ModuleMapping(f"{name}.feed_forward.pwff_layer.3", f"{name}.feed_forward.outer")
            yield ModuleMapping(f"{name}.feed_forward.layer_norm", f"{name}.feed_forward_residual.norm")
        if flags["pre_norm"]:
            yield ModuleMapping(f"{side}.layer_norm", f"{side}.norm")


def _attention(theirs: str, ours: str) -> Iterator[ModuleMapping]:
    for name in ("query", "key", "value", "output"):
        letter = "output" if name == "output" else name[0]
        yield ModuleMapping(f"{theirs}.{letter}_layer", f"{ours}.{name}")


def _read_state(folder: Path) -> dict[str, Tensor]:
    """Return the parameters of the best checkpoint, or of the latest."""
    file = next((folder / name for name in ("best.ckpt", "latest.ckpt") if is_file(folder / name)), None)
    if file is None:
        raise InputError(f"{str(folder)!r} has no best.ckpt: give the folder of a JoeyNMT training")
    state = load_checkpoint(file, NUMPY, lambda checkpoint: checkpoint["model_state"], MEND)
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise damaged_file(file, "its model_state holds more than tensors", MEND)
    return {name: tensor.float() for name, tensor in state.items()}


class JoeyNMTModel:
    """A trained model opened by `joeynmt`, with its parameters `state` and its indices `rows` of the run's
    symbols."""

    program = "joeynmt"
    missing: dict[str, str] = {}

    def __init__(
        self,
        run: object,
        *,
        folder: Path,
        config: Mapping[str, Any],
        state: Mapping[str, Tensor],
        rows: tuple[Rows, Rows],
    ) -> None:
        from joeynmt.model import build_model
        from joeynmt.tokenizers import _build_tokenizer
        from joeynmt.vocabulary import Vocabulary

        del run
        data = config["data"]
        named = get_special_symbols(data)
        special = SimpleNamespace(
            **{f"{name}_id": number for name, (number, _) in named.items()},
            **{f"{name}_token": token for name, (_, token) in named.items()},
            sep_id=None,
            sep_token=None,
            lang_tags=[],
        )
        source, target = (Vocabulary(read_symbols(folder, data, side), special) for side in ("src", "trg"))
        self._vocabulary, self._source, self._target = source, IndexMap(rows[0]), IndexMap(rows[1])
        side = {**data["src"], "tokenizer_cfg": dict(data["src"].get("tokenizer_cfg", {}))}
        if get_tokenizer_kind(side) == "sentencepiece":
            side["tokenizer_cfg"]["model_file"] = str(find_sentencepiece_file(folder, side))
        with library_errors("joeynmt", f"{str(folder)!r} cannot be opened", MEND):
            self._tokenizer: Any = _build_tokenizer(side)
            try:
                self._tokenizer.set_vocab(source)
            except AttributeError as error:
                problem = f"joeynmt does not support this version of sentencepiece ({describe_error(error, 80)})"
                raise InputError(f"{problem}: pip install sentencepiece==0.2.0") from error
            with _silence():
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
        rows = [self._target.back(row) for row in np.asarray(answers).tolist()]
        rows = [row[1:] if row[:1] == [BOS] else row for row in rows]
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]

    def _exclude_padding(self, module: object, inputs: object, logits: Tensor) -> Tensor:
        """Exclude padding from the output, as Regard does. JoeyNMT relies on training for that."""
        del module, inputs
        return logits.index_fill(-1, self._target.there[[PAD]], -torch.inf)


@contextmanager
def _silence() -> Iterator[None]:
    """Hide JoeyNMT's log messages except errors."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _store_weights(weights: dict[str, Tensor], name: str, module: object, inputs: object, output: Tensor) -> None:
    del module, inputs
    weights[name] = output


def _layer_name(name: str) -> str:
    """Return Regard's name of an attention layer."""
    layer, _, kind = name.rpartition(".")
    return f"{layer}.{'cross' if kind == 'src_trg_att' else 'self_attention'}"

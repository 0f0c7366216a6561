"""Models of JoeyNMT 2 (Kreutzer et al. 2019) on their way in: the folder of a training, as a Transformer of ours.

Its Transformer has our order of the width, biases in the projections of attention, and adds 1e-6 to the variance.
Checkpoints hold more than tensors; they are read as `weights_only`, which runs nothing of theirs.
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

from regard.convert.arriving import Arrived
from regard.convert.certificate import Forced, token_log_probabilities
from regard.convert.joeytext import MEND, kind_of, pieces_of, special_of, symbols_of, vocabulary_of
from regard.convert.parameters import Numbering, Renamed, Rows, load_checkpoint, rows_of, to_ours
from regard.data import BOS, EOS, PAD, PairBatch
from regard.errors import InputError
from regard.io.reading import damaged_file, is_file, read_text
from regard.libraries import library_errors
from regard.plugins import describe_error

INSTALL = "pip install --no-deps joeynmt==2.3.0 subword-nmt 'importlib_metadata<8' zipp"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish"}
STEPS = 5000
"""Positions that JoeyNMT knows."""
SCALAR: Any = np.float64(0).__reduce__()[0]
NUMPY: list[Any] = [
    *((SCALAR, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")),
    *(np.dtype, type(np.dtype(np.float64)), type(np.dtype(np.int64))),
]
"""What a checkpoint holds besides tensors: figures of its validations, from before NumPy 2 or since."""


def read_joeynmt(folder: Path) -> Arrived:
    """Read the folder of a training: `config.yaml`, `best.ckpt`, `src_vocab.txt` and `trg_vocab.txt`.

    Raises `InputError` where it holds no Transformer, one that ours cannot be, or damaged files; and where
    JoeyNMT is not installed, without which there is no certificate.
    """
    with library_errors("joeynmt", "the certificate needs joeynmt", INSTALL):
        import joeynmt.model  # noqa: F401
        import yaml
    try:
        config = yaml.safe_load(read_text(folder / "config.yaml", MEND))
        data, model = config["data"], config["model"]
        flags = _settings(model)
        sides = [vocabulary_of(folder, data, side) for side in ("src", "trg")]
        scales = [_scale(model[side]["embeddings"], flags["hidden"]) for side in ("encoder", "decoder")]
        longest = max(int(data[side].get("max_length", -1)) for side in ("src", "trg"))
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise damaged_file(folder / "config.yaml", describe_error(error, 100), MEND) from error
    state = _state(folder)
    (source, source_rows), (target, target_rows) = sides
    try:
        found = to_ours(state, _modules(flags), torch.arange(flags["hidden"]))
        embeddings = {name: state[f"{name}_embed.lut.weight"] for name in ("src", "trg")}
        output = state["decoder.output_layer.weight"]
    except KeyError as error:
        raise damaged_file(folder / "best.ckpt", f"it has no {error}", MEND) from error
    if flags["joint"] and source_rows != target_rows:
        raise InputError("tied_embeddings is on with two vocabularies: one matrix has one vocabulary here")
    found["target_embedding.weight"] = rows_of(embeddings["trg"], target_rows) * scales[1]
    if not flags["joint"]:
        found["source_embedding.weight"] = rows_of(embeddings["src"], source_rows) * scales[0]
    if flags["tied"] and scales[1] != 1:
        raise InputError("embeddings.scale is off with tied_softmax: embeddings are always scaled here")
    if not flags["tied"]:
        found["output.weight"] = rows_of(output, target_rows)
    flags |= {
        "tokenizer": kind_of(data["src"]),
        "vocab_size": max(len(source), len(target)),
        "max_len": min(longest if longest > 0 else 256, STEPS // 4 - 1),
        "lowercase": bool(data["src"].get("lowercase", False)),
    }
    opened = partial(InJoeyNMT, folder=folder, config=config, state=state, rows=(source_rows, target_rows))
    return Arrived(flags, (source, target), found, opened)


def _settings(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags of a Transformer that is the model of a configuration.

    Raises `InputError`, which names the setting, for a model that ours cannot be.
    """
    encoder, decoder = model["encoder"], model["decoder"]
    for side, part in (("encoder", encoder), ("decoder", decoder)):
        if part.get("type", "recurrent") != "transformer":
            kind = part.get("type", "recurrent")
            raise InputError(f"{side}.type {kind} is not transformer: no other is imported")
        if part.get("layer_norm") not in ("pre", "post"):
            raise InputError(
                f"{side}.layer_norm is neither pre nor post: JoeyNMT's default mixes them, which ours cannot"
            )
        if (alpha := part.get("alpha", 1.0)) != 1:
            raise InputError(f"{side}.alpha {alpha} is not 1: residuals have no weights here")
        if (activation := part.get("activation", "relu")) not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise InputError(f"{side}.activation {activation} is unknown here: there are {known}")
    for name in ("layer_norm", "activation", "num_heads", "hidden_size", "ff_size"):
        one, other = encoder.get(name, "relu"), decoder.get(name, "relu")  # activation's default
        if one != other:
            raise InputError(f"decoder.{name} {other} is not encoder.{name} {one}: they are one setting here")
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


def _scale(embeddings: Mapping[str, Any], width: int) -> float:
    """Return by what an embedding is to be multiplied, as it is always scaled by √D here."""
    return 1.0 if embeddings.get("scale", False) else width**-0.5


def _modules(flags: Mapping[str, Any]) -> Iterator[Renamed]:
    """Yield all modules of JoeyNMT's Transformer but its embeddings and its output layer."""
    for side in ("encoder", "decoder"):
        for number in range(flags[f"{side[:3]}_layers"]):
            name = f"{side}.layers.{number}"
            if side == "encoder":
                yield from _attention(f"{name}.src_src_att", f"{name}.self_attention")
                yield Renamed(f"{name}.layer_norm", f"{name}.attention_residual.norm")
            else:
                yield from _attention(f"{name}.trg_trg_att", f"{name}.self_attention")
                yield from _attention(f"{name}.src_trg_att", f"{name}.cross")
                yield Renamed(f"{name}.x_layer_norm", f"{name}.self_residual.norm")
                yield Renamed(f"{name}.dec_layer_norm", f"{name}.cross_residual.norm")
            yield Renamed(f"{name}.feed_forward.pwff_layer.0", f"{name}.feed_forward.inner")
            yield Renamed(f"{name}.feed_forward.pwff_layer.3", f"{name}.feed_forward.outer")
            yield Renamed(f"{name}.feed_forward.layer_norm", f"{name}.feed_forward_residual.norm")
        if flags["pre_norm"]:
            yield Renamed(f"{side}.layer_norm", f"{side}.norm")


def _attention(theirs: str, ours: str) -> Iterator[Renamed]:
    for name in ("query", "key", "value", "output"):
        letter = "output" if name == "output" else name[0]
        yield Renamed(f"{theirs}.{letter}_layer", f"{ours}.{name}")


def _state(folder: Path) -> dict[str, Tensor]:
    """Return the parameters of the best checkpoint, or else of the latest."""
    file = next((folder / each for each in ("best.ckpt", "latest.ckpt") if is_file(folder / each)), None)
    if file is None:
        raise InputError(f"{str(folder)!r} has no best.ckpt: give the folder that JoeyNMT trained into")
    found = load_checkpoint(file, NUMPY, lambda checkpoint: checkpoint["model_state"], MEND)
    if not isinstance(found, dict) or not all(isinstance(each, Tensor) for each in found.values()):
        raise damaged_file(file, "its model_state holds more than tensors", MEND)
    return {name: each.float() for name, each in found.items()}


class InJoeyNMT:
    """A training's model, opened by `joeynmt`; `state` are its parameters, `rows` its numbers of our symbols."""

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
        named = special_of(data)
        special = SimpleNamespace(
            **{f"{name}_id": number for name, (number, _) in named.items()},
            **{f"{name}_token": token for name, (_, token) in named.items()},
            sep_id=None,
            sep_token=None,
            lang_tags=[],
        )
        source, target = (Vocabulary(symbols_of(folder, data, side), special) for side in ("src", "trg"))
        self._vocabulary, self._source, self._target = source, Numbering(rows[0]), Numbering(rows[1])
        about = {**data["src"], "tokenizer_cfg": dict(data["src"].get("tokenizer_cfg", {}))}
        if kind_of(about) == "sentencepiece":
            about["tokenizer_cfg"]["model_file"] = str(pieces_of(folder, about))
        with library_errors("joeynmt", f"{str(folder)!r} cannot be opened", MEND):
            self._tokenizer: Any = _build_tokenizer(about)
            try:
                self._tokenizer.set_vocab(source)
            except AttributeError as error:
                said = f"joeynmt does not know this sentencepiece ({describe_error(error, 80)})"
                raise InputError(f"{said}: pip install sentencepiece==0.2.0") from error
            with _silence():
                self._model: Any = build_model(dict(config["model"]), src_vocab=source, trg_vocab=target)
            self._model.load_state_dict(state)
        self._model.eval()

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of texts, without the end of sequence."""
        cut = [self._tokenizer(self._tokenizer.pre_process(text)) for text in texts]
        return [self._source.back([self._vocabulary.lookup(token) for token in tokens]) for tokens in cut]

    def force(self, batch: PairBatch) -> Forced:
        """Feed a batch's targets."""
        weights: dict[str, Tensor] = {}
        hooks = [
            module.softmax.register_forward_hook(partial(_keep, weights, _ours(name)))
            for name, module in self._model.named_modules()
            if hasattr(module, "softmax")
        ]
        mask = batch.source_mask.unsqueeze(1)
        memory, _ = self._model._encode(self._source.there[batch.source], batch.source_mask.sum(1), mask)
        seen = (batch.target_in != PAD).unsqueeze(1)
        found, *_ = self._model._decode(
            memory, None, mask, self._target.there[batch.target_in], batch.target_in.shape[1], trg_mask=seen
        )
        for hook in hooks:
            hook.remove()
        logits = self._target.logits(found)
        return Forced(token_log_probabilities(logits, batch), logits, weights)

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Answer sources (B, Ts) with at most `most` tokens."""
        from joeynmt.search import beam_search, greedy

        mask = (source != PAD).unsqueeze(1)
        memory, _ = self._model._encode(self._source.there[source], mask.sum(-1).squeeze(1), mask)
        given = {"model": self._model, "encoder_output": memory, "encoder_hidden": None, "src_mask": mask}
        options = {"max_output_length": most, "generate_unk": False, "min_output_length": 0}
        hook = self._model.decoder.output_layer.register_forward_hook(self._without_padding)
        if beam == 1:
            found, *_ = greedy(**given, **options)
        else:
            found, *_ = beam_search(**given, **options, beam_size=beam, alpha=-1)
        hook.remove()
        rows = [self._target.back(row) for row in np.asarray(found).tolist()]
        rows = [row[1:] if row[:1] == [BOS] else row for row in rows]
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]

    def _without_padding(self, module: object, given: object, logits: Tensor) -> Tensor:
        """Return logits by which padding is never written, as here; JoeyNMT leaves that to the training."""
        del module, given
        return logits.index_fill(-1, self._target.there[[PAD]], -torch.inf)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep JoeyNMT's log, which would go to the terminal, to what is wrong."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _keep(weights: dict[str, Tensor], name: str, module: object, given: object, found: Tensor) -> None:
    del module, given
    weights[name] = found


def _ours(name: str) -> str:
    """Return what we call one of its attention layers."""
    layer, _, kind = name.rpartition(".")
    return f"{layer}.{'cross' if kind == 'src_trg_att' else 'self_attention'}"

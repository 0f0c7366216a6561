"""A model that `transformers` feeds and searches with, for certificates."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.convert.certificate import ForcedOutput, token_log_probabilities
from regard.convert.conversion import Exportable
from regard.convert.parameters import IndexMap, Rows
from regard.data import BOS, EOS, PAD, UNKNOWN, PairBatch
from regard.errors import InputError
from regard.libraries import import_library, library_errors, offline


class TransformersModel:
    """An encoder and decoder of `transformers`; `source` and `target` number its vocabularies' symbols.

    Subclasses define `read`, which cuts text.
    """

    program = "transformers"
    missing: Mapping[str, str] = {}

    def __init__(self, model: Any, source: IndexMap, target: IndexMap) -> None:
        self.model, self.source, self.target = model, source, target
        pad, begin, end, unknown = target.there[[PAD, BOS, EOS, UNKNOWN]].tolist()
        generation: Any = type(model.generation_config)
        model.generation_config = generation(
            pad_token_id=pad,
            eos_token_id=end,
            decoder_start_token_id=begin,
            suppress_tokens=sorted({pad, begin, unknown} - {end}),  # what begins a target may end it too
        )

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of texts, without the end of sequence."""
        raise NotImplementedError

    def force(self, batch: PairBatch) -> ForcedOutput:
        """Feed a batch's targets."""
        found = self.model(
            input_ids=self.source.there[batch.source],
            attention_mask=batch.source_mask.long(),
            decoder_input_ids=self.target.there[batch.target_in],
            output_attentions=True,
            use_cache=False,
        )
        kinds = (
            ("encoder.layers.{}.self_attention", found.encoder_attentions),
            ("decoder.layers.{}.self_attention", found.decoder_attentions),
            ("decoder.layers.{}.cross", found.cross_attentions),
        )
        weights = {name.format(layer): each for name, layers in kinds for layer, each in enumerate(layers)}
        logits = self.target.logits(found.logits)
        return ForcedOutput(token_log_probabilities(logits, batch), logits, weights)

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Answer sources (B, Ts) with at most `most` tokens."""
        mask = (source != PAD).long()
        options = {"num_beams": beam, **({"length_penalty": 0.0, "early_stopping": False} if beam > 1 else {})}
        found = self.model.generate(
            input_ids=self.source.there[source],
            attention_mask=mask,
            max_new_tokens=most,
            max_length=None,
            do_sample=False,
            **options,
        )
        rows = [self.target.back(row[1:]) for row in found.tolist()]
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]


class MarianModel(TransformersModel):
    """A folder with a Marian model and its tokenizer, opened by `transformers`.

    `rows`: their index of each of our symbols, of the source's vocabulary and of the target's; None where they
    are the same.
    """

    def __init__(self, run: Exportable, folder: Path, rows: tuple[Rows, Rows] | None = None) -> None:
        vocabularies = run.task.source_vocabulary, run.task.target_vocabulary
        source, target = rows or tuple(range(len(each)) for each in vocabularies)
        model, self._tokenizer = load_marian(folder)
        super().__init__(model, IndexMap(source), IndexMap(target))

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of texts, without the end of sequence."""
        found: list[list[int]] = self._tokenizer(list(texts)).input_ids
        return [self.source.back(each[:-1]) for each in found]


def load_marian(folder: Path) -> tuple[Any, Any]:
    """Return a folder's Marian model, in float32, and its tokenizer; none of its code is run, nothing unpickled.

    Raises `InputError` where transformers is not installed, or cannot load it.
    """
    transformers = import_library("transformers", "importing a model of Hugging Face", "hub")
    what = f"{str(folder)!r} cannot be loaded"
    with library_errors("transformers", what, "fetch it anew"), offline(), quiet_transformers(transformers):
        marian: Any = transformers.MarianMTModel
        model, about = marian.from_pretrained(
            folder,
            attn_implementation="eager",
            dtype=torch.float32,
            local_files_only=True,
            weights_only=True,
            output_loading_info=True,
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, split_special_tokens=True
        )
    lacking = [name for name in about["missing_keys"] if "embed_positions" not in name]
    if lacking:
        raise InputError(f"{str(folder)!r} is damaged: {lacking[0]} is missing from its weights; fetch it anew")
    return model.eval(), tokenizer


@contextmanager
def quiet_transformers(transformers: Any) -> Iterator[None]:
    """Keep bars and warnings of the library, which say nothing that is not checked here, from the terminal."""
    talk = transformers.utils.logging
    said, bars = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")  # nothing of it is asked
            yield
    finally:
        talk.set_verbosity(said)
        if bars:
            talk.enable_progress_bar()

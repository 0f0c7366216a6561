"""Models opened by the library `transformers`, for the comparison in a certificate."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.convert.certificate import token_log_probabilities
from regard.convert.conversion import ForcedOutput
from regard.convert.exportable import Exportable
from regard.convert.parameters import IndexMap, Rows
from regard.data.batch import PairBatch
from regard.data.vocabulary import BOS, EOS, PAD, UNKNOWN
from regard.errors import InputError
from regard.libraries import import_library, library_errors, offline


class TransformersModel:
    """An encoder-decoder of `transformers`. `source` and `target` map the model's token indices to the run's.

    Subclasses define `read`, the tokenizer.
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
            suppress_tokens=sorted({pad, begin, unknown} - {end}),  # the start symbol may also be the end symbol
        )

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts, without the end of sequence."""
        raise NotImplementedError

    def force(self, batch: PairBatch) -> ForcedOutput:
        """Run the model on a batch with forced targets."""
        output = self.model(
            input_ids=self.source.there[batch.source],
            attention_mask=batch.source_mask.long(),
            decoder_input_ids=self.target.there[batch.target_in],
            output_attentions=True,
            use_cache=False,
        )
        kinds = (
            ("encoder.{}.self_attention", output.encoder_attentions),
            ("decoder.{}.self_attention", output.decoder_attentions),
            ("decoder.{}.cross", output.cross_attentions),
        )
        weights = {name.format(number): layer for name, layers in kinds for number, layer in enumerate(layers)}
        logits = self.target.logits(output.logits)
        return ForcedOutput(token_log_probabilities(logits, batch), logits, weights)

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Translate sources (B, Ts) to at most `most` tokens."""
        mask = (source != PAD).long()
        options = {"num_beams": beam, **({"length_penalty": 0.0, "early_stopping": False} if beam > 1 else {})}
        generated = self.model.generate(
            input_ids=self.source.there[source],
            attention_mask=mask,
            max_new_tokens=most,
            max_length=None,
            do_sample=False,
            **options,
        )
        return self.target.answers(generated[:, 1:].tolist())


class MarianModel(TransformersModel):
    """A folder with a Marian model and its tokenizer, opened by `transformers`.

    `rows` gives Marian's index of each symbol of the run's source and target vocabulary; None if the indices are
    equal.
    """

    def __init__(self, run: Exportable, folder: Path, rows: tuple[Rows, Rows] | None = None) -> None:
        vocabularies = run.task.source_vocabulary, run.task.target_vocabulary
        source, target = rows or tuple(range(len(vocabulary)) for vocabulary in vocabularies)
        model, self._tokenizer = load_marian(folder)
        super().__init__(model, IndexMap(source), IndexMap(target))

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts, without the end of sequence."""
        token_ids: list[list[int]] = self._tokenizer(list(texts)).input_ids
        return [self.source.back(row[:-1]) for row in token_ids]


def load_marian(folder: Path) -> tuple[Any, Any]:
    """Load a folder's Marian model in float32 and its tokenizer, without running its code or unpickling.

    Raises `InputError` if transformers is not installed or cannot load the folder.
    """
    purpose, mend = "importing a Hugging Face model", "download it again"
    model, tokenizer, info = load_pretrained(folder, "MarianMTModel", purpose, mend, weights_only=True)
    missing = [name for name in info["missing_keys"] if "embed_positions" not in name]
    if missing:
        raise InputError(f"{str(folder)!r} is damaged: {missing[0]} is missing from its weights; {mend}")
    return model, tokenizer


def load_pretrained(
    folder: Path, model_class: str, purpose: str, mend: str, **options: Any
) -> tuple[Any, Any, Mapping[str, Any]]:
    """Load a folder's model in float32, its tokenizer, and a report of its parameters.

    `options`: of the model's `from_pretrained`. Raises `InputError` if transformers is not installed or cannot
    load the folder; `purpose` and `mend` complete its message.
    """
    transformers = import_library("transformers", purpose, "hub")
    with (
        library_errors("transformers", f"{str(folder)!r} cannot be loaded", mend),
        offline(),
        quiet_transformers(transformers),
        torch.random.fork_rng(devices=[]),
    ):
        model, info = getattr(transformers, model_class).from_pretrained(
            folder,
            attn_implementation="eager",
            dtype=torch.float32,
            local_files_only=True,
            output_loading_info=True,
            **options,
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, split_special_tokens=True
        )
    return model.eval(), tokenizer, info


@contextmanager
def quiet_transformers(transformers: Any) -> Iterator[None]:
    """Hide progress bars and warnings of the library; Regard itself checks what the warnings report."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "Recommended: pip install sacremoses"
            )  # only needed for normalization
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()

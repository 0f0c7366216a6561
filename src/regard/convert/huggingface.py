"""Export of a Transformer to Hugging Face, as a Marian model with its tokenizer.

    tokenizer = transformers.AutoTokenizer.from_pretrained("exported")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained("exported")
    output = model.generate(**tokenizer(["ein Hund rennt"], return_tensors="pt"))
    tokenizer.batch_decode(output, skip_special_tokens=True)

Marian (https://marian-nmt.github.io) is the Transformer of the paper with biases in the projections; missing
biases are exported as zeros. Marian's positional encoding has all sines before all cosines; Regard's alternates
sines and cosines. The exported weights are therefore permuted along the model's width.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention.blocks import EPSILON, STANDARD
from regard.convert.certificate import token_log_probabilities
from regard.convert.conversion import ExportParts, ForcedOutput, get_transformer, token_names
from regard.convert.exportable import Exportable
from regard.convert.parameters import MARIAN, IndexMap, Rows, get_sines_first_order, module_names, to_external
from regard.data.batch import PairBatch
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import RESERVED
from regard.data.vocabulary import BOS, EOS, PAD, UNKNOWN
from regard.errors import InputError
from regard.io.writing import write_file, write_json
from regard.libraries import import_library, library_errors, offline
from regard.models.transformer import Transformer, TransformerConfig


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


USE = """\
```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
output = model.generate(**tokenizer(["..."], return_tensors="pt"), num_beams=5)
tokenizer.batch_decode(output, skip_special_tokens=True)
```"""
"""Usage instructions for the model card."""
REQUIRED: dict[str, Any] = {
    "embedding_positions": "sinusoidal",
    "score": "scaled_dot",
    "layer": STANDARD,
    "pre_norm": False,
    "norm_epsilon": EPSILON,
}
"""Flags of a Transformer that Marian's architecture requires."""
SETTINGS = {
    "hidden": ("d_model",),
    "heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "enc_layers": ("encoder_layers",),
    "dec_layers": ("decoder_layers",),
    "inner": ("encoder_ffn_dim", "decoder_ffn_dim"),
}
"""Names of sizes in Regard and in Marian's config; all Marian names of a tuple get the same size."""
TOKENIZER: dict[str, Any] = {
    "pad_token": RESERVED[PAD],
    "eos_token": RESERVED[EOS],
    "unk_token": RESERVED[UNKNOWN],
    "split_special_tokens": True,  # text must not contain special tokens
    "clean_up_tokenization_spaces": False,
}
"""Settings of every exported tokenizer."""


def write_huggingface(run: Exportable, folder: Path) -> None:
    """Write a run's Transformer and tokenizer to an existing folder, for `AutoModelForSeq2SeqLM` and
    `AutoTokenizer`.

    Raises `InputError` if Marian's architecture does not support the model, or if the extra `hub` is not
    installed. Raises `MachineError` if the disk cannot be written.
    """
    transformers = import_library("transformers", "exporting to Hugging Face", "hub")
    model, config, source, target = get_huggingface_parts(run)
    special: dict[str, Any] = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
    special["decoder_start_token_id"] = BOS
    marian = transformers.MarianConfig(
        vocab_size=len(source),
        decoder_vocab_size=len(target),
        share_encoder_decoder_embeddings=run.task.shared,
        tie_word_embeddings=config.tied,
        max_position_embeddings=max(run.task.longest_source, run.task.longest_target) + 1,
        **{theirs: getattr(config, ours) for ours, names in SETTINGS.items() for theirs in names},
        activation_function=config.activation,
        scale_embedding=True,
        dropout=config.dropout,
        forced_eos_token_id=None,
        **special,
    )
    theirs = transformers.MarianMTModel(marian)
    missing = theirs.load_state_dict(parameters(model, config), strict=False).missing_keys
    assert all("embed_positions" in name or name == "model.shared.weight" for name in missing), missing
    theirs.tie_weights()
    theirs.generation_config = transformers.GenerationConfig(
        max_length=run.task.longest_target, num_beams=1, suppress_tokens=[PAD, BOS, UNKNOWN], **special
    )
    with quiet_transformers(transformers):
        theirs.save_pretrained(folder)
    if isinstance(source, SentencePieceVocabulary) and isinstance(target, SentencePieceVocabulary):
        _write_marian_tokenizer(folder, source, target, marian.max_position_embeddings)
    else:
        _write_tokenizer(folder, source.to_json(), marian.max_position_embeddings)


def get_huggingface_parts(run: Exportable) -> ExportParts:
    """Return a run's Transformer, its config, and its source and target vocabulary.

    Raises `InputError` if Marian's architecture or the tokenizers of Hugging Face do not support the model or
    its vocabularies.
    """
    parts = get_transformer(run, "Hugging Face")
    config, source = parts.config, parts.source
    for name, required in REQUIRED.items():
        if (value := getattr(config, name)) != required:
            flag = name.removeprefix("embedding_")
            raise InputError(
                f"{flag} {value} is not {required}, which Marian models require: train with --preset marian"
            )
    if config.hidden % 2:
        raise InputError(f"hidden {config.hidden} is odd: Marian's positions need an even width")
    if run.task.shared and not config.tied:
        raise InputError(
            "tied is off with joint on: Marian models with one vocabulary tie all embeddings; train with --tied"
        )
    if isinstance(source, SentencePieceVocabulary):
        if source.lowercase:
            raise InputError(
                "the run's vocabulary lowercases text: Marian's tokenizer does not support such vocabularies"
            )
    elif not run.task.shared:
        raise InputError("joint is off: a Hugging Face tokenizer holds one vocabulary; train with --joint")
    return parts


def parameters(model: Transformer, config: TransformerConfig) -> dict[str, Tensor]:
    """Return a Transformer's parameters with the names and the width order of `MarianMTModel`."""
    order = get_sines_first_order(config.hidden)
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    exported = to_external(state, module_names(MARIAN, vars(config)), order)
    target, (logits, bias) = state["target_embedding.weight"], model.vocabulary_layer
    source = state.get("source_embedding.weight", target)
    exported |= {
        "model.encoder.embed_tokens.weight": source[:, order],
        "model.decoder.embed_tokens.weight": target[:, order],
        "lm_head.weight": logits.detach()[:, order],
        "final_logits_bias": torch.zeros(1, len(target)) if bias is None else bias.detach()[None],
    }
    if source is target:
        exported["model.shared.weight"] = exported["model.encoder.embed_tokens.weight"]
    return {name: tensor.float().cpu().contiguous() for name, tensor in exported.items()}


def _write_tokenizer(folder: Path, tokenizer: str, longest: int) -> None:
    from tokenizers import Tokenizer, processors

    ours = Tokenizer.from_str(tokenizer)
    end = RESERVED[EOS]
    ours.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B {end}", special_tokens=[(end, EOS)]
    )
    ours.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": RESERVED[BOS],
        "model_input_names": ["input_ids", "attention_mask"],
    }
    write_json(folder / "tokenizer_config.json", {**settings, **TOKENIZER, "model_max_length": longest})


def _write_marian_tokenizer(
    folder: Path, source: SentencePieceVocabulary, target: SentencePieceVocabulary, longest: int
) -> None:
    """Write the files of a `MarianTokenizer` with the run's token indices."""
    separate = source.symbols != target.symbols
    for name, vocabulary in (("source.spm", source), ("target.spm", target)):
        write_file(folder / name, vocabulary.model)
    for name, vocabulary in (("vocab.json", source), ("target_vocab.json", target))[: 1 + separate]:
        write_json(folder / name, {symbol: index for index, symbol in enumerate(token_names(vocabulary))})
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate}
    write_json(folder / "tokenizer_config.json", {**settings, **TOKENIZER, "model_max_length": longest})

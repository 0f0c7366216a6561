"""Export of a Transformer to Hugging Face as a Marian model with its tokenizer, and import of Marian models.

    tokenizer = transformers.AutoTokenizer.from_pretrained("exported")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained("exported")
    output = model.generate(**tokenizer(["ein Hund rennt"], return_tensors="pt"))
    tokenizer.batch_decode(output, skip_special_tokens=True)

Marian (Junczys-Dowmunt et al. 2018, https://marian-nmt.github.io) is the Transformer of the paper with biases
in the projections; missing biases are exported as zeros. Marian's positional encoding has all sines before all
cosines; Regard's alternates sines and cosines. Every matrix that reads or writes the states is therefore
permuted along the width.

Marian starts targets with the padding symbol. In an import, Marian's padding becomes Regard's start symbol,
Regard's padding has no counterpart, and special symbols move to the first four indices.

Letters: D: width of the states; V, V': number of symbols in the vocabularies of the run and of Marian.
"""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from regard.attention.blocks import EPSILON, STANDARD
from regard.convert.certificate import (
    ExportableVocabulary,
    ExportParts,
    ForcedOutput,
    ImportedModel,
    check_supported,
    get_transformer,
    token_log_probabilities,
    token_names,
)
from regard.convert.exportable import Exportable
from regard.data.batch import PairBatch
from regard.data.imported_tokenizers import SentencePieceVocabulary
from regard.data.subwords import RESERVED, SubwordVocabulary
from regard.data.vocabulary import BOS, EOS, PAD, UNKNOWN
from regard.errors import InputError
from regard.io import (
    DamageError,
    damage_errors,
    damaged_file,
    is_file,
    parse_json,
    read_bytes,
    read_json,
    read_text,
    write_file,
    write_json,
)
from regard.libraries import import_library, library_errors, offline
from regard.models.transformer import Transformer, TransformerConfig

MEND = "download the folder again"
MISSING_LOGIT = -100.0  # Logit of a symbol that the other program does not have: its probability is zero in float32
READERS = ("query", "key", "value", "inner")
"""Regard's modules in whose weight each column belongs to a dimension of the states."""
WRITERS = ("output", "outer", "norm")
"""Regard's modules in whose weight and bias each row belongs to a dimension of the states."""
ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
ENCODER = {"self_attention": ("self_attn", "attention_residual.norm")}
DECODER = {"self_attention": ("self_attn", "self_residual.norm"), "cross": ("encoder_attn", "cross_residual.norm")}
"""Marian's name of each attention layer, and Regard's name of its normalization."""
FEED_FORWARD = {
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
Rows = Sequence[int | None]
"""Marian's index of each symbol of a run's vocabulary; None if Marian does not have the symbol."""
Vocabularies = tuple[ExportableVocabulary, ExportableVocabulary]


def module_names(flags: Mapping[str, Any]) -> dict[str, str]:
    """Return Marian's name of each module of a Transformer's layers, by Regard's name.

    `flags`: `enc_layers` and `dec_layers`.

    >>> names = module_names({"enc_layers": 1, "dec_layers": 0})
    >>> names["encoder.layers.0.self_attention.query"]
    'model.encoder.layers.0.self_attn.q_proj'
    """
    names: dict[str, str] = {}
    for side, attention_layers in (("encoder", ENCODER), ("decoder", DECODER)):
        for number in range(flags[f"{side[:3]}_layers"]):
            parts = dict(FEED_FORWARD)
            for ours, (theirs, norm) in attention_layers.items():
                parts |= {f"{ours}.{part}": f"{theirs}.{name}" for part, name in ATTENTION.items()}
                parts[norm] = f"{theirs}_layer_norm"
            layer = f"{side}.layers.{number}"
            names |= {f"{layer}.{ours}": f"model.{layer}.{theirs}" for ours, theirs in parts.items()}
    return names


def permute_width(ours: str, values: Tensor, order: Tensor) -> Tensor:
    """Permute the width of a weight (rows, columns), of a bias or of a norm's parameter (D,) by `order` (D,)."""
    part = ours.rpartition(".")[2]
    values = values[:, order] if part in READERS and values.dim() == 2 else values
    return values[order] if part in WRITERS else values


def get_sines_first_order(width: int) -> Tensor:
    """Return the permutation of a width that puts all sines (even indices) before all cosines (odd indices).

    >>> get_sines_first_order(6)
    tensor([0, 2, 4, 1, 3, 5])
    """
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


class IndexMap:
    """Map between the token indices in a run's vocabulary and those of Marian. If Marian has one symbol for the
    start and the end of a sequence, the start symbol must never be generated. The logit of the start symbol is
    then lowered by `MISSING_LOGIT`."""

    def __init__(self, rows: Rows) -> None:
        # If a program has no padding symbol, the start symbol pads its batches.
        self.there = torch.tensor([rows[BOS] if row is None else row for row in rows])
        """(V,) int64: Marian's index of each symbol."""
        self._here = {row: index for index, row in enumerate(rows) if row is not None}
        self._missing = torch.tensor([row is None for row in rows])
        self._bias = torch.zeros(len(rows))
        if rows[BOS] == rows[EOS]:
            self._bias[BOS] = MISSING_LOGIT

    def back(self, theirs: Sequence[int]) -> list[int]:
        return [self._here[index] for index in theirs]

    def logits(self, theirs: Tensor) -> Tensor:
        """Return Marian's logits (..., V') in the order of the run's indices, (..., V)."""
        return theirs[..., self.there].masked_fill(self._missing, MISSING_LOGIT) + self._bias


class MarianModel:
    """A folder with a Marian model and its tokenizer, opened by `transformers`; see `ConvertedModel`. `rows` gives
    Marian's index of each symbol of the run's source and target vocabulary; None if the indices are equal."""

    program = "transformers"
    missing: Mapping[str, str] = {}

    def __init__(self, run: Exportable, folder: Path, rows: tuple[Rows, Rows] | None = None) -> None:
        vocabularies = run.task.source_vocabulary, run.task.target_vocabulary
        source, target = rows or tuple(range(len(vocabulary)) for vocabulary in vocabularies)
        self.source, self.target = IndexMap(source), IndexMap(target)
        self.model, self._tokenizer = load_marian(folder)
        pad, begin, end, unknown = self.target.there[[PAD, BOS, EOS, UNKNOWN]].tolist()
        generation: Any = type(self.model.generation_config)
        self.model.generation_config = generation(
            pad_token_id=pad,
            eos_token_id=end,
            decoder_start_token_id=begin,
            suppress_tokens=sorted({pad, begin, unknown} - {end}),  # the start symbol may also be the end symbol
        )

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        token_ids: list[list[int]] = self._tokenizer(list(texts)).input_ids
        return [self.source.back(row[:-1]) for row in token_ids]

    def force(self, batch: PairBatch) -> ForcedOutput:
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
        options = {"num_beams": beam, **({"length_penalty": 0.0, "early_stopping": False} if beam > 1 else {})}
        generated = self.model.generate(
            input_ids=self.source.there[source],
            attention_mask=(source != PAD).long(),
            max_new_tokens=most,
            max_length=None,
            do_sample=False,
            **options,
        )
        rows = map(self.target.back, generated[:, 1:].tolist())
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]


def load_pretrained(folder: Path, model_class: str, purpose: str, **options: Any) -> tuple[Any, Any, list[str]]:
    """Load a folder's model in float32 and its tokenizer, without running its code or unpickling.

    `options`: of the model's `from_pretrained`. Also returns the names of parameters that the model does not
    have. Raises `InputError` if transformers is not installed (`purpose` begins the message), if it cannot load
    the folder, or if a parameter is missing.
    """
    transformers = import_library("transformers", purpose, "hub")
    with (
        library_errors("transformers", f"{str(folder)!r} cannot be loaded", MEND),
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
    # Marian computes its positions.
    if missing := [name for name in sorted(info["missing_keys"]) if "embed_positions" not in name]:
        raise InputError(f"{str(folder)!r} is damaged: {missing[0]} is missing from its weights; {MEND}")
    return model.eval(), tokenizer, sorted(info["unexpected_keys"])


def load_marian(folder: Path) -> tuple[Any, Any]:
    """Load a folder's Marian model and its tokenizer (see `load_pretrained`)."""
    purpose = "importing a Hugging Face model"
    return load_pretrained(folder, "MarianMTModel", purpose, weights_only=True)[:2]


@contextmanager
def quiet_transformers(transformers: Any) -> Iterator[None]:
    """Hide progress bars and warnings of the library; Regard itself checks what the warnings report."""
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")  # only needed for normalization
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
    `AutoTokenizer`. Raises `InputError` if Marian's architecture does not support the model, or if the extra
    `hub` is not installed. Raises `MachineError` if the disk cannot be written."""
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
        separate = source.symbols != target.symbols
        for name, vocabulary in (("source.spm", source), ("target.spm", target)):
            write_file(folder / name, vocabulary.model)
        for name, vocabulary in (("vocab.json", source), ("target_vocab.json", target))[: 1 + separate]:
            write_json(folder / name, {symbol: index for index, symbol in enumerate(token_names(vocabulary))})
        settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate, **TOKENIZER}
        longest = marian.max_position_embeddings
        write_json(folder / "tokenizer_config.json", {**settings, "model_max_length": longest})
    else:
        _write_tokenizer(folder, source.to_json(), marian.max_position_embeddings)


def get_huggingface_parts(run: Exportable) -> ExportParts:
    """Return a run's Transformer, its config, and its source and target vocabulary. Raises `InputError` if
    Marian's architecture or the tokenizers of Hugging Face do not support the model or its vocabularies."""
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
    exported = {}
    for ours, theirs in module_names(vars(config)).items():
        weight = state[f"{ours}.weight"]
        bias = state.get(f"{ours}.bias", torch.zeros(len(weight)))
        exported[f"{theirs}.weight"] = permute_width(ours, weight, order)
        exported[f"{theirs}.bias"] = permute_width(ours, bias, order)
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


ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
"""Regard's activations by their names in Hugging Face."""


class _TokenizerConfig(msgspec.Struct):
    """The part of the tokenizer's config that is needed."""

    separate_vocabs: bool = False
    unk_token: Any = "<unk>"


def read_marian(folder: Path) -> ImportedModel:
    """Read a folder with a Marian model; see `import_model.read_huggingface`."""
    if not is_file(folder / "tokenizer.json"):
        for name in ("source.spm", "target.spm", "vocab.json"):
            if not is_file(folder / name):
                raise InputError(f"{str(folder / name)!r} is missing: {MEND}")
    theirs, _ = load_marian(folder)
    config, state = theirs.config, theirs.state_dict()
    flags = read_settings(config)
    vocabularies, rows = _vocabularies(folder, config, shared=flags["joint"])
    inverse = get_sines_first_order(config.d_model).argsort()
    parameters = {
        f"{ours}.{kind}": permute_width(ours, state[f"{theirs}.{kind}"], inverse)
        for ours, theirs in module_names(flags).items()
        for kind in ("weight", "bias")
    }
    # Regard's names of Marian's matrices (V', D), unless they are shared with the target embedding.
    matrices = {"target_embedding": ("model.decoder.embed_tokens", rows[1])}
    if not flags["joint"]:
        matrices["source_embedding"] = ("model.encoder.embed_tokens", rows[0])
    if not flags["tied"]:
        matrices["output"] = ("lm_head", rows[1])
    for ours, (name, symbols) in matrices.items():
        parameters[f"{ours}.weight"] = select_rows(state[f"{name}.weight"], symbols)[:, inverse]
    parameters["output_bias"] = select_rows(state["final_logits_bias"][0], rows[1], MISSING_LOGIT)
    pieces = isinstance(vocabularies[0], SentencePieceVocabulary)
    flags |= {
        "tokenizer": "sentencepiece" if pieces else "bpe",
        "vocab_size": max(map(len, vocabularies)),
        # A run accepts texts of up to four times `max_len` tokens.
        "max_len": max(1, (config.max_position_embeddings - 1) // 4),
    }
    return ImportedModel(flags, vocabularies, parameters, lambda run: MarianModel(run, folder, rows))


def select_rows(theirs: Tensor, rows: Rows, missing: float = 0.0) -> Tensor:
    """Return rows (V', ...) of Marian's symbols in the run's order, (V, ...); missing symbols get `missing`."""
    selected = theirs[torch.tensor([0 if row is None else row for row in rows])].clone()
    selected[torch.tensor([row is None for row in rows])] = missing
    return selected


def _vocabularies(folder: Path, config: Any, *, shared: bool) -> tuple[Vocabularies, tuple[Rows, Rows]]:
    """Return the source and the target vocabulary, and Marian's index of each symbol in the two vocabularies."""
    if not is_file(folder / "source.spm") and is_file(folder / "tokenizer.json"):
        return _read_exported(folder, config)
    tokenizer = _TokenizerConfig()
    if is_file(folder / "tokenizer_config.json"):
        tokenizer = read_json(folder / "tokenizer_config.json", _TokenizerConfig, MEND, finite=False)
    if shared and tokenizer.separate_vocabs:
        raise InputError(
            "separate_vocabs is on with share_encoder_decoder_embeddings: Regard needs one vocabulary per "
            "embedding matrix"
        )

    def read(model: Path, file: str, size: int) -> tuple[SentencePieceVocabulary, Rows]:
        symbols, rows = _symbols(folder / file, config, size, tokenizer)
        with damage_errors(model, MEND):
            return SentencePieceVocabulary(read_bytes(model), symbols, codes=True), rows

    target_file = "target_vocab.json" if tokenizer.separate_vocabs else "vocab.json"
    target_size = config.vocab_size if shared else config.decoder_vocab_size
    source, source_rows = read(folder / "source.spm", "vocab.json", config.vocab_size)
    target, target_rows = read(folder / "target.spm", target_file, target_size)
    return (source, target), (source_rows, target_rows)


def _symbols(file: Path, config: Any, size: int, tokenizer: _TokenizerConfig) -> tuple[list[str], Rows]:
    """Return the non-special symbols of a vocabulary, and Marian's index of each symbol of the run. The padding
    index is None if the start symbol is the padding symbol."""
    numbers = read_json(file, dict[str, int], MEND)
    if sorted(numbers.values()) != list(range(size)):
        raise InputError(
            f"vocab_size {size} does not match {str(file)!r}, which must have one symbol for each index from 0 "
            f"to {size - 1}: {MEND}"
        )
    unknown = tokenizer.unk_token["content"] if isinstance(tokenizer.unk_token, dict) else tokenizer.unk_token
    if unknown not in numbers:
        raise damaged_file(file, f"it has no {unknown}", MEND)
    named = {name: getattr(config, name) for name in ("pad_token_id", "decoder_start_token_id", "eos_token_id")}
    for name, number in named.items():
        if not isinstance(number, int) or not 0 <= number < size:
            raise InputError(f"{name} {number} is not in the vocabulary: it must be an index from 0 to {size - 1}")
    pad, start, end = named.values()
    special = [None if pad == start else pad, start, end, numbers[unknown]]
    if len(set(special)) < len(special):
        indices = f"{pad}, {start}, {end}, {numbers[unknown]}"
        raise InputError(f"{', '.join(named)} and the unknown symbol must differ, not {indices}")
    rest = sorted((number, symbol) for symbol, number in numbers.items() if number not in special)
    return [symbol for _, symbol in rest], [*special, *(number for number, _ in rest)]


def _read_exported(folder: Path, config: Any) -> tuple[Vocabularies, tuple[Rows, Rows]]:
    """Read the vocabulary of a folder written by `regard export`, where the special symbols are already first."""
    file = folder / "tokenizer.json"
    try:
        stored = parse_json(read_text(file, MEND))
        if not isinstance(stored, dict):
            raise DamageError("the file is not a JSON object")
        plain = {**stored, "added_tokens": [], "post_processor": None}
        vocabulary = SubwordVocabulary.from_json(json.dumps(plain))
    except (DamageError, InputError) as error:
        raise InputError(
            f"{str(file)!r} is not a vocabulary of Regard, and source.spm is missing: give a folder with "
            "source.spm, target.spm and vocab.json"
        ) from error
    rows = list(range(len(vocabulary)))
    special = [config.pad_token_id, config.decoder_start_token_id, config.eos_token_id]
    if len(vocabulary) != config.vocab_size or special != rows[:UNKNOWN]:
        raise damaged_file(
            file, f"the vocabulary does not belong to the model: {', '.join(RESERVED[:UNKNOWN])} differ", MEND
        )
    return (vocabulary, vocabulary), (rows, rows)


def read_settings(config: Any) -> dict[str, Any]:
    """Convert a `MarianConfig` to flags of Regard's Transformer. Raises `InputError` for an unsupported setting."""
    for name in ("attention_heads", "ffn_dim"):
        decoder, encoder = (f"{side}_{name}" for side in ("decoder", "encoder"))
        if (value := getattr(config, decoder)) != (expected := getattr(config, encoder)):
            raise InputError(f"{decoder} {value} differs from {encoder} {expected}: Regard needs equal values")
    check_supported("activation_function", config.activation_function, ACTIVATIONS)
    if not config.scale_embedding:
        raise InputError("scale_embedding is off: Regard always scales embeddings")
    if config.d_model % 2:
        raise InputError(f"d_model {config.d_model} is odd: sinusoidal positions need an even width")
    shared, tied = bool(config.share_encoder_decoder_embeddings), bool(config.tie_word_embeddings)
    if shared and not tied:
        raise InputError(
            "tie_word_embeddings is off with share_encoder_decoder_embeddings on: "
            "Regard ties all matrices of a shared vocabulary"
        )
    return {
        **{ours: getattr(config, theirs) for ours, (theirs, *_) in SETTINGS.items()},
        "activation": ACTIVATIONS[config.activation_function],
        "dropout": float(config.dropout),
        "positions": "sinusoidal",
        "pre_norm": False,
        "bias": True,
        "tied": tied,
        "output_bias": True,
        "joint": shared,
    }

"""Import a Hugging Face model as a run, with a certificate of the agreement of both programs."""

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from regard.arguments import public
from regard.convert.certificate import CERTIFICATE_NAME, SENTENCES, Certificate, certify, select_sentences
from regard.convert.conversion import (
    ExportableVocabulary,
    ImportedModel,
    check_equal,
    check_supported,
    name_damaged,
)
from regard.convert.huggingface import SETTINGS, MarianModel, load_marian
from regard.convert.language_certificate import certify_language_model, make_prompts, select_prompts
from regard.convert.language_models import FAMILIES, read_language_model
from regard.convert.parameters import (
    MARIAN,
    MISSING_LOGIT,
    OuterWeights,
    Rows,
    convert_outer_weights,
    from_external,
    get_sines_first_order,
    module_names,
    select_rows,
)
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import RESERVED, SubwordVocabulary
from regard.data.vocabulary import UNKNOWN
from regard.errors import InputError
from regard.external.loading import check_sizes
from regard.io.locking import hold_lock
from regard.io.reading import (
    DamageError,
    damaged_file,
    is_file,
    is_folder,
    parse_json,
    read_bytes,
    read_json,
    read_text,
)
from regard.io.writing import check_name, write_json
from regard.plugins import describe_error
from regard.training.building import build_model
from regard.training.checkpoint import Checkpoint
from regard.training.config import RunConfig, make_config
from regard.training.run_folder import RunFolder, create_run, is_run_folder, vocabulary_digest
from regard.training.tensor_file import digest_tensors

# Import of a Hugging Face Marian model with its tokenizer (language models: `language_import`).
#
# Special symbols move to the first four indices, and the width is permuted to Regard's order of sines and
# cosines. Marian starts targets with the padding symbol. Marian's padding becomes Regard's start symbol, and
# Regard's padding has no counterpart.

MEND = "download the folder again"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
"""Regard's activations by their names in Hugging Face."""
MATRICES = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
"""Names of Marian's source embedding, target embedding and output layer."""
Vocabularies = tuple[ExportableVocabulary, ExportableVocabulary]


class _ModelConfig(msgspec.Struct):
    """The part of the model's config that is checked before transformers reads the config."""

    model_type: str


class _TokenizerConfig(msgspec.Struct):
    """The part of the tokenizer's config that is needed."""

    separate_vocabs: bool = False
    unk_token: Any = "<unk>"


def read_huggingface(folder: Path) -> ImportedModel:
    """Read a folder written by `save_pretrained`.

    Raises `InputError` if the folder has no supported model or is damaged, if Regard's models cannot represent
    the model, or if the extra `hub` is not installed.
    """
    if not is_folder(folder):
        raise InputError(f"{str(folder)!r} is not a folder: give a folder written by save_pretrained")
    if not is_file(folder / "config.json"):
        raise InputError(
            f"{str(folder)!r} has no config.json, which all Hugging Face models have: convert models of other "
            f"programs to Hugging Face first"
        )
    kind = read_json(folder / "config.json", _ModelConfig, MEND, finite=False).model_type
    check_sizes(str(folder), read_json(folder / "config.json", dict[str, Any], MEND, finite=False))
    if kind in FAMILIES:
        return read_language_model(folder)
    if kind != "marian":
        raise InputError(
            f"model_type {kind} is not supported: choose a model of {', '.join(('marian', *FAMILIES))}; inspect "
            f"other models with `regard look`"
        )
    if not is_file(folder / "tokenizer.json"):
        for name in ("source.spm", "target.spm", "vocab.json"):
            if not is_file(folder / name):
                raise InputError(f"{str(folder / name)!r} is missing: {MEND}")
    theirs, _ = load_marian(folder)
    config, state = theirs.config, theirs.state_dict()
    flags = read_settings(config)
    vocabularies, rows = _vocabularies(folder, config, shared=flags["joint"])
    order = get_sines_first_order(config.d_model)
    parameters = from_external(state, module_names(MARIAN, flags), order)
    parameters |= convert_outer_weights(OuterWeights(*(state[name] for name in MATRICES)), rows, flags, order)
    parameters["output_bias"] = select_rows(state["final_logits_bias"][0], rows[1], MISSING_LOGIT)
    pieces = isinstance(vocabularies[0], SentencePieceVocabulary)
    flags |= {
        "tokenizer": "sentencepiece" if pieces else "bpe",
        "vocab_size": max(map(len, vocabularies)),
        # A run accepts texts of up to four times `max_len` tokens.
        "max_len": max(1, (config.max_position_embeddings - 1) // 4),
    }
    return ImportedModel(flags, vocabularies, parameters, lambda run: MarianModel(run, folder, rows))


def _vocabularies(folder: Path, config: Any, *, shared: bool) -> tuple[Vocabularies, tuple[Rows, Rows]]:
    """Return the source and the target vocabulary, and Marian's index of each symbol in the two vocabularies."""
    if not is_file(folder / "source.spm") and is_file(folder / "tokenizer.json"):
        return _read_exported(folder, config)
    tokenizer = _TokenizerConfig()
    if is_file(folder / "tokenizer_config.json"):
        tokenizer = read_json(folder / "tokenizer_config.json", _TokenizerConfig, MEND, finite=False)
    files = ["vocab.json", "target_vocab.json" if tokenizer.separate_vocabs else "vocab.json"]
    sizes = [config.vocab_size, config.vocab_size if shared else config.decoder_vocab_size]
    if shared and tokenizer.separate_vocabs:
        raise InputError(
            "separate_vocabs is on with share_encoder_decoder_embeddings: Regard needs one vocabulary per "
            "embedding matrix"
        )
    sides = []
    for file, size, model in zip(files, sizes, ("source.spm", "target.spm"), strict=True):
        symbols, rows = _symbols(folder / file, config, size, tokenizer)
        with name_damaged(folder / model, MEND):
            vocabulary = SentencePieceVocabulary(read_bytes(folder / model), symbols, codes=True)
        sides.append((vocabulary, rows))
    (source, source_rows), (target, target_rows) = sides
    return (source, target), (source_rows, target_rows)


def _symbols(file: Path, config: Any, size: int, tokenizer: _TokenizerConfig) -> tuple[list[str], Rows]:
    """Return the non-special symbols of a vocabulary, and Marian's index of each symbol of the run."""
    numbers = read_json(file, dict[str, int], MEND)
    if sorted(numbers.values()) != list(range(size)):
        raise InputError(
            f"vocab_size {size} does not match {str(file)!r}, which must have one symbol for each index from 0 "
            f"to {size - 1}: {MEND}"
        )
    unknown = tokenizer.unk_token["content"] if isinstance(tokenizer.unk_token, dict) else tokenizer.unk_token
    if unknown not in numbers:
        raise damaged_file(file, f"it has no {unknown}", MEND)
    rows = _special_indices(config, size, numbers[unknown])
    taken = {row for row in rows if row is not None}
    rest = sorted((number, symbol) for symbol, number in numbers.items() if number not in taken)
    return [symbol for _, symbol in rest], [*rows, *(number for number, _ in rest)]


def _special_indices(config: Any, size: int, unknown: int) -> list[int | None]:
    """Return Marian's indices of the special symbols; the padding index is None if the start symbol is the
    padding symbol."""
    named = {name: getattr(config, name) for name in ("pad_token_id", "decoder_start_token_id", "eos_token_id")}
    for name, number in named.items():
        if not isinstance(number, int) or not 0 <= number < size:
            raise InputError(
                f"{name} {number} is not in the vocabulary: it must be an index from 0 to {size - 1}"
            )
    pad, start, end = named.values()
    indices = [None if pad == start else pad, start, end, unknown]
    if len(set(indices)) < len(indices):
        raise InputError(
            f"{', '.join(named)} and the unknown symbol must differ, not {pad}, {start}, {end}, {unknown}"
        )
    return indices


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
    """Convert a `MarianConfig` to flags of Regard's Transformer.

    Raises `InputError` with the name of an unsupported setting.
    """
    check_equal(config.to_dict(), ("attention_heads", "ffn_dim"))
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


@public
def import_model(
    folder: str | Path,
    *,
    savepath: str | Path = "models",
    name: str | None = None,
    examples: Sequence[str] | None = None,
    valid: Sequence[str | Path] = (),
    test: Sequence[str | Path] = (),
    progress: bool = True,
) -> Path:
    """Import a Marian, GPT-2 or Llama model of Hugging Face as a run, and return the run's folder.

    The run's `certificate.json` states the agreement of both programs. `name` is the run's name under `savepath`
    (default: the name of the model's folder). `valid` and `test` are the run's validation and test text: a
    source and a target file, or one file of pairs; for a language model, `valid` is one text. `examples` are
    sentences on which both programs are compared (default: the first 100 sources of `valid`, or of `test`; for a
    language model, 20 parts of `valid`, or random tokens); sentences that are too long for the model are skipped.

    Raises `InputError`, and writes nothing, if the model cannot be represented, if its results differ from the
    other program's, if the run exists, or if the program is not installed. Raises `MachineError` if the disk
    cannot be written.
    """
    folder = Path(folder)
    if is_run_folder(folder):
        raise InputError(f"{str(folder)!r} is already a run of Regard: open it with `regard show {folder}`")
    # `resolve` raises for a link that points to itself. Reading such a folder raises an error below.
    run_name = Path(os.path.realpath(folder)).name if name is None else name
    check_name(Path(run_name))
    target = Path(savepath) / run_name
    if RunFolder(target).exists():
        raise InputError(f"{str(target)!r} already contains a run: give another --name, or another --savepath")
    imported = read_huggingface(folder)
    language = imported.task == "text"
    model_flags = {
        **imported.flags,
        **_text_flags(language, valid, test),
        "model": "decoder" if language else "transformer",
    }
    config = make_config(imported.task, model_flags).resolved()
    task: Any = config.task_class(config.task, *imported.vocabularies)  # type: ignore[call-arg]
    config = dataclasses.replace(config, tokenizer=vocabulary_digest(task.files))
    model: Any = build_model(config, task).eval()
    try:
        model.load_state_dict(dict(imported.parameters))
    except RuntimeError as error:  # its message has one line per parameter
        raise InputError(
            f"{str(folder)!r} is damaged: its parameters do not match its config ({describe_error(error, 150)}); "
            f"download it again"
        ) from error
    config = dataclasses.replace(config, initial=digest_tensors(model.state_dict()))
    with hold_lock(target), create_run(target, config, overwrite=False) as building:
        building.write_vocabularies(task.files)
        Checkpoint(step=0, weights=model.state_dict()).save(building)
        run = _ImportedRun(building.path, config, 0, task, model)
        certificate = _certify(run, imported.open(run), examples, folder, progress=progress)
        certificate.check()
        write_json(building.path / CERTIFICATE_NAME, certificate.json())
    return RunFolder(target).path


@dataclass(frozen=True)
class _ImportedRun:
    """The imported run before its folder is complete, for the comparison with the other program."""

    folder: Path
    config: RunConfig
    step: int
    task: Any
    model: Any

    def kept_heads(self) -> None:
        """Return None, because an imported run has no chosen alignment heads."""

    def unseen(self, samples: int, seed: int) -> list[tuple[str, str]]:
        """Return the first pairs of the validation text, or of the test text."""
        del seed
        text = self.task.config.text("valid") or self.task.config.text("test")
        most, encode = self.task.longest_source, self.task.source_vocabulary.encode
        return (
            [] if text is None else list(islice((pair for pair in text if len(encode(pair[0])) <= most), samples))
        )


def _text_flags(
    language: bool, valid: Sequence[str | Path], test: Sequence[str | Path]
) -> dict[str, tuple[str, ...] | str]:
    """Return the flags of validation and test text. A language model has a single text."""
    if not language:
        return {"valid": tuple(map(str, valid)), "test": tuple(map(str, test))}
    if len(valid) > 1 or test:
        raise InputError("a language model has a single text: give --valid FILE, and leave out --test")
    return {"text": str(valid[0])} if valid else {}


def _certify(
    run: _ImportedRun, other: Any, examples: Sequence[str] | None, folder: Path, *, progress: bool
) -> Certificate:
    if run.task.answers == "tokens":
        texts = make_prompts(run.task, progress=progress) if examples is None else examples
        prompts = select_prompts(run.task, texts, progress=progress)
        return certify_language_model(run, other, prompts, folder, progress=progress)
    texts = [source for source, _ in run.unseen(SENTENCES, 0)] if examples is None else examples
    return certify(run, other, select_sentences(run, texts, progress=progress), folder, progress=progress)

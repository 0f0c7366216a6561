"""What all conversions share: the parts of a run that an export needs, and the forms of imported models.

Every import reads the program's files, checks its settings, and maps the names of its parameters to an
`ImportedModel`. `import_model` writes the run and compares both programs. An export reverses the steps.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from regard.attention.interventions import record_own
from regard.attention.layer import attention_layers
from regard.attention.multihead import MultiHeadAttention
from regard.convert.exportable import Exportable
from regard.data.batch import PairBatch, collate
from regard.data.imported_tokenizers import ImportedTokenizer, SentencePieceVocabulary
from regard.data.subwords import RESERVED, SubwordVocabulary
from regard.data.vocabulary import PAD, Vocabulary
from regard.decoding.generation import generate
from regard.decoding.translation import Search, longest_answer, search_batch
from regard.errors import InputError, plural
from regard.io import list_files, read_json
from regard.models.base import ModelConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.progress import counting_bar, print_status
from regard.result import Result
from regard.streams import make_generator
from regard.tasks.text import Text
from regard.tasks.tokens import TokenTask
from regard.training.run_folder import file_digest
from regard.version import __version__

ExportableVocabulary = SubwordVocabulary | SentencePieceVocabulary  # Vocabulary classes that other programs can read


class ExportParts(NamedTuple):
    """The parts of a run that an export needs."""

    model: Transformer
    config: TransformerConfig
    source: ExportableVocabulary
    target: ExportableVocabulary


def get_transformer(run: Exportable, program: str) -> ExportParts:
    """Return a run's Transformer, its config, and its source and target vocabulary. Raises `InputError` for
    other models, for vocabularies that were not learned from text, and for pruned heads."""
    model: Any = run.model
    config: Any = run.config.model
    vocabularies: Any = run.task.source_vocabulary, run.task.target_vocabulary
    readable = all(isinstance(vocabulary, ExportableVocabulary) for vocabulary in vocabularies)
    if not (isinstance(model, Transformer) and isinstance(config, TransformerConfig) and readable):
        raise InputError(f"run {str(run.folder)!r} is not a Transformer for translation: {program} cannot run it")
    if run.config.kept_heads or any(layer.heads != config.heads for layer in attention_layers(model).values()):
        raise InputError(f"run {str(run.folder)!r} is pruned: {program} needs the same number of heads in every layer")
    check_attention(model, config.attention, program)
    if config.norm == "none":
        raise InputError(f"norm none is not supported by {program}: train with --norm layer")
    if any(layer.groups != layer.heads for layer in _multi_head(model)):
        raise InputError(f"attention {config.attention} is not supported by {program}: each head needs its own keys")
    return ExportParts(model, config, *vocabularies)


def check_attention(model: nn.Module, attention: str, program: str) -> None:
    """Raise `InputError` for a mechanism that other programs do not compute. `attention`: the flag. Layers with
    another score are left to the check of the flag `score`."""
    if attention != ModelConfig.attention and not all(layer.standard for layer in _multi_head(model)):
        raise InputError(
            f"attention {attention} is not supported by {program}, which computes the softmax of scaled dot "
            f"products: train without --attention"
        )


def _multi_head(model: nn.Module) -> list[MultiHeadAttention]:
    return [layer for layer in model.modules() if isinstance(layer, MultiHeadAttention)]


def token_names(vocabulary: Vocabulary) -> list[str]:
    """Return the tokens of a vocabulary by the names in exported files, special symbols first."""
    return [*RESERVED, *vocabulary.symbols[len(RESERVED) :]]


class ForcedOutput(NamedTuple):
    """Output of a program for forced targets. Values at steps after the end of a target are undefined."""

    log_probabilities: Tensor  # (B, Tt), natural logarithms of the probabilities of the target tokens
    logits: Tensor | None = None  # (B, Tt, V), or None if the program does not provide them
    weights: Mapping[str, Tensor] | None = None
    """(B, H, Tq, Tk) by layer name as in `regard.record`, or None if the program does not provide them."""


class ConvertedModel(Protocol):
    """A converted model, opened in its program. All token indices are those of the run's vocabularies."""

    @property
    def program(self) -> str:
        """Name of the program's Python package."""

    @property
    def missing(self) -> Mapping[str, str]:
        """Reason for each field of the certificate that the program does not provide."""

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts with the program's own tokenizer, without the end of sequence."""

    def force(self, batch: PairBatch) -> ForcedOutput:
        """Run the model on a batch with forced targets."""

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Translate sources (B, Ts) to at most about `most` tokens, without end symbol or length penalty."""


class ImportedModel(NamedTuple):
    """A model of another program, converted to Regard's configs, vocabularies and parameters."""

    flags: dict[str, Any]  # Flags of task and model
    vocabularies: tuple[ExportableVocabulary, ExportableVocabulary] | tuple[ImportedTokenizer]
    """Source and target vocabulary, or the tokenizer of a language model."""
    parameters: Mapping[str, Tensor]  # Tensors by Regard's parameter names
    open: Callable[[Any], Any]
    """Open the model in its original program, for comparison with the run: a `ConvertedModel`, or for a language
    model a `ConvertedLanguageModel`."""
    task: str = "translation"  # Name of the task of the run


def check_supported(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise `InputError` if Regard's Transformer does not support a setting."""
    if value not in choices:
        raise InputError(f"{name} {value} is not supported: choose {', '.join(choices)}")


# The certificate of a conversion: the largest differences between the results of two programs on the same texts.
#
# Translation: both models receive Regard's greedy translation as a forced target, so that each step is compared on
# the same prefix. The comparison covers log-probabilities of the tokens, logits, and the attention weights of every
# head, (B, H, Tq, Tk). Then both programs translate without forced targets, by greedy search and by beam search. A
# value that a program does not provide is None, and `missing` gives the reason.
#
# Language models: both programs continue the same prompts by greedy search. Then both read prompt and
# continuation of Regard, and the same values are compared.


Item = TypeVar("Item")
SENTENCES, PROMPTS = 100, 20
"""Default number of unseen sentences, or of prompts of a language model, on which both programs are compared."""
PROMPT_TOKENS, NEW_TOKENS = 48, 100  # Number of tokens of a default prompt, and of a continuation
BATCH_SIZE, PROMPT_BATCH_SIZE = 25, 5
"""Number of sentences and of prompts per batch; the weights of all layers are in memory at once."""
MAX_DIFFERENCE = 1e-4
"""Largest accepted difference of weights, and of logits and log-probabilities (nats) as a fraction of the largest
logit, or of 1 if all logits are smaller: rounding errors grow with the values."""
MASKED = 1e4  # Absolute value from which logits are those of forbidden tokens, which do not count as the largest logit
BEAM = 5
CERTIFICATE_NAME = "certificate.json"
DIFFERENCES = ("log_probabilities", "logits", "weights")  # Fields that contain a maximum difference


@dataclass(frozen=True, kw_only=True, repr=False)
class Certificate(Result):
    """Measured agreement of a run and its converted model; fractions are from 0 to 1."""

    program: str
    sentences: int
    tokens: int  # Number of compared target tokens, including the end symbols
    same_tokens: float  # Fraction of sentences with the same tokens in both programs
    log_probabilities: float  # Largest difference of the log-probability of a token, in nats
    logits: float | None  # Largest difference
    weights: float | None  # Largest difference, over all layers, heads, queries and keys
    same_greedy: float  # Fraction of sentences with the same greedy translation
    same_beam: float | None  # Fraction of sentences with the same translation by beam search
    continuation: int | None = None  # Number of tokens of each continuation by a language model; None for translations
    beam: int = BEAM
    limit: float = MAX_DIFFERENCE  # Largest accepted difference of logits and log-probabilities
    largest_logit: float  # Largest absolute value of the run's logits
    missing: dict[str, str]  # The reason for each field that is None
    versions: dict[str, str]
    hashes: dict[str, str]  # SHA-256 of the run's parameters and of every written file

    def check(self) -> None:
        """Raise `InputError` if the two models differ by more than `limit`."""
        if self.same_tokens < 1:
            raise InputError(
                f"{self.program} tokenizes {1 - self.same_tokens:.0%} of {plural(self.sentences, 'sentence')} "
                f"differently: nothing was written, because the program does not support this vocabulary"
            )
        for name in DIFFERENCES:
            difference = getattr(self, name)
            limit = MAX_DIFFERENCE if name == "weights" else self.limit
            if difference is not None and not difference <= limit:  # also true for NaN
                size = "" if name == "weights" else self._size
                raise InputError(
                    f"{name.replace('_', '-')} differ by {difference:.2g} in {self.program}, more than the "
                    f"limit of {limit:.2g}{size}: nothing was written; try another version of this program"
                )

    @property
    def _size(self) -> str:
        size = self.largest_logit
        return "" if size <= 1 else f", {MAX_DIFFERENCE:g} of the largest logit, {size:.3g}"

    def summary(self) -> str:
        values = {name.replace("_", "-"): getattr(self, name) for name in DIFFERENCES}
        figures = ", ".join(f"{name} within {value:.1g}" for name, value in values.items() if value is not None)
        figures += f" (limit {self.limit:.2g}{self._size})"
        if self.same_beam is None:
            return (
                f"compared on {self.sentences} prompts in both programs: {figures}; the same continuation by "
                f"{self.continuation} tokens for {self.same_greedy:.0%} by greedy search"
            )
        return (
            f"compared on {plural(self.sentences, 'sentence')} in both programs: {figures}; the same translation "
            f"for {self.same_greedy:.0%} by greedy search, and {self.same_beam:.0%} with a beam of {self.beam}"
        )


def select_texts(run: Any, texts: Sequence[str] | None, *, progress: bool = True) -> list[str]:
    """Return the texts that a run accepts, and print how many are left out. Without texts: unseen sources of the run,
    or prompts of a language model (`_make_prompts`). Raises `InputError` if the run accepts no text."""
    task, is_language = run.task, run.task.answers == "tokens"
    if texts is None and is_language:
        texts = _make_prompts(task, progress=progress)
    elif texts is None:
        try:
            texts = [pair[0] for pair in run.unseen(SENTENCES, 0)]
        except InputError as error:
            raise InputError(f"{error}, or give sentences for the comparison with --examples") from error
    accepted, reason = [], "there are no sentences on which to compare both programs"
    for text in texts:
        try:
            if is_language:
                task.parse(text)
            elif len(task.source_vocabulary.encode(text)) > task.longest_source:
                raise InputError(f"a sentence has more than {task.longest_source:,} tokens, the maximum")
            accepted.append(text)
        except InputError as error:
            reason = str(error)
    if not accepted:
        raise InputError(f"{reason}: give {'other ' * bool(texts)}sentences with --examples")
    if left_out := len(texts) - len(accepted):
        print_status(f"{left_out:,} of {len(texts):,} texts are left out: {reason}", show=progress)
    return accepted


def _make_prompts(task: TokenTask, *, progress: bool) -> list[str]:
    """Return unseen samples of a task as text, or random tokens if its text is missing. A sample with unknown
    tokens is left out, because its text is lost."""

    def accepted(samples: Tensor) -> Iterator[str]:
        for text in map(task.render, samples):
            with suppress(InputError):
                task.parse(text)
                yield text

    generator = make_generator(0, "certificate")
    size, count = min(PROMPT_TOKENS, task.longest), 5 * PROMPTS
    sample_len = size if isinstance(task, Text) else None
    prompts: list[str] = []
    with suppress(InputError):  # the text is missing or too short
        prompts += accepted(task.sample(count, generator, sample_len=sample_len, unseen=True).inputs)
    if not prompts:
        print_status("No text for the comparison: both programs read random tokens", show=progress)
        prompts += accepted(torch.randint(len(task.vocabulary), (count, size), generator=generator))
    return prompts[:PROMPTS]


def _batches(items: Sequence[Item], size: int, program: str, *, progress: bool) -> Iterator[Sequence[Item]]:
    begins = range(0, len(items), size)
    with counting_bar(f"Comparing with {program}", 0, len(begins), show=progress) as advance:
        for begin in begins:
            yield items[begin : begin + size]
            advance()


@torch.inference_mode()
def certify(
    run: Exportable, other: ConvertedModel, texts: Sequence[str], folder: Path, *, progress: bool = True
) -> Certificate:
    """Compare a run with its converted model in `folder` on `texts`, at least one, and return the certificate."""
    texts = sorted(texts, key=len)
    results = [_compare(run, other, batch) for batch in _batches(texts, BATCH_SIZE, other.program, progress=progress)]
    sums, differences = zip(*results, strict=True)
    tokens, *same = map(sum, zip(*sums, strict=True))
    measured: dict[str, Any] = {
        name: None if name in other.missing else largest([batch[name] for batch in differences]) for name in DIFFERENCES
    }
    same_tokens, same_greedy, same_beam = (count / len(texts) for count in same)
    return make_certificate(
        run.folder,
        other.program,
        folder,
        sentences=len(texts),
        tokens=tokens,
        same_tokens=same_tokens,
        same_greedy=same_greedy,
        same_beam=same_beam,
        largest_logit=largest([batch["largest_logit"] for batch in differences]),
        **measured,
        missing=dict(other.missing),
    )


def make_certificate(run: Path, program: str, folder: Path, *, largest_logit: float, **fields: Any) -> Certificate:
    """Return a certificate with `fields`, the limit for `largest_logit`, the versions of the programs, and the
    hashes of the model in the folder `run` and of all files in `folder`."""
    files = [run / "model.safetensors"] if (run / "model.safetensors").is_file() else []
    return Certificate(
        program=program,
        largest_logit=largest_logit,
        limit=MAX_DIFFERENCE * max(1.0, largest_logit),
        versions={name: version(name) for name in ("torch", program)} | {"regard": __version__},
        hashes={f"run/{path.name}": file_digest(path) for path in files}
        | {path.name: file_digest(path) for path in list_files(folder)},
        **fields,
    )


def read_certificate(folder: Path) -> Certificate:
    """Read the certificate of a converted model; raises `InputError` if the certificate is missing or damaged."""
    return read_json(folder / CERTIFICATE_NAME, Certificate, "convert the run again")


def matches_certificate(folder: Path) -> bool:
    """Return whether the files of a converted model match the hashes in its certificate."""
    try:
        hashes = read_certificate(folder).hashes
    except InputError:
        return False
    known = {name: digest for name, digest in hashes.items() if not name.startswith("run/")}
    return known == {path.name: file_digest(path) for path in list_files(folder) if path.name != CERTIFICATE_NAME}


def _compare(run: Exportable, other: ConvertedModel, texts: Sequence[str]) -> tuple[tuple[int, ...], dict[str, float]]:
    """Return the differences for a batch, after the number of its target tokens, and the numbers of its sentences
    with equal tokens, equal greedy translations, and equal translations by beam search."""
    source_ids = [run.task.source_vocabulary.encode(text) for text in texts]
    source = collate(source_ids)
    most = max(longest_answer(tokens, run.task.longest_target) for tokens in source_ids)
    device = next(run.model.parameters()).device
    same, ours = [_count_equal(source_ids, other.read(texts))], []
    for beam in (1, BEAM):
        # Other programs have one length limit per batch, so the run gets the same limit.
        candidates = search_batch(run.model, source.to(device), Search(beam=beam), most=most)
        ours.append([best.tokens for best, *_ in candidates])
        theirs = other.translate(source, beam=beam, most=most)
        # Programs count the end symbol differently, so only the first `most - 1` tokens of unfinished answers
        # are compared.
        same.append(_count_equal(*([row[: most - 1] for row in rows] for rows in (ours[-1], theirs))))
    batch = PairBatch(source, collate(ours[0]))
    moved, external, steps = batch.to(device), other.force(batch), batch.target != PAD
    with record_own(run.model) as records:
        logits = run.model(moved.source, moved.source_mask, moved.target_in).cpu()
    log_probabilities = token_log_probabilities(logits, batch)
    differences = {
        "log_probabilities": _difference(log_probabilities, external.log_probabilities, steps),
        "largest_logit": largest_size(logits[steps]),
    }
    if external.logits is not None:
        differences["logits"] = _difference(logits, external.logits, steps[..., None])
    if external.weights is not None:
        assert records.keys() == external.weights.keys()
        # Queries that are padding do not count.
        queries = {name: batch.source_mask if name.startswith("encoder") else steps for name in records}
        differences["weights"] = largest(
            [
                _difference(record.weights.cpu(), external.weights[name], queries[name][:, None, :, None])
                for name, record in records.items()
            ]
        )
    return (int(steps.sum()), *same), differences


def _count_equal(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> int:
    return sum(mine == yours for mine, yours in zip(ours, theirs, strict=True))


def token_log_probabilities(logits: Tensor, batch: PairBatch) -> Tensor:
    """Return the log-probabilities (B, Tt) of the target tokens of a batch, from logits (B, Tt, V)."""
    return logits.log_softmax(-1).gather(2, batch.target[..., None]).squeeze(-1)


def _difference(ours: Tensor, theirs: Tensor, mask: Tensor) -> float:
    """Return the largest absolute difference where `mask` is True; NaN if a value is NaN."""
    return float(torch.where(mask, (ours - theirs).abs(), 0.0).max())


def largest_size(logits: Tensor) -> float:
    """Return the largest absolute value of logits, without those of forbidden tokens."""
    return float(logits.abs().masked_fill(logits.abs() >= MASKED, 0.0).max())


def largest(values: Sequence[float]) -> float:
    """Return the largest value; NaN if a value is NaN."""
    return float(torch.tensor(values, dtype=torch.float64).max())  # Python's max may skip NaN


@torch.inference_mode()
def certify_language_model(
    run: Any, other: Any, texts: Sequence[str], folder: Path, *, progress: bool = True
) -> Certificate:
    """Compare a run with its `ConvertedLanguageModel` in `folder` on `texts`, and return the certificate. A
    prompt is the beginning of a text that leaves room for a continuation, of 100 tokens or half the context."""
    texts, longest = sorted(texts, key=len), run.task.longest
    limit = max(1, longest - NEW_TOKENS, longest // 2)
    new = min(NEW_TOKENS, longest - limit)
    encoded: list[list[int]] = [run.task.parse(text)[0].tolist() for text in texts]
    prompts, continuations, theirs = [tokens[:limit] for tokens in encoded], list[list[int]](), list[list[int]]()
    differences: list[list[float]] = []
    for batch in _batches(prompts, PROMPT_BATCH_SIZE, other.program, progress=progress):
        ours: list[list[int]] = [[] for _ in batch]
        if new:
            ours = [best.tokens for best, *_ in generate(run.model, batch, Search(), most=new)]
            theirs += other.continue_greedily(batch, new)
            continuations += ours
        differences.append(_compare_logits(run, other, [a + b for a, b in zip(batch, ours, strict=True)]))
    log_probabilities, logits, weights, largest_logit = map(largest, zip(*differences, strict=True))
    return make_certificate(
        run.folder,
        other.program,
        folder,
        sentences=len(texts),
        tokens=sum(map(len, prompts)) + sum(map(len, continuations)),
        continuation=new,
        same_tokens=_count_equal(encoded, other.read(texts)) / max(len(texts), 1),
        log_probabilities=log_probabilities,
        logits=logits,
        largest_logit=largest_logit,
        weights=weights,
        same_greedy=_count_equal(continuations, theirs) / max(len(continuations), 1),
        same_beam=None,
        missing={"same_beam": "language models are compared by greedy search"},
    )


def _compare_logits(run: Any, other: Any, rows: Sequence[Sequence[int]]) -> list[float]:
    """Return the largest differences of log-probabilities, logits and weights on sequences, and the largest
    logit. Sequences are padded on the right, so that no token attends to padding."""
    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    present = torch.arange(longest) < torch.tensor([len(row) for row in rows])[:, None]
    with record_own(run.model) as records:
        logits = run.model(tokens.to(next(run.model.parameters()).device)).cpu()
    their_logits, their_weights = other.force(tokens)
    log_probabilities, their_log_probabilities = (
        values[:, :-1].log_softmax(-1).gather(2, tokens[:, 1:, None]) for values in (logits, their_logits)
    )
    layers = zip(records.values(), their_weights, strict=True)
    differences = [
        [(log_probabilities - their_log_probabilities)[present[:, 1:]]],
        [(logits - their_logits)[present]],
        [(ours.weights.cpu() - theirs).transpose(1, 2)[present] for ours, theirs in layers],
    ]
    sizes = [largest([float(part.abs().max()) for part in parts if part.numel()]) for parts in differences]
    return [*sizes, largest_size(logits[present])]

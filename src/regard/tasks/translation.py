"""Translation: learn to translate from parallel text."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from regard.data import TokenizerKind
from regard.data.bleu_tokenizer import check_bleu_tokenizer
from regard.errors import InputError, check_range
from regard.progress import print_status, reading_bar
from regard.tasks.batch import BatchContext, BatchSettings
from regard.tasks.pairs import SequenceTask

if TYPE_CHECKING:
    from regard.data.buckets import Buckets
    from regard.data.corpus import Corpus
    from regard.data.guided_alignment import GuidedAlignment
    from regard.data.parallel import PairSource, TextDigest
    from regard.data.unknown_tokens import UnknownShares
    from regard.data.vocabulary import LearnedVocabulary

Part = Literal["train", "valid", "test"]
HUB_SPLITS: dict[Part, str] = {"train": "train", "valid": "validation", "test": "test"}
"""Names of the parts of a data set on the Hub."""
MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000
PROGRESS_BYTES = 200_000_000
"""Size of a text in bytes above which a progress bar is shown."""


@dataclass(frozen=True, kw_only=True)
class TranslationTaskConfig:
    """Parallel text and tokenization."""

    train: tuple[str, ...] = ()
    """Training text: a source file and a target file with one sentence per line, or one file of tab-separated
    pairs. Files are plain or .gz. With --weights, give several texts in the same format."""
    weights: tuple[float, ...] = ()
    """Sampling weights of several training texts: --train a.tsv b.tsv --weights 1 4 draws four pairs from b.tsv
    for each pair from a.tsv, whatever the sizes of the files. Small texts are repeated. Vocabularies are
    learned from all texts."""
    valid: tuple[str, ...] = ()
    """Validation text for selecting the best model, in the same format. Without a validation text, the last
    model is saved."""
    test: tuple[str, ...] = ()
    """Test text for `regard test`, in the same format."""
    hub: str | None = None
    """Hugging Face data set with training, validation and test text: a name on the Hub, or a folder (needs the
    extra hub)."""
    languages: tuple[str, ...] = ()
    """Source and target columns of the data set, such as: de en."""
    guide: str | None = None
    """Word alignment of the training text, one line in Moses format (0-0 1-2) per pair. The first
    head of the penultimate layer learns this alignment (Garg et al. 2019)."""
    tokenizer: TokenizerKind = "bpe"
    """Tokenizer: subwords (bpe or unigram), words, or characters. Only imported models use sentencepiece
    and codes."""
    vocab_size: int = 12_000
    """Maximum vocabulary size."""
    joint: bool = True
    """Share one vocabulary and one embedding between both languages. --no-joint: use separate vocabularies."""
    lowercase: bool = False
    """Lowercase all text."""
    max_len: int = 256
    """Maximum sentence length in training, in tokens. Longer sentences are skipped."""
    bleu_tokenize: str | None = None
    """sacrebleu tokenizer for BLEU: 13a, intl, zh, char, none, ja-mecab or ko-mecab. Default: chosen by the
    script of the references, such as char or zh for text without spaces."""
    strict: bool = False
    """Stop at the first line that would be skipped."""
    lenient: bool = False
    """Skip broken lines instead of stopping if the files have different numbers of lines, or if more than 1% of
    the lines contain invalid UTF-8."""

    def __post_init__(self) -> None:
        """Raise `InputError` if a value is out of range, and make all paths absolute for use in any folder."""
        check_range("vocab_size", self.vocab_size, 5, 10**7)
        check_range("max_len", self.max_len, 1, 100_000)
        if self.bleu_tokenize is not None:
            check_bleu_tokenizer(self.bleu_tokenize, installed=False)
        if self.strict and self.lenient:
            raise InputError(
                "strict stops at a broken line, but lenient skips broken lines: choose one of these flags"
            )
        for name, paths in (("train", self.train), ("valid", self.valid), ("test", self.test)):
            if len(paths) > 2 and not (name == "train" and self.weights):
                hint = "; for several texts add --weights" if name == "train" else ""
                raise InputError(
                    f"{name} has {len(paths)} files: give a source and a target, or one file of pairs{hint}"
                )
            object.__setattr__(self, name, tuple(str(Path(path).absolute()) for path in paths))
        if self.guide is not None:
            if self.hub is not None or self.weights:
                raise InputError("guide needs one training text in files: omit hub and weights")
            object.__setattr__(self, "guide", str(Path(self.guide).absolute()))
        if self.hub is not None and self.train:
            raise InputError("train and hub are both given: leave out one of these flags")
        if self.hub is not None and len(self.languages) != 2:
            raise InputError(
                "hub needs the source and target columns: give --languages, such as --languages de en"
            )
        self._check_weights()

    def _check_weights(self) -> None:
        if not self.weights:
            return
        if len(self.train) not in (len(self.weights), 2 * len(self.weights)):
            raise InputError(
                f"train has {len(self.train)} files for {len(self.weights)} weights: give one file of pairs, or "
                "a source and a target file, per weight"
            )
        for weight in self.weights:
            if not MIN_WEIGHT <= weight <= MAX_WEIGHT:  # also true for NaN
                raise InputError(f"weight {weight:g} is out of range: choose from {MIN_WEIGHT} to {MAX_WEIGHT:,}")

    @property
    def corpora(self) -> list[tuple[str, ...]]:
        """Files of each training text; without weights, there is a single text."""
        files = len(self.train) // (len(self.weights) or 1)
        return [self.train[begin : begin + files] for begin in range(0, len(self.train), files or 1)]

    def text(self, part: Part) -> "PairSource | None":
        """Return the training, validation or test text, or None if no text is given. Several training texts are
        concatenated.

        Raises `InputError` if the text cannot be read.
        """
        from regard.data.parallel import ConcatenatedText

        texts = self._texts(part)
        return ConcatenatedText(texts) if len(texts) > 1 else next(iter(texts), None)

    def digests(self, *, progress: bool = True) -> "dict[str, list[TextDigest]]":
        """Return digests of the training text, the validation text and the word alignment by flag. All files
        are read.

        Raises `InputError` if a file cannot be read.
        """
        from regard.data.parallel import file_digest

        parts: tuple[Part, ...] = ("train", "valid")
        texts = {part: text for part in parts if (text := self.text(part)) is not None}
        digests: dict[str, list[TextDigest]] = {}
        before = 0
        size = sum(text.bytes for text in texts.values())
        with reading_bar("check the text", size, show=progress and size > PROGRESS_BYTES) as on_bytes:
            for part, text in texts.items():
                text.on_bytes = lambda done, before=before: on_bytes(before + done)  # type: ignore[misc]
                digests[part] = text.digests()
                before += text.bytes
        if self.guide is not None:
            digests["guide"] = [file_digest(Path(self.guide))]
        return digests

    def training_text(self) -> "PairSource":
        """Return the training text. Raises `InputError` if no text is given."""
        text = self.text("train")
        if text is None:
            raise InputError("translation needs training text: give --train SOURCE TARGET, or --train PAIRS.tsv")
        return text

    def training_texts(self) -> "list[PairSource]":
        """Return the training texts, one per weight. Raises `InputError` if no text is given."""
        self.training_text()
        return self._texts("train")

    def check_files(self) -> None:
        """Raise `InputError` if validation or test text is broken, or if the word alignment does not match the
        text.

        Test text may be missing, because it is read later.
        """
        for part in (self.valid, self.test if all(Path(path).exists() for path in self.test) else ()):
            if part and not self.lenient:
                from regard.data.parallel import ParallelText

                ParallelText(part).check()
        if self.guide is not None and self.train:
            from regard.data.guided_alignment import check_alignment_file

            check_alignment_file(Path(self.guide), Path(self.train[0]))

    def _texts(self, part: Part) -> "list[PairSource]":
        strict = self.strict and part == "train"
        if self.hub is not None:
            from regard.data.hub import HubText  # imports a large library

            return [HubText(self.hub, self.languages, HUB_SPLITS[part], strict=strict)]
        from regard.data.parallel import ParallelText

        files = {"train": self.corpora, "valid": [self.valid], "test": [self.test]}[part]
        return [ParallelText(paths, strict=strict, lenient=self.lenient) for paths in files if paths]


class Translation(SequenceTask):
    """Translation with vocabularies learned from the training text."""

    name = "translation"
    summary = "translate sentences, learned from parallel text"
    config_class = TranslationTaskConfig
    draws = False
    texts = ("train", "weights", "valid", "test", "hub", "languages", "guide", "bleu_tokenize")
    loose = ("max_len", "strict", "lenient")
    defaults = {
        "model": "transformer",
        "embedding": 128,
        "dropout": 0.3,
        "lr": 0.003,
        "steps": 12_000,
    }

    config: TranslationTaskConfig
    source_vocabulary: "LearnedVocabulary"
    target_vocabulary: "LearnedVocabulary"

    def __init__(
        self, config: TranslationTaskConfig, source: "LearnedVocabulary", target: "LearnedVocabulary"
    ) -> None:
        self.config = config
        self.source_vocabulary, self.target_vocabulary = source, target
        self.shared = config.joint
        self.unknown: list[UnknownShares] = []
        """Unknown tokens in the training and validation texts, set by `batches`."""

    @classmethod
    def prepare(cls, config: TranslationTaskConfig, folder: Path, *, progress: bool = True) -> Self:
        """Return the task with vocabularies learned from the text or stored in `folder`."""
        from regard.data.prepare import TokenizerConfig, learn_vocabularies

        config.check_files()  # check before the preparation, which can take minutes
        cutting = TokenizerConfig(
            kind=config.tokenizer, size=config.vocab_size, joint=config.joint, lowercase=config.lowercase
        )
        text = config.training_text()
        return cls(config, *learn_vocabularies(text, cutting, folder, progress=progress))

    @classmethod
    def digests(cls, config: TranslationTaskConfig, *, progress: bool = True) -> "dict[str, list[TextDigest]]":
        """Return digests of the text by flag."""
        return config.digests(progress=progress)

    @classmethod
    def restore(cls, config: TranslationTaskConfig, files: Mapping[str, str]) -> Self:
        """Create the task with the vocabularies of a run. Raises `InputError` if the vocabularies are damaged."""
        from regard.data.prepare import read_vocabularies

        return cls(config, *read_vocabularies(files["source"], files["target"]))

    @property
    def files(self) -> dict[str, str]:
        """Both vocabularies as JSON, by side."""
        return {"source": self.source_vocabulary.to_json(), "target": self.target_vocabulary.to_json()}

    def batches(self, settings: BatchSettings, beginning: BatchContext) -> "Buckets":
        """Prepare the corpora, and return batches of sentences of similar length, sampled by the weights of the
        corpora."""
        from regard.data.bpe_dropout import BpeDropout
        from regard.data.buckets import BatchPosition, Buckets
        from regard.data.mixture import Mixture
        from regard.data.prepare import prepare_corpus

        self.config.check_files()
        if settings.merge_dropout and self.config.guide is not None:
            raise InputError("guide aligns tokens, which merge_dropout changes: leave out one of these flags")
        corpora = [
            prepare_corpus(
                text,
                (self.source_vocabulary, self.target_vocabulary),
                beginning.folder,
                max_len=self.config.max_len,
                strict=self.config.strict,
                progress=beginning.progress,
            )
            for text in self.config.training_texts()
        ]
        corpus = Mixture(tuple(corpora), self.config.weights) if len(corpora) > 1 else corpora[0]
        print_status(f"Training on {corpus.summary}", show=beginning.progress)
        self.unknown = self._unknown(corpora)
        if shares := "; ".join(map(str, self.unknown)):
            print_status(f"Unknown tokens: {shares}", show=beginning.progress)
        for warning in (warning for shares in self.unknown for warning in shares.warnings):
            print_status(f"regard: warning: {warning}", show=not beginning.sharing[0])
        guide = self._guide(corpora[0], progress=beginning.progress)
        recut = None
        if settings.merge_dropout:
            source, target = (
                BpeDropout(each, settings.merge_dropout, settings.seed)
                for each in (self.source_vocabulary, self.target_vocabulary)
            )
            recut = (source, target)
        place, most = BatchPosition(*beginning.place), settings.batchsize
        return Buckets(corpus, settings.tokens, settings.seed, place, recut, most, guide)

    def _unknown(self, corpora: "list[Corpus]") -> "list[UnknownShares]":
        """Return the unknown tokens in each training text and in the validation text."""
        from regard.data.unknown_tokens import unknown_in_pairs

        names = ["training"]
        if len(corpora) > 1:
            names = [
                f"training {'and '.join(Path(path).name for path in files)}" for files in self.config.corpora
            ]
        shares = [corpus.unknown(name) for corpus, name in zip(corpora, names, strict=True)]
        if (valid := self.config.text("valid")) is not None:
            vocabularies = (self.source_vocabulary, self.target_vocabulary)
            shares.append(unknown_in_pairs("validation", list(valid), vocabularies))
        return shares

    def _guide(self, corpus: "Corpus", *, progress: bool) -> "GuidedAlignment | None":
        """Return the word alignment of the corpus, or None without guided alignment."""
        if self.config.guide is None:
            return None
        from regard.data.guided_alignment import prepare_alignment
        from regard.data.parallel import ParallelText

        return prepare_alignment(
            Path(self.config.guide),
            ParallelText(self.config.train, lenient=self.config.lenient),
            (self.source_vocabulary, self.target_vocabulary),
            corpus,
            max_len=self.config.max_len,
            progress=progress,
        )

    @property
    def longest_source(self) -> int:
        """Maximum number of tokens of a source: four times the maximum length in training."""
        return 4 * self.config.max_len

    @property
    def longest_target(self) -> int:
        """Maximum number of tokens of a translation: the same as for a source."""
        return self.longest_source

"""Translation: learn to translate from parallel text, and the options of `regard train translation`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from regard.arguments import Limits, check_fields
from regard.data.bleu_tokenizer import check_bleu_tokenizer
from regard.data.parallel import ConcatenatedText, PairSource, ParallelText, TextDigest, file_digest
from regard.data.unknown_tokens import UnknownShares, check_known, describe_splitting, unknown_in_pairs
from regard.data.vocabulary import LearnedVocabulary, TokenizerKind
from regard.errors import InputError, plural, unknown_choice
from regard.progress import print_status, reading_bar
from regard.tasks.batch import BatchContext, BatchSettings
from regard.tasks.pairs import SequenceTask

if TYPE_CHECKING:
    from regard.data.buckets import Buckets
    from regard.data.corpus import Corpus
    from regard.data.prepare import TokenizerConfig

Part = Literal["train", "valid", "test"]
HUB_SPLITS: dict[Part, str] = {"train": "train", "valid": "validation", "test": "test"}
"""Names of the parts of a data set on the Hub."""
NORMALIZATIONS = ("nfkc", "quotes")
MIN_WEIGHT, MAX_WEIGHT = 0.001, 1000
PROGRESS_BYTES = 200_000_000  # Size of a text in bytes above which a progress bar is shown


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
    extra_valid: tuple[str, ...] = ()
    """More validation texts, each as NAME=SOURCE,TARGET or NAME=PAIRS. Their figures end with /NAME in
    metrics.jsonl. --criterion selects the text that decides; by default, it is the text of --valid."""
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
    tokenizer: str = "bpe"
    """Tokenizer to learn: subwords (bpe or unigram), words, or characters. Or a file: a SentencePiece model
    (.model or .spm), the vocabulary of another run (tokenizer/source.json in its folder), or a list of words, one
    a line. With --no-joint, SOURCE,TARGET names two files. Pairs of pieces that occur fewer than 5 times are not
    merged; in scripts without spaces in the text, subwords occur at least 100 times."""
    vocab_size: Annotated[int, Limits(5, 10**7)] = 12_000
    """Maximum vocabulary size, for a tokenizer that is learned."""
    symbols: tuple[str, ...] = ()
    """Symbols that stay whole and unchanged by normalization, such as "<2en>" (a language tag at the beginning of
    a source) or __NUM__ (a placeholder). Or the name of a file with one symbol a line."""
    normalize: tuple[str, ...] = ()
    """Normalization of all text: nfkc (Unicode NFKC instead of NFC, and single spaces), quotes (straight quotes).
    The run stores it with the vocabulary. References of BLEU and chrF are not normalized."""
    byte_fallback: bool = False
    """Split characters that are not in the vocabulary into bytes, which adds 256 symbols (bpe and unigram)."""
    joint: bool = True
    """Share one vocabulary and one embedding between both languages. --no-joint: use separate vocabularies."""
    lowercase: bool = False
    """Lowercase all text."""
    max_len: Annotated[int, Limits(1, 100_000)] = 256
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
        check_fields(self)
        self._check_tokenization()
        if self.bleu_tokenize is not None:
            check_bleu_tokenizer(self.bleu_tokenize, installed=False)
        if self.strict and self.lenient:
            raise InputError("strict stops at a broken line, but lenient skips broken lines: choose one of these flags")
        for name, paths in (("train", self.train), ("valid", self.valid), ("test", self.test)):
            if len(paths) > 2 and not (name == "train" and self.weights):
                hint = "; for several texts add --weights" if name == "train" else ""
                raise InputError(
                    f"{name} has {len(paths)} files: give a source and a target, or one file of pairs{hint}"
                )
            object.__setattr__(self, name, tuple(str(Path(path).absolute()) for path in paths))
        object.__setattr__(self, "extra_valid", tuple(map(_absolute_text, self.extra_valid)))
        if self.extra_valid and not (self.valid or self.hub):
            raise InputError("extra_valid adds to the validation text: also give --valid")
        if len(self.extra_paths) < len(self.extra_valid):
            raise InputError("extra_valid gives two texts the same name: choose another name")
        if self.guide is not None:
            if self.hub is not None or self.weights:
                raise InputError("guide needs one training text in files: omit hub and weights")
            object.__setattr__(self, "guide", str(Path(self.guide).absolute()))
        if self.hub is not None and self.train:
            raise InputError("train and hub are both given: leave out one of these flags")
        if self.hub is not None and len(self.languages) != 2:
            raise InputError("hub needs the source and target columns: give --languages, such as --languages de en")
        self._check_weights()

    def _check_weights(self) -> None:
        if not self.weights:
            return
        if len(self.train) not in (len(self.weights), 2 * len(self.weights)):
            raise InputError(
                f"train has {plural(len(self.train), 'file')} for {plural(len(self.weights), 'weight')}: give "
                "one file of pairs, or a source and a target file, per weight"
            )
        for weight in self.weights:
            if not MIN_WEIGHT <= weight <= MAX_WEIGHT:  # also true for NaN
                raise InputError(f"weight {weight:g} is out of range: choose from {MIN_WEIGHT} to {MAX_WEIGHT:,}")

    def _check_tokenization(self) -> None:
        names = tuple(name for names in self.normalize for name in names.split(","))
        object.__setattr__(self, "normalize", names)
        for name in names:
            if name not in NORMALIZATIONS:
                raise unknown_choice("normalization", name, NORMALIZATIONS)
        if self.symbols:
            from regard.data.subwords import check_symbols

            object.__setattr__(self, "symbols", check_symbols(self.symbols))
        if self.tokenizer in get_args(TokenizerKind):
            return
        if "." not in self.tokenizer and "/" not in self.tokenizer:
            learned = list(get_args(TokenizerKind))[:4]
            raise unknown_choice("tokenizer", self.tokenizer, learned, other="a file, such as bpe.model")
        files = [str(Path(file).absolute()) for file in self.tokenizer.split(",")]
        if len(files) > (1 if self.joint else 2):
            raise InputError(f"tokenizer has {len(files)} files: give one file, or with --no-joint SOURCE,TARGET")
        object.__setattr__(self, "tokenizer", ",".join(files))
        flags = {"symbols": self.symbols, "normalize": self.normalize, "byte_fallback": self.byte_fallback}
        for flag in (name for name, value in flags.items() if value):
            raise InputError(
                f"{flag} applies to a vocabulary that is learned, but {files[0]!r} has its own rules (in "
                f"SentencePiece user_defined_symbols, normalization_rule_name, byte_fallback): leave out {flag}"
            )

    @property
    def tokenization(self) -> "TokenizerConfig":
        """Settings for learning the vocabularies."""
        from regard.data.prepare import TokenizerConfig

        same = ("joint", "lowercase", "normalize", "symbols", "byte_fallback")
        options: dict[str, Any] = {"kind": self.tokenizer, "size": self.vocab_size}
        return TokenizerConfig(**options, **{name: getattr(self, name) for name in same})

    @property
    def extra_paths(self) -> dict[str, list[str]]:
        named = (text.partition("=") for text in self.extra_valid)
        return {name: files.split(",") for name, _, files in named}

    def extra_texts(self) -> dict[str, PairSource]:
        """Return the further validation texts by name."""
        return {name: ParallelText(paths, lenient=self.lenient) for name, paths in self.extra_paths.items()}

    @property
    def corpora(self) -> list[tuple[str, ...]]:
        """Files of each training text; without weights, there is a single text."""
        files = len(self.train) // (len(self.weights) or 1)
        return [self.train[begin : begin + files] for begin in range(0, len(self.train), files or 1)]

    def text(self, part: Part) -> PairSource | None:
        """Return the training, validation or test text, or None if none is given. Training texts are concatenated."""
        texts = self._texts(part)
        return ConcatenatedText(texts) if len(texts) > 1 else next(iter(texts), None)

    def digests(self, *, progress: bool = True) -> dict[str, list[TextDigest]]:
        """Return digests of the training text, validation text and word alignment by flag; all files are read."""
        parts: tuple[Part, ...] = ("train", "valid")
        texts = {part: text for part in parts if (text := self.text(part)) is not None}
        whole = ConcatenatedText(list(texts.values()))
        with reading_bar("check the text", whole.bytes, show=progress and whole.bytes > PROGRESS_BYTES) as on_bytes:
            whole.on_bytes = on_bytes
            digests: dict[str, list[TextDigest]] = {
                part: text.digests() for part, text in zip(texts, whole.parts(), strict=True)
            }
        if self.guide is not None:
            digests["guide"] = [file_digest(Path(self.guide))]
        if extra := [digest for text in self.extra_texts().values() for digest in text.digests()]:
            digests["extra_valid"] = extra
        return digests

    def training_text(self) -> PairSource:
        text = self.text("train")
        if text is None:
            raise InputError("translation needs training text: give --train SOURCE TARGET, or --train PAIRS.tsv")
        return text

    def training_texts(self) -> list[PairSource]:
        """Return the training texts, one per weight."""
        self.training_text()
        return self._texts("train")

    def check_files(self) -> None:
        """Raise `InputError` if text is broken or has no pairs, or if the word alignment does not match the text. Test
        text may be missing or empty, because it is read later."""
        test = self.test if all(Path(path).exists() for path in self.test) else ()
        for part in (self.valid, test, *self.extra_paths.values()):
            if part and not self.lenient:
                ParallelText(part).check()
        if self.hub is None:
            from regard.data.prepare import check_first_pair  # imports the library of subwords

            texts = [("training", text) for text in self._texts("train")]
            texts += [("validation", text) for text in self._texts("valid")]
            texts += [(f"validation {name}", text) for name, text in self.extra_texts().items()]
            for description, text in texts:
                check_first_pair(text, description)
        if self.guide is not None and self.train:
            from regard.data.buckets import check_alignment_file

            check_alignment_file(Path(self.guide), Path(self.train[0]))

    def _texts(self, part: Part) -> list[PairSource]:
        strict = self.strict and part == "train"
        if self.hub is not None:
            from regard.data.datasets import HubText  # imports a large library

            return [HubText(self.hub, self.languages, HUB_SPLITS[part], strict=strict)]
        files = {"train": self.corpora, "valid": [self.valid], "test": [self.test]}[part]
        return [ParallelText(paths, strict=strict, lenient=self.lenient) for paths in files if paths]


def _absolute_text(text: str) -> str:
    """Return NAME=FILES with absolute paths."""
    name, equals, files = text.partition("=")
    paths = files.split(",")
    if not (name and equals and files) or "/" in name or len(paths) > 2:
        raise InputError(f"extra_valid {text!r} is not NAME=SOURCE,TARGET: give such as news=news.de,news.en")
    return f"{name}={','.join(str(Path(path).absolute()) for path in paths)}"


class Translation(SequenceTask):
    """Translation with vocabularies learned from the training text."""

    name = "translation"
    summary = "translate sentences, learned from parallel text"
    config_class = TranslationTaskConfig
    draws = False
    texts = ("train", "weights", "valid", "extra_valid", "test", "hub", "languages", "guide", "bleu_tokenize")
    loose = ("max_len", "strict", "lenient")
    defaults = {"model": "transformer", "embedding": 128, "dropout": 0.3, "lr": 0.003, "steps": 12_000}

    config: TranslationTaskConfig
    source_vocabulary: LearnedVocabulary
    target_vocabulary: LearnedVocabulary

    def __init__(self, config: TranslationTaskConfig, source: LearnedVocabulary, target: LearnedVocabulary) -> None:
        self.config, self.shared = config, config.joint
        self.source_vocabulary, self.target_vocabulary = source, target
        self.unknown: list[UnknownShares] = []  # in the training and validation texts, set by `batches`

    @property
    def vocabularies(self) -> tuple[LearnedVocabulary, LearnedVocabulary]:
        return self.source_vocabulary, self.target_vocabulary

    @classmethod
    def prepare(cls, config: TranslationTaskConfig, folder: Path, *, progress: bool = True) -> Self:
        from regard.data.prepare import learn_vocabularies, read_own_vocabularies

        config.check_files()  # check before the preparation, which can take minutes
        for path in config.test:
            if not Path(path).exists():
                print_status(f"regard: warning: the test text {path!r} does not exist yet", show=progress)
        text = config.training_text()
        if config.tokenizer not in get_args(TokenizerKind):  # files of the user's own vocabularies
            files = config.tokenizer.split(",")
            return cls(config, *read_own_vocabularies(files, lowercase=config.lowercase, progress=progress))
        return cls(config, *learn_vocabularies(text, config.tokenization, folder, progress=progress))

    @classmethod
    def digests(cls, config: TranslationTaskConfig, *, progress: bool = True) -> dict[str, list[TextDigest]]:
        return config.digests(progress=progress)

    @classmethod
    def restore(cls, config: TranslationTaskConfig, files: Mapping[str, str]) -> Self:
        from regard.data.prepare import read_vocabularies

        return cls(config, *read_vocabularies(files["source"], files["target"]))

    @property
    def files(self) -> dict[str, str]:
        return {"source": self.source_vocabulary.to_json(), "target": self.target_vocabulary.to_json()}

    def batches(self, settings: BatchSettings, beginning: BatchContext) -> "Buckets":
        from regard.data.buckets import BatchPosition, Buckets, prepare_alignment
        from regard.data.corpus import Mixture
        from regard.data.prepare import prepare_corpus
        from regard.data.subwords import BpeDropout

        self.config.check_files()
        recut = None
        if settings.merge_dropout:
            source, target = (BpeDropout(each, settings.merge_dropout, settings.seed) for each in self.vocabularies)
            recut = (source, target)
        options: dict[str, Any] = {"max_len": self.config.max_len, "progress": beginning.progress}
        corpora = [
            prepare_corpus(text, self.vocabularies, beginning.folder, strict=self.config.strict, **options)
            for text in self.config.training_texts()
        ]
        corpus = Mixture(tuple(corpora), self.config.weights) if len(corpora) > 1 else corpora[0]
        print_status(f"Training on {corpus.summary}", show=beginning.progress)
        self.unknown = self._unknown(corpora, show=not beginning.sharing[0])
        for trained in self.unknown[: len(corpora)]:
            check_known(trained)
        if shares := "; ".join(map(str, self.unknown)):
            print_status(f"Unknown tokens: {shares}", show=beginning.progress)
        counts = [sum(sides[1:], sides[0]) for sides in zip(*(c.symbol_counts() for c in corpora), strict=True)]
        line, unsuitable = describe_splitting(self.unknown, counts, self.vocabularies)
        print_status(line, show=beginning.progress)
        warnings = [warning for shares in self.unknown for warning in shares.warnings]
        for warning in (*warnings, *unsuitable):
            print_status(f"regard: warning: {warning}", show=not beginning.sharing[0])
        guide = None
        if self.config.guide is not None:
            text = ParallelText(self.config.train, lenient=self.config.lenient)
            guide = prepare_alignment(Path(self.config.guide), text, self.vocabularies, corpora[0], **options)
        place, most = BatchPosition(*beginning.place), settings.batchsize
        return Buckets(corpus, settings.tokens, settings.seed, place, recut, most, guide)

    def _unknown(self, corpora: "list[Corpus]", *, show: bool) -> list[UnknownShares]:
        """Return the unknown tokens in each training text and in the validation texts, and warn about overlaps."""
        from regard.data.prepare import describe_learned

        names = ["training"]
        if len(corpora) > 1:
            names = [f"training {' and '.join(Path(path).name for path in files)}" for files in self.config.corpora]
        shares = [corpus.unknown(name) for corpus, name in zip(corpora, names, strict=True)]
        texts = {"": self.config.text("valid"), **self.config.extra_texts()}
        for name, text in texts.items():
            if text is not None:
                pairs, description = list(text), f"validation {name}".strip()
                shares.append(unknown_in_pairs(description, pairs, self.vocabularies))
                if learned := describe_learned(pairs, self.config.training_text()):
                    print_status(
                        f"regard: warning: {description} text: {learned}, so its figures and the best model by "
                        "them say little about other text; give other pairs",
                        show=show,
                    )
        return shares

    @property
    def longest_source(self) -> int:
        return 4 * self.config.max_len

    @property
    def longest_target(self) -> int:
        return self.longest_source

"""Translation: from one language to another, learned from parallel text."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from regard.data import TokenizerKind
from regard.data.bleu_tokenizer import check_bleu_tokenizer
from regard.errors import InputError, check_range
from regard.progress import print_status, reading_bar
from regard.tasks.pairs import SequenceTask
from regard.tasks.source import BatchSettings, Beginning

if TYPE_CHECKING:
    from regard.data.buckets import Buckets
    from regard.data.corpus import Corpus
    from regard.data.guided_alignment import GuidedAlignment
    from regard.data.parallel import PairSource, TextDigest
    from regard.data.prepare import CorpusPreparation
    from regard.data.unknown_tokens import UnknownShares
    from regard.data.vocabulary import LearnedVocabulary

Part = Literal["train", "valid", "test"]
HUB_SPLITS: dict[Part, str] = {"train": "train", "valid": "validation", "test": "test"}
"""What the parts of a data set are called on the Hub."""
LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1000
MUCH = 200_000_000
"""Bytes of text whose reading is shown."""


@dataclass(frozen=True, kw_only=True)
class TranslationConfig:
    """Parallel text, and how it is cut into tokens."""

    train: tuple[str, ...] = ()
    """Text to train on: a source and a target file with a line for each sentence, or one file of tab-separated
    pairs; plain or .gz. With weights: one such text after the other, all in the same form."""
    weights: tuple[float, ...] = ()
    """Train on several texts, and draw pairs from each in proportion to its weight, such as: --train a.tsv b.tsv
    --weights 1 4, for four pairs of b.tsv to each one of a.tsv, whatever their sizes: a small text is gone
    through more often. Vocabularies are learned from all of them, one after the other."""
    valid: tuple[str, ...] = ()
    """Text to choose the best model by, in the same form. None: the last model is kept."""
    test: tuple[str, ...] = ()
    """Text that `regard test` reports on, in the same form."""
    hub: str | None = None
    """Data set to take train, validation and test text from instead: its name on the Hugging Face Hub, or a
    folder (needs the extra hub)."""
    languages: tuple[str, ...] = ()
    """Columns of source and target in the data set, such as: de en."""
    guide: str | None = None
    """Links between the words of the training text, a line in Moses' format (0-0 1-2) for each of its lines, by
    which a head of attention is guided (Garg et al. 2019): the first one of the last layer but one."""
    tokenizer: TokenizerKind = "bpe"
    """How text is cut into tokens: subwords by byte-pair encoding (bpe) or unigram, words, or characters; by the
    vocabulary that an imported model came with (sentencepiece, codes)."""
    vocab_size: int = 12_000
    """Symbols of the vocabulary, at most."""
    joint: bool = True
    """One vocabulary, and one embedding, for both languages; --no-joint: one for each."""
    lowercase: bool = False
    """Put all text into lower case."""
    max_len: int = 256
    """Longest sentence in training (tokens); longer ones are left out."""
    bleu_tokenize: str | None = None
    """sacrebleu's tokenizer that BLEU is worked out with: 13a, intl, zh, char, none, ja-mecab or ko-mecab. None:
    what fits the script of the references, which is char or zh for text without blanks."""
    strict: bool = False
    """Stop at the first line that would be left out."""
    lenient: bool = False
    """Go on where files have not as many lines, or are not UTF-8 in more than one line of a hundred, and leave
    such lines out, instead of stopping."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range; paths become absolute, as runs are used from
        anywhere."""
        check_range("vocab_size", self.vocab_size, 5, 10**7)
        check_range("max_len", self.max_len, 1, 100_000)
        if self.bleu_tokenize is not None:
            check_bleu_tokenizer(self.bleu_tokenize, installed=False)
        if self.strict and self.lenient:
            raise InputError("strict stops at a broken line, lenient leaves it out: choose one")
        for name, paths in (("train", self.train), ("valid", self.valid), ("test", self.test)):
            if len(paths) > 2 and not (name == "train" and self.weights):
                several = "; for several texts, --weights" if name == "train" else ""
                raise InputError(
                    f"{name} has {len(paths)} files: give a source and a target, or one of pairs{several}"
                )
            object.__setattr__(self, name, tuple(str(Path(path).absolute()) for path in paths))
        if self.guide is not None:
            if self.hub is not None or self.weights:
                raise InputError("guide has the links of one text in files: leave out hub and weights")
            object.__setattr__(self, "guide", str(Path(self.guide).absolute()))
        if self.hub is not None and self.train:
            raise InputError("train and hub are given: leave out one of them")
        if self.hub is not None and len(self.languages) != 2:
            raise InputError("hub needs --languages, the columns of source and target, such as --languages de en")
        self._check_weights()

    def _check_weights(self) -> None:
        if not self.weights:
            return
        if len(self.train) not in (len(self.weights), 2 * len(self.weights)):
            raise InputError(
                f"train has {len(self.train)} files for {len(self.weights)} weights: give for each weight one "
                f"file of pairs, or a source and a target"
            )
        for weight in self.weights:
            if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:  # nor is nan
                raise InputError(
                    f"weight {weight:g} is out of range: choose from {LEAST_WEIGHT} to {MOST_WEIGHT:,}"
                )

    @property
    def corpora(self) -> list[tuple[str, ...]]:
        """The files of each text to train on; one text unless there are weights."""
        files = len(self.train) // (len(self.weights) or 1)
        return [self.train[begin : begin + files] for begin in range(0, len(self.train), files or 1)]

    def text(self, part: Part) -> "PairSource | None":
        """Return the text to train, validate or test on, with weights all of them one after the other; None where
        there is none.

        Raises `InputError` where it cannot be read.
        """
        from regard.data.parallel import ConcatenatedText

        found = self._texts(part)
        return ConcatenatedText(found) if len(found) > 1 else next(iter(found), None)

    def digests(self, *, progress: bool = True) -> "dict[str, list[TextDigest]]":
        """Return digests of the text to train and validate on, and of the links, by flag; all of it is read.

        Raises `InputError` where it cannot be read.
        """
        from regard.data.parallel import file_digest

        parts: tuple[Part, ...] = ("train", "valid")
        texts = {part: text for part in parts if (text := self.text(part)) is not None}
        found: dict[str, list[TextDigest]] = {}
        before = 0
        size = sum(each.bytes for each in texts.values())
        with reading_bar("check the text", size, show=progress and size > MUCH) as on_bytes:
            for part, text in texts.items():
                text.on_bytes = lambda done, before=before: on_bytes(before + done)  # type: ignore[misc]
                found[part] = text.digests()
                before += text.bytes
        if self.guide is not None:
            found["guide"] = [file_digest(Path(self.guide))]
        return found

    def training_text(self) -> "PairSource":
        """Return the text to train on; raises `InputError` where there is none."""
        text = self.text("train")
        if text is None:
            raise InputError(
                "translation needs text to train on: give --train SOURCE TARGET, or --train PAIRS.tsv"
            )
        return text

    def training_texts(self) -> "list[PairSource]":
        """Return the texts to train on, one for each weight; raises `InputError` where there is none."""
        self.training_text()
        return self._texts("train")

    def check_files(self) -> None:
        """Raise `InputError` where links are to guide a head, and their file is not one of its text, or where
        validation or test text is broken. Test text may be missing: it is read later."""
        for part in (self.valid, self.test if all(Path(each).exists() for each in self.test) else ()):
            if part and not self.lenient:
                from regard.data.parallel import ParallelText

                ParallelText(part).check()
        if self.guide is not None and self.train:
            from regard.data.guided_alignment import check_alignment_file

            check_alignment_file(Path(self.guide), Path(self.train[0]))

    def _texts(self, part: Part) -> "list[PairSource]":
        strict = self.strict and part == "train"
        if self.hub is not None:
            from regard.data.hub import HubText  # brings a large library

            return [HubText(self.hub, self.languages, HUB_SPLITS[part], strict=strict)]
        from regard.data.parallel import ParallelText

        files = {"train": self.corpora, "valid": [self.valid], "test": [self.test]}[part]
        return [ParallelText(paths, strict=strict, lenient=self.lenient) for paths in files if paths]


class Translation(SequenceTask):
    """Translation between the languages of two vocabularies, which are learned from the text."""

    name = "translation"
    summary = "a sentence in another language, learned from parallel text"
    config_class = TranslationConfig
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

    config: TranslationConfig
    source_vocabulary: "LearnedVocabulary"
    target_vocabulary: "LearnedVocabulary"

    def __init__(
        self, config: TranslationConfig, source: "LearnedVocabulary", target: "LearnedVocabulary"
    ) -> None:
        self.config = config
        self.source_vocabulary, self.target_vocabulary = source, target
        self.shared = config.joint
        self.unknown: list[UnknownShares] = []
        """Unknown tokens of the texts of a training, once it has begun."""

    @classmethod
    def prepare(cls, config: TranslationConfig, folder: Path, *, progress: bool = True) -> Self:
        """Learn the vocabularies from the text, or find them in `folder` where that was done before."""
        from regard.data.prepare import TokenizerConfig, learn_vocabularies

        config.check_files()  # before minutes of work
        cutting = TokenizerConfig(
            kind=config.tokenizer, size=config.vocab_size, joint=config.joint, lowercase=config.lowercase
        )
        text = config.training_text()
        return cls(config, *learn_vocabularies(text, cutting, folder, progress=progress))

    @classmethod
    def digests(cls, config: TranslationConfig, *, progress: bool = True) -> "dict[str, list[TextDigest]]":
        """Return digests of the text that a training learns from, by flag."""
        return config.digests(progress=progress)

    @classmethod
    def restore(cls, config: TranslationConfig, files: Mapping[str, str]) -> Self:
        """Return the task with the vocabularies of a run; raises `InputError` where they are damaged."""
        from regard.data.prepare import read_vocabularies

        return cls(config, *read_vocabularies(files["source"], files["target"]))

    @property
    def files(self) -> dict[str, str]:
        """Both vocabularies, by side."""
        return {"source": self.source_vocabulary.to_json(), "target": self.target_vocabulary.to_json()}

    def preparations(self, folder: Path, *, progress: bool = True) -> "list[CorpusPreparation]":
        """Return how each text to train on, one for each weight, becomes indices in `folder`.

        Raises `InputError` where there is none, or one cannot be read.
        """
        from regard.data.prepare import CorpusPreparation

        vocabularies = (self.source_vocabulary, self.target_vocabulary)
        return [
            CorpusPreparation(text, vocabularies, folder, self.config.max_len, self.config.strict, progress)
            for text in self.config.training_texts()
        ]

    def batches(self, settings: BatchSettings, beginning: Beginning) -> "Buckets":
        """Return batches of like length from the corpus, or from several by their weights; they are prepared
        first."""
        from regard.data.bpe_dropout import BpeDropout
        from regard.data.buckets import BatchPosition, Buckets
        from regard.data.mixture import Mixture

        self.config.check_files()
        if settings.merge_dropout and self.config.guide is not None:
            raise InputError("guide has links of tokens that merge_dropout cuts anew: leave out one of them")
        corpora = [each.corpus() for each in self.preparations(beginning.folder, progress=beginning.progress)]
        corpus = Mixture(tuple(corpora), self.config.weights) if len(corpora) > 1 else corpora[0]
        print_status(f"Training on {corpus.summary}", show=beginning.progress)
        self.unknown = self._unknown(corpora)
        if told := "; ".join(map(str, self.unknown)):
            print_status(f"Unknown tokens: {told}", show=beginning.progress)
        for warning in (warning for each in self.unknown for warning in each.warnings):
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
        return Buckets(
            corpus, settings.tokens, settings.seed, place, recut, most, guide, sharing=beginning.sharing
        )

    def _unknown(self, corpora: "list[Corpus]") -> "list[UnknownShares]":
        """Return the unknown tokens of each text to train on, and of the text to validate on."""
        from regard.data.unknown_tokens import unknown_in_pairs

        names = ["training"]
        if len(corpora) > 1:
            names = [
                f"training {'and '.join(Path(each).name for each in files)}" for files in self.config.corpora
            ]
        found = [corpus.unknown(name) for corpus, name in zip(corpora, names, strict=True)]
        if (valid := self.config.text("valid")) is not None:
            vocabularies = (self.source_vocabulary, self.target_vocabulary)
            found.append(unknown_in_pairs("validation", list(valid), vocabularies))
        return found

    def _guide(self, corpus: "Corpus", *, progress: bool) -> "GuidedAlignment | None":
        """Return the links of the corpus; None where no head is guided."""
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
        """Four times what was trained on, so that no line which is only a little longer is refused."""
        return 4 * self.config.max_len

    @property
    def longest_target(self) -> int:
        """As many tokens as of a source."""
        return self.longest_source

"""Translation: learn to translate from parallel text."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from regard.progress import print_status
from regard.tasks.batch import BatchContext, BatchSettings
from regard.tasks.pairs import SequenceTask
from regard.tasks.translation_config import TranslationTaskConfig

if TYPE_CHECKING:
    from regard.data.buckets import Buckets
    from regard.data.corpus import Corpus
    from regard.data.guided_alignment import GuidedAlignment
    from regard.data.parallel import TextDigest
    from regard.data.unknown_tokens import UnknownShares
    from regard.data.vocabulary import LearnedVocabulary


class Translation(SequenceTask):
    """Translation with vocabularies learned from the training text."""

    name = "translation"
    summary = "translate sentences, learned from parallel text"
    config_class = TranslationTaskConfig
    draws = False
    texts = ("train", "weights", "valid", "extra_valid", "test", "hub", "languages", "guide", "bleu_tokenize")
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
        from regard.data.prepare import learn_vocabularies, read_own_vocabularies

        config.check_files()  # check before the preparation, which can take minutes
        for path in config.test:
            if not Path(path).exists():
                print_status(f"regard: warning: the test text {path!r} does not exist yet", show=progress)
        text = config.training_text()
        if files := config.vocabulary_files:
            return cls(config, *read_own_vocabularies(files, lowercase=config.lowercase, progress=progress))
        return cls(config, *learn_vocabularies(text, config.tokenization, folder, progress=progress))

    @classmethod
    def digests(cls, config: TranslationTaskConfig, *, progress: bool = True) -> "dict[str, list[TextDigest]]":
        return config.digests(progress=progress)

    @classmethod
    def restore(cls, config: TranslationTaskConfig, files: Mapping[str, str]) -> Self:
        """Create the task with the vocabularies of a run. Raises `InputError` if the vocabularies are damaged."""
        from regard.data.prepare import read_vocabularies

        return cls(config, *read_vocabularies(files["source"], files["target"]))

    @property
    def files(self) -> dict[str, str]:
        return {"source": self.source_vocabulary.to_json(), "target": self.target_vocabulary.to_json()}

    def batches(self, settings: BatchSettings, beginning: BatchContext) -> "Buckets":
        from regard.data.buckets import BatchPosition, Buckets
        from regard.data.corpus import Mixture
        from regard.data.prepare import prepare_corpus
        from regard.data.subwords import BpeDropout
        from regard.data.unknown_tokens import check_known, describe_splitting

        self.config.check_files()
        recut = None
        if settings.merge_dropout:
            source, target = (
                BpeDropout(each, settings.merge_dropout, settings.seed)
                for each in (self.source_vocabulary, self.target_vocabulary)
            )
            recut = (source, target)
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
        self.unknown = self._unknown(corpora, show=not beginning.sharing[0])
        for trained in self.unknown[: len(corpora)]:
            check_known(trained)
        if shares := "; ".join(map(str, self.unknown)):
            print_status(f"Unknown tokens: {shares}", show=beginning.progress)
        counts = [sum(sides[1:], sides[0]) for sides in zip(*(c.symbol_counts() for c in corpora), strict=True)]
        vocabularies = (self.source_vocabulary, self.target_vocabulary)
        line, unsuitable = describe_splitting(self.unknown, counts, vocabularies)
        print_status(line, show=beginning.progress)
        warnings = [warning for shares in self.unknown for warning in shares.warnings]
        for warning in (*warnings, *unsuitable):
            print_status(f"regard: warning: {warning}", show=not beginning.sharing[0])
        guide = self._guide(corpora[0], progress=beginning.progress)
        place, most = BatchPosition(*beginning.place), settings.batchsize
        return Buckets(corpus, settings.tokens, settings.seed, place, recut, most, guide)

    def _unknown(self, corpora: "list[Corpus]", *, show: bool) -> "list[UnknownShares]":
        """Return the unknown tokens in each training text and in the validation texts, and warn about validation
        texts that are training text."""
        from regard.data.prepare import describe_learned
        from regard.data.unknown_tokens import unknown_in_pairs

        names = ["training"]
        if len(corpora) > 1:
            names = [
                f"training {' and '.join(Path(path).name for path in files)}" for files in self.config.corpora
            ]
        shares = [corpus.unknown(name) for corpus, name in zip(corpora, names, strict=True)]
        texts = {"": self.config.text("valid"), **self.config.extra_texts()}
        for name, text in texts.items():
            if text is not None:
                vocabularies = (self.source_vocabulary, self.target_vocabulary)
                pairs, description = list(text), f"validation {name}".strip()
                shares.append(unknown_in_pairs(description, pairs, vocabularies))
                if learned := describe_learned(pairs, self.config.training_text()):
                    print_status(
                        f"regard: warning: {description} text: {learned}, so its figures and the best model by "
                        "them say little about other text; give other pairs",
                        show=show,
                    )
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
        return 4 * self.config.max_len

    @property
    def longest_target(self) -> int:
        """Maximum number of tokens of a translation: the same as for a source."""
        return self.longest_source

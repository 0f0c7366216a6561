"""Translation: from one language to another, learned from parallel text."""

from dataclasses import dataclass

from regard.errors import InputError, check_range
from regard.tasks.pairs import SequenceTask
from regard.text import Kind, Vocabulary


@dataclass(frozen=True, kw_only=True)
class TranslationConfig:
    """Parallel text, and how it is cut into tokens."""

    train: tuple[str, ...] = ()
    """Text to train on: a source and a target file with a line for each sentence, or one file of tab-separated
    pairs; plain or .gz."""
    valid: tuple[str, ...] = ()
    """Text to choose the best model by, in the same form. None: the last model is kept."""
    test: tuple[str, ...] = ()
    """Text that `regard test` reports on, in the same form."""
    hub: str | None = None
    """Data set to take train, validation and test text from instead: its name on the Hugging Face Hub, or a
    folder (needs the extra hub)."""
    languages: tuple[str, ...] = ()
    """Columns of source and target in the data set, such as: de en."""
    tokenizer: Kind = "bpe"
    """How text is cut into tokens: subwords by byte-pair encoding (bpe) or unigram, words, or characters."""
    vocab_size: int = 12_000
    """Symbols of the vocabulary, at most."""
    joint: bool = True
    """One vocabulary, and one embedding, for both languages; --no-joint: one for each."""
    lowercase: bool = False
    """Put all text into lower case."""
    max_len: int = 256
    """Longest sentence in training (tokens); longer ones are left out."""
    strict: bool = False
    """Stop at the first line that would be left out."""

    def __post_init__(self) -> None:
        """Raise `InputError` where a value is out of range."""
        check_range("vocab_size", self.vocab_size, 5, 10**7)
        check_range("max_len", self.max_len, 1, 100_000)
        for name in ("train", "valid", "test"):
            if len(getattr(self, name)) > 2:
                raise InputError(
                    f"{name} has {len(getattr(self, name))} files: give a source and a target, or one of pairs"
                )
        if self.hub is not None and self.train:
            raise InputError("train and hub are given: leave out one of them")
        if self.hub is not None and len(self.languages) != 2:
            raise InputError("hub needs --languages, the columns of source and target, such as --languages de en")


class Translation(SequenceTask):
    """Translation between the languages of two vocabularies, which are learned from the text."""

    name = "translation"
    summary = "a sentence in another language, learned from parallel text"
    size_class = TranslationConfig
    defaults = {
        "model": "transformer",
        "embedding": 128,
        "dropout": 0.3,
        "lr": 0.003,
        "steps": 12_000,
    }

    def __init__(self, config: TranslationConfig, source: Vocabulary, target: Vocabulary) -> None:
        self.config = config
        self.source_vocabulary, self.target_vocabulary = source, target
        self.shared = config.joint

    @property
    def longest_source(self) -> int:
        """Four times what was trained on, so that no line which is only a little longer is refused."""
        return 4 * self.config.max_len

    @property
    def longest_target(self) -> int:
        """As many tokens as of a source."""
        return self.longest_source

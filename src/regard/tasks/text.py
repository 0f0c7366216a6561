"""Text: predict the next character or subword of a text file. The last part of the file is held out for validation."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import torch
from torch import Tensor

from regard.arguments import Limits, check_fields
from regard.errors import InputError, plural, shorten
from regard.progress import print_status
from regard.tasks.batch import BatchContext, BatchSettings
from regard.tasks.tokens import NextTokenTask, TokenBatches

if TYPE_CHECKING:
    import numpy as np

    from regard.data.parallel import TextDigest
    from regard.data.token_file import TextVocabulary


@dataclass(frozen=True, kw_only=True)
class TextTaskConfig:
    """Options of the text and its tokens."""

    text: str | None = None
    """Path of a text file in UTF-8, plain or .gz. Required."""
    tokenizer: Literal["characters", "bpe", "unigram", "imported"] = "characters"
    """Tokens: characters, or subwords learned from the text (bpe, unigram). Subwords normalize the text to
    NFC; pairs of pieces that occur fewer than 5 times are not merged. imported: the tokenizer of an imported
    model, whose training continues with --from."""
    vocab_size: Annotated[int, Limits(5, 10**6)] = 4000
    """Largest number of subwords, including four special symbols. A vocabulary of characters is not limited."""
    max_len: Annotated[int, Limits(1, 100_000)] = 64
    """Number of tokens in a sequence (the context length)."""
    valid_share: Annotated[float, Limits(0, 1)] = 0.1
    """Fraction of tokens at the end of the text that are held out for validation (0 to 1: none for training)."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.text is not None:
            object.__setattr__(self, "text", str(Path(self.text).absolute()))  # for use in any folder

    @property
    def path(self) -> Path:
        if self.text is None:
            raise InputError("text needs a file: give --text FILE")
        return Path(self.text)


class Text(NextTokenTask):
    """Sequences from random positions of a text file."""

    name = "text"
    summary = "predict the next character or subword of a text file"
    config_class = TextTaskConfig
    texts = ("text",)
    file_names = ("text",)
    defaults = {"hidden": 128, "layers": 4, "inner": 512, "batchsize": 12, "steps": 2000, "lr": 0.001}
    loose = ("valid_share",)

    config: TextTaskConfig

    def __init__(self, config: TextTaskConfig, tokenizer: "TextVocabulary") -> None:
        self.config, self.tokenizer = config, tokenizer
        self.vocabulary = tokenizer.symbols
        self.digest: TextDigest | None = None
        """Digest of the text that a run was trained on, which `tokens` checks; None for a new run."""
        self._encoded: np.ndarray | None = None

    @classmethod
    def prepare(cls, config: TextTaskConfig, folder: Path, *, progress: bool = True) -> Self:
        from regard.data.token_file import check_text_file, learn_vocabulary

        if config.tokenizer == "imported":
            raise InputError(
                "tokenizer imported comes with an imported model: choose characters, bpe or unigram, or continue "
                "the training of the model with --from"
            )
        check_text_file(config.path)
        return cls(config, learn_vocabulary(config.path, config.tokenizer, config.vocab_size))

    @classmethod
    def digests(cls, config: TextTaskConfig, *, progress: bool = True) -> "dict[str, list[TextDigest]]":
        from regard.data.parallel import file_digest

        return {"text": [file_digest(config.path)]}

    @classmethod
    def restore(cls, config: TextTaskConfig, files: Mapping[str, str]) -> Self:
        from regard.data.imported_tokenizers import ImportedTokenizer
        from regard.data.subwords import SubwordVocabulary

        vocabulary = ImportedTokenizer if config.tokenizer == "imported" else SubwordVocabulary
        return cls(config, vocabulary.from_json(files["text"]))

    @property
    def files(self) -> dict[str, str]:
        return {"text": self.tokenizer.to_json()}

    def batches(self, settings: BatchSettings, beginning: BatchContext) -> TokenBatches:
        from regard.data.token_file import prepare_tokens

        path, show = self.config.path, beginning.progress
        self._encoded = prepare_tokens(path, self.tokenizer, beginning.folder, progress=show)
        valid = len(self.tokens(unseen=True)) if self.config.valid_share else 0
        train = len(self.tokens(unseen=False))
        print_status(f"Training on {train:,} tokens, {valid:,} held out for validation", show=show)
        return TokenBatches(self, settings)

    def tokens(self, *, unseen: bool) -> "np.ndarray":
        """Return the tokens (N,) of the training part, or of the validation part if `unseen` is True. If `batches` was
        not called before, the text is read and encoded in memory."""
        if self._encoded is None:
            import numpy as np

            from regard.data.parallel import file_digest
            from regard.data.token_file import check_text_file, encode_file

            check_text_file(self.config.path)
            if self.digest not in (None, file_digest(self.config.path)):
                raise InputError(
                    f"text {self.config.text!r} is not the text that the run was trained on: restore that text"
                )
            self._encoded = np.concatenate(list(encode_file(self.config.path, self.tokenizer)))
        train = round((1 - self.config.valid_share) * len(self._encoded))
        part = self._encoded[train:] if unseen else self._encoded[:train]
        if len(part) <= self.config.max_len:
            name = "validation" if unseen else "training"
            raise InputError(
                f"the {name} part of {self.config.text!r} has {plural(len(part), 'token')}, but max_len "
                f"{self.config.max_len} needs at least {self.config.max_len + 1:,}: give a longer text, a "
                f"smaller max_len, or another valid_share"
            )
        return part

    def draw_with_targets(
        self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False
    ) -> tuple[Tensor, Tensor]:
        import numpy as np

        part, length = self.tokens(unseen=unseen), int(lengths.max())
        prefix = list(self.tokenizer.prefix)[:length]
        length -= len(prefix)
        begins = torch.randint(len(part) - length, (len(lengths),), generator=generator).tolist()
        windows = np.stack([part[begin : begin + length + 1] for begin in begins]).astype(np.int64)
        if prefix:
            windows = np.concatenate([np.tile(prefix, (len(windows), 1)), windows], axis=1)
        tokens = torch.from_numpy(windows)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    @property
    def accepts(self) -> str:
        return f"text of 1 to {self.longest} tokens"

    def parse(self, text: str) -> Tensor:
        from regard.data.token_file import encode_lines

        lines = list(io.StringIO(text, newline="\n"))
        tokens = [*self.tokenizer.prefix, *encode_lines(lines, self.tokenizer)]
        self._check_count(text, len(tokens))
        if self.tokenizer.unknown_index in tokens:
            unknown = ", ".join(map(repr, self.tokenizer.unknown(text.replace("\n", " "))))
            raise InputError(f"input {shorten(text)} has tokens that do not occur in the training text: {unknown}")
        return torch.tensor([tokens])

    def render(self, tokens: Tensor) -> str:
        from regard.data.token_file import decode_tokens

        return decode_tokens(tokens.tolist(), self.tokenizer)

    def labels(self, inputs: Tensor) -> list[str]:
        """Return a name for each input of one sequence (T,). A line feed is `\\n`."""
        return ["\\n" if token == self.tokenizer.line_feed else self.vocabulary[token] for token in inputs.tolist()]

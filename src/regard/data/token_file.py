"""A text file as one long sequence of tokens, memory-mapped from a file.

Lines are encoded one by one, and each end of a line is the token `EOS`, so that the text can be restored. An
imported tokenizer encodes line feeds itself. The tokens are stored in a folder whose name identifies the text and
the vocabulary:

    tokens-TEXT-VOCABULARY/tokens.bin    little-endian integers of 2 or 4 bytes
    tokens-TEXT-VOCABULARY/index.json    their number and checksum
"""

import zlib
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from regard.data.corpus import token_type
from regard.data.imported_tokenizers import ImportedTokenizer
from regard.data.parallel import check_files, file_digest, open_texts
from regard.data.prepare import REMEDY, short_digest
from regard.data.subwords import SubwordVocabulary, train_subwords, vocabulary_from_symbols
from regard.data.vocabulary import BLANK, TokenizerKind
from regard.errors import InputError
from regard.io import build_once, damaged_file, is_file, new_folder, read_json, write_json
from regard.progress import print_status, reading_bar

LINES = 10_000
"""Number of lines that are encoded together. An imported tokenizer may join the line feeds between two blocks
differently than within one text."""
TextVocabulary = SubwordVocabulary | ImportedTokenizer


class _Index(msgspec.Struct, forbid_unknown_fields=True):
    """The content of index.json."""

    tokens: int
    unknown: int
    checksum: int  # CRC-32 of tokens.bin


def check_text_file(path: Path) -> None:
    """Raise `InputError` if a text file is missing, unreadable, empty, or not UTF-8."""
    if not file_digest(path).lines:
        raise InputError(f"text {str(path)!r} is empty: give a file that contains text")
    check_files([path], way_out="")


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain or .gz, with their line feeds."""
    with open_texts([path]) as (_, [file]):
        for number, line in enumerate(file, 1):
            try:
                yield line.decode()
            except UnicodeDecodeError:
                raise InputError(
                    f"text {str(path)!r} is not UTF-8 at line {number}: correct the line, or convert the file"
                ) from None


class _Lines:
    """Lines of a file, without line feeds; the lines can be iterated over repeatedly."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[str]:
        return (line.removesuffix("\n") for line in read_lines(self.path))


def learn_vocabulary(path: Path, kind: TokenizerKind, size: int) -> SubwordVocabulary:
    """Learn the vocabulary of a text: all characters, or at most `size` symbols as in `train_subwords`."""
    if kind != "characters":
        return train_subwords(_Lines(path), kind=kind, size=size)
    characters = set[str]().union(*_Lines(path))
    return vocabulary_from_symbols(sorted(characters - {" "} | {BLANK}), words=False)


def encode_lines(lines: list[str], vocabulary: TextVocabulary) -> list[int]:
    """Return the tokens of lines, with the token `line_feed` of the vocabulary for each line feed.

    >>> encode_lines(["ab\\n", "b"], vocabulary_from_symbols(["a", "b"], words=False))
    [4, 5, 2, 5]
    """
    if vocabulary.line_feed is None:
        return vocabulary.encode("".join(lines))
    encoded = vocabulary.encode_all([line.removesuffix("\n") for line in lines])
    return [
        token
        for line, tokens in zip(lines, encoded, strict=True)
        for token in (*tokens, *[vocabulary.line_feed] * line.endswith("\n"))
    ]


def decode_tokens(tokens: list[int], vocabulary: TextVocabulary) -> str:
    """Return the text of tokens, with a line feed for each token `line_feed`.

    Subwords begin each line with a space, which is left out.

    >>> decode_tokens([4, 5, 2, 5], vocabulary_from_symbols(["a", "b"], words=False))
    'ab\\nb'
    """
    if isinstance(vocabulary, ImportedTokenizer):
        return vocabulary.decode(tokens)
    pieces = ("\n" if token == vocabulary.line_feed else vocabulary.symbols[token] for token in tokens)
    text = "".join(pieces).replace(BLANK, " ")
    return text.removeprefix(" ").replace("\n ", "\n") if vocabulary.splits_at_blanks else text


def encode_file(path: Path, vocabulary: TextVocabulary) -> Iterator[np.ndarray]:
    lines, dtype = read_lines(path), token_type((len(vocabulary), len(vocabulary)))
    while block := list(islice(lines, LINES)):
        yield np.array(encode_lines(block, vocabulary), dtype)


def prepare_tokens(path: Path, vocabulary: TextVocabulary, root: Path, *, progress: bool = True) -> np.ndarray:
    """Return the tokens of a file as a memory-mapped array, which is stored under `root`. If another process is writing
    the array, this process waits for the result."""
    folder = root / f"tokens-{file_digest(path).sha256[:16]}-{short_digest(vocabulary.to_json())}"
    build_once(
        folder,
        lambda: is_file(folder / "index.json"),
        lambda: _write_tokens(path, vocabulary, folder, progress=progress),
        on_wait=partial(print_status, show=progress),
    )
    index = read_json(folder / "index.json", _Index, REMEDY)
    tokens = np.memmap(folder / "tokens.bin", token_type((len(vocabulary), len(vocabulary))), mode="r")
    if len(tokens) != index.tokens or zlib.crc32(tokens.data) != index.checksum:
        raise damaged_file(folder, "its tokens have changed since they were written", REMEDY)
    if index.unknown:
        share = f"{index.unknown:,} of {index.tokens:,} tokens ({index.unknown / index.tokens:.2%})"
        print_status(f"Unknown tokens: {share}; their characters do not fit in the vocabulary", show=progress)
    return tokens


def _write_tokens(path: Path, vocabulary: TextVocabulary, folder: Path, *, progress: bool) -> None:
    total = unknown = checksum = 0
    size = path.stat().st_size
    with (
        new_folder(folder) as building,
        (building / "tokens.bin").open("xb") as file,
        reading_bar("encode the text", size, show=progress) as on_bytes,
    ):
        for tokens in encode_file(path, vocabulary):
            file.write(tokens.data)
            total, unknown = total + len(tokens), unknown + int((tokens == vocabulary.unknown_index).sum())
            checksum = zlib.crc32(tokens.data, checksum)
            on_bytes(min(total, size))  # an estimate: a token has one byte or more
        index = _Index(tokens=total, unknown=unknown, checksum=checksum)
        write_json(building / "index.json", msgspec.to_builtins(index))

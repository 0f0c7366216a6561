"""Vocabularies that users bring: a SentencePiece model, the vocabulary of another run, or a list of words."""

from collections.abc import Sequence
from pathlib import Path

from regard.data.corpus_builder import Vocabularies
from regard.data.prepare import parse_vocabulary
from regard.data.sentencepieces import SentencePieceVocabulary, model_pieces
from regard.data.subwords import RESERVED, vocabulary_from_symbols
from regard.data.vocabulary import LearnedVocabulary
from regard.errors import InputError
from regard.io.reading import DamageError, damaged_file, read_bytes, read_text
from regard.progress import print_status

RESTORE = "restore a copy, or give another file"


def read_own_vocabularies(files: Sequence[str], *, lowercase: bool, progress: bool = True) -> Vocabularies:
    """Return the vocabularies of source and target from one or two files. One file gives one vocabulary for both.

    `lowercase`: convert text to lower case first. Raises `InputError` for a file that cannot be read, and for a
    vocabulary of another run with another `lowercase`.
    """
    vocabularies = [read_own_vocabulary(Path(file), lowercase=lowercase) for file in files]
    for file, vocabulary in zip(files, vocabularies, strict=True):
        print_status(f"vocabulary of {len(vocabulary):,} symbols from {Path(file).name}", show=progress)
    return vocabularies[0], vocabularies[-1]


def read_own_vocabulary(path: Path, *, lowercase: bool = False) -> LearnedVocabulary:
    """Return the vocabulary of a file: `.model` and `.spm` are SentencePiece, `.json` is the vocabulary of a run.

    Other files list words, one a line. A second column, such as a count, is ignored. Raises `InputError` for a
    file that is missing, damaged or empty.
    """
    if path.suffix in (".model", ".spm"):
        try:
            model = read_bytes(path)
            return SentencePieceVocabulary(model, model_pieces(model), lowercase=lowercase)
        except DamageError as error:
            raise damaged_file(path, error, RESTORE) from error
    text = read_text(path, RESTORE)
    if path.suffix == ".json":
        vocabulary = parse_vocabulary(text)
        lower = vocabulary.lowercase
        if lower != lowercase:
            way_out = "add --lowercase" if lower else "leave out --lowercase"
            raise InputError(
                f"vocabulary {str(path)!r} {'lowercases' if lower else 'does not lowercase'} text: {way_out}"
            )
        return vocabulary
    columns = (line.split() for line in text.splitlines())
    words = dict.fromkeys(column[0] for column in columns if column and column[0] not in RESERVED)
    if not words:
        raise InputError(f"vocabulary {str(path)!r} has no words: give one word a line")
    return vocabulary_from_symbols(list(words), words=True, lowercase=lowercase)

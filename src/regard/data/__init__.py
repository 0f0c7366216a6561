"""Text as indices: vocabularies, batches of pairs, and corpora on disk.

What reads corpora and learns vocabularies brings libraries along, and is imported where it is used: `parallel`,
`subwords`, `corpus`, `buckets`. Batches bring PyTorch, which the processes that prepare a corpus do without.
"""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.data.batch import PairBatch, collate, read_source
    from regard.data.vocabulary import (
        BOS,
        EOS,
        PAD,
        UNKNOWN,
        CharacterVocabulary,
        TokenizerKind,
        Vocabulary,
        WordVocabulary,
    )

late(__name__)

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNKNOWN",
    "CharacterVocabulary",
    "PairBatch",
    "TokenizerKind",
    "Vocabulary",
    "WordVocabulary",
    "collate",
    "read_source",
]

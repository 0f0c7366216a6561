"""Vocabularies, batches of pairs, and corpora on disk.

Modules with large dependencies are not exported and must be imported explicitly: `parallel`, `subwords`,
`corpus`, `buckets`. Names are imported lazily, because the processes that build a corpus do not need PyTorch.
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

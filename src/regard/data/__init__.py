"""Vocabularies, batches of pairs, and corpora on disk.

Modules with large dependencies are not exported and must be imported explicitly: `parallel`, `subwords`,
`corpus`, `buckets`. Names are imported lazily, because the processes that build a corpus do not need PyTorch.
"""

from typing import TYPE_CHECKING

from regard.late import late

if TYPE_CHECKING:
    from regard.data.batch import PairBatch as PairBatch, collate as collate, read_source as read_source
    from regard.data.vocabulary import (
        BOS as BOS,
        EOS as EOS,
        PAD as PAD,
        UNKNOWN as UNKNOWN,
        CharacterVocabulary as CharacterVocabulary,
        TokenizerKind as TokenizerKind,
        Vocabulary as Vocabulary,
        WordVocabulary as WordVocabulary,
    )

late(__name__)

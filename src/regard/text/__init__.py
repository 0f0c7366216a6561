"""Text as indices: vocabularies, batches of pairs, and corpora on disk.

What reads corpora and learns vocabularies brings libraries along, and is imported where it is used: `parallel`,
`subwords`, `corpus`, `buckets`. Batches bring PyTorch, which the processes that prepare a corpus do without.
"""

from typing import TYPE_CHECKING, Any

from regard.text.vocabulary import BOS, EOS, PAD, UNKNOWN, Characters, TokenizerKind, Vocabulary, Words

if TYPE_CHECKING:
    from regard.text.batch import PairBatch, collate, read_source

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNKNOWN",
    "Characters",
    "PairBatch",
    "TokenizerKind",
    "Vocabulary",
    "Words",
    "collate",
    "read_source",
]


def __getattr__(name: str) -> Any:
    if name in ("PairBatch", "collate", "read_source"):
        from regard.text import batch

        return getattr(batch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

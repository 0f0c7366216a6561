"""Text as indices: vocabularies, and batches of pairs."""

from regard.text.pairs import Pairs, collate, read_source
from regard.text.vocabulary import BOS, EOS, PAD, UNKNOWN, Characters

__all__ = ["BOS", "EOS", "PAD", "UNKNOWN", "Characters", "Pairs", "collate", "read_source"]

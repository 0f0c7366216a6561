"""Tokenizers of imported models."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from regard.data.imported_tokenizers import ImportedTokenizer
from regard.errors import InputError


def test_a_tokenizer_without_an_unknown_token_encodes_its_own_words() -> None:
    """The export of a task with letters has such a tokenizer."""
    tokenizer = Tokenizer(models.WordLevel({"B": 0, "C": 1}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    imported = ImportedTokenizer(tokenizer, size=2)
    assert imported.prefix == [] and imported.encode("C B") == [1, 0]
    with pytest.raises(InputError, match="tokenizers"):
        imported.encode("A")

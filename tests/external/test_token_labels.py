"""Labels of all tokenizers mark word starts in the same way."""

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from regard.activations.token_labels import TokenLabeler
from regard.viz.labels import word_pieces


class FixedTokenizer:
    """A tokenizer whose vocabulary is a list of words."""

    all_special_tokens = ("[CLS]", "[SEP]", "<s>", "eos")

    def __init__(self, tokens: str) -> None:
        self.tokens = tokens.split(" ")

    def get_vocab(self) -> dict[str, int]:
        return {token: place for place, token in enumerate(self.tokens)}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.tokens[token_id] for token_id in ids]


KINDS: dict[str, tuple[str, list[str], list[list[int]] | None]] = {
    "SentencePiece": (
        "<s> ▁un believ able ▁news",
        ["<s>", "▁un", "believ", "able", "▁news"],
        [[0], [1, 2, 3], [4]],
    ),
    "bytes": ("<s> un Ġbeliev able ĠÃ¼ber", ["<s>", "▁un", "▁believ", "able", "▁über"], [[0], [1], [2, 3], [4]]),
    "WordPiece": (
        "[CLS] un ##believ ##able news",
        ["[CLS]", "▁un", "believ", "able", "▁news"],
        [[0], [1, 2, 3], [4]],
    ),
    "ends of words": ("un believ able</w> news</w>", ["▁un", "believ", "able", "▁news"], [[0, 1, 2], [3]]),
    "whole words": ("ein kleiner Hund", ["ein", "kleiner", "Hund"], None),
}


@pytest.mark.parametrize(("tokens", "labels", "words"), KINDS.values(), ids=KINDS)
def test_pieces_of_all_tokenizers_are_merged_to_words(tokens: str, labels: list[str], words: Any) -> None:
    known = FixedTokenizer(tokens)
    actual = TokenLabeler(known).labels(list(range(len(known.tokens))))
    assert actual == labels
    assert word_pieces(actual) == words


def test_special_tokens_and_padding_are_marked() -> None:
    known = FixedTokenizer("▁a ▁b eos")
    assert TokenLabeler(known).labels([0, 1, 2, 2, 2], [True, True, True, False, False]) == [
        "▁a", "▁b", "<eos>", "<pad>", "<pad>"
    ]  # fmt: skip


def test_tokenizers_library() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "Ġ": 1, "b": 2, "Ġb": 3}, [("Ġ", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    ids = tokenizer.encode("a b").ids
    assert TokenLabeler(tokenizer).labels(ids) == ["▁a", "▁b"]


def test_unknown_token_id_is_its_own_label() -> None:
    class Small(FixedTokenizer):
        def convert_ids_to_tokens(self, ids: list[int]) -> list[Any]:
            return [self.tokens[token_id] if token_id < len(self.tokens) else None for token_id in ids]

    assert TokenLabeler(Small("ein kleiner Hund")).labels([0, 7]) == ["ein", "[7]"]
    words = Tokenizer(models.WordLevel({"ein": 0}, unk_token="ein"))
    assert TokenLabeler(words).labels([0, 7]) == ["ein", "[7]"]

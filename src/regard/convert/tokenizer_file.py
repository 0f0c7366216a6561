"""A vocabulary as a file of the `tokenizers` library, which programs in many languages read."""

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from regard.data import UNKNOWN, CharacterVocabulary, Vocabulary, WordVocabulary
from regard.data.bpe_codes import BpeCodesVocabulary
from regard.data.sentencepieces import SentencePieceVocabulary
from regard.data.subwords import RESERVED, SubwordVocabulary
from regard.errors import InputError


def tokenizer_of(vocabulary: Vocabulary) -> Tokenizer:
    """Return a tokenizer that makes the same indices of a text, and the same text of indices.

    The end of sequence is the caller's to add, as here. Raises `InputError` for a vocabulary that an imported
    model came with, as the library cuts some texts otherwise, or knows other pieces.
    """
    if isinstance(vocabulary, SentencePieceVocabulary):
        raise InputError(
            "tokenizer sentencepiece has no file of the tokenizers library, which cuts some texts otherwise: "
            "export to ctranslate2 or huggingface"
        )
    if isinstance(vocabulary, BpeCodesVocabulary):
        raise InputError("tokenizer codes has no file of the tokenizers library: export to ctranslate2")
    if isinstance(vocabulary, SubwordVocabulary):
        return Tokenizer.from_str(vocabulary.to_json())
    assert isinstance(vocabulary, CharacterVocabulary)  # of which those of words are a kind
    symbols = [*RESERVED, *vocabulary.symbols[len(RESERVED) :]]
    found = Tokenizer(
        models.WordLevel({symbol: index for index, symbol in enumerate(symbols)}, unk_token=RESERVED[UNKNOWN])
    )
    if isinstance(vocabulary, WordVocabulary):
        # Text cannot spell what is reserved.
        found.normalizer = normalizers.Replace(Regex(r"(?<!\S)<(pad|s|/s)>(?!\S)"), RESERVED[UNKNOWN])
        found.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    else:
        found.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        found.decoder = decoders.Fuse()
    return found

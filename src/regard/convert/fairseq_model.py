"""fairseq's Transformer as implemented in `transformers`, for the certificate.

FSMT is fairseq's Transformer with post-norm, M2M100 is fairseq's Transformer with pre-norm. Text is tokenized
by the libraries `tokenizers` and `sentencepiece`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from tokenizers import models
from torch import Tensor, nn

from regard.convert.fairseq_vocabulary import BEGIN, END, PADDING, UNKNOWN_INDEX, FairseqVocabulary
from regard.convert.parameters import IndexMap, OuterWeights
from regard.convert.transformers_model import TransformersModel
from regard.data.bpe_codes import CONTINUATION, END_OF_WORD, BpeCodesVocabulary
from regard.data.sentencepieces import SentencePieceVocabulary


class PositionTable(NamedTuple):
    """Positions of the source or the target."""

    vectors: Tensor
    """(T, D), by fairseq's indices."""
    learned: bool
    """Whether the positions were learned; otherwise they are sinusoids."""


class FairseqModel(TransformersModel):
    """The model of a checkpoint.

    `state` contains the parameters of the layers by fairseq's names; `outer` and `tables` contain the other
    parameters; `sides` are the vocabularies.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, Any],
        state: Mapping[str, Tensor],
        outer: OuterWeights,
        tables: Sequence[PositionTable],
        sides: tuple[FairseqVocabulary, FairseqVocabulary],
    ) -> None:
        self._side = sides[0]
        model = _build_model(settings, *(len(side.symbols) for side in sides))
        with torch.no_grad():
            missing = model.load_state_dict(
                {f"model.{name}": value for name, value in state.items()}, strict=False
            )
            assert not missing.unexpected_keys, missing.unexpected_keys
            parts = (model.model.encoder, model.model.decoder)
            output = model.lm_head if hasattr(model, "lm_head") else model.model.decoder.output_projection
            for module, matrix in zip((*(part.embed_tokens for part in parts), output), outer, strict=True):
                module.weight = nn.Parameter(matrix)
            for part, table in zip(parts, tables, strict=True):
                if table.learned:
                    name = "weight" if hasattr(part.embed_positions, "weight") else "weights"
                    getattr(part.embed_positions, name).data = table.vectors
        super().__init__(model.eval(), *(IndexMap(side.rows) for side in sides))

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts, without the end of sequence."""
        tokenize = _make_tokenizer(self._side, texts)
        numbers = {symbol: number for number, symbol in enumerate(self._side.symbols) if number > UNKNOWN_INDEX}
        return [
            self.source.back([numbers.get(piece, UNKNOWN_INDEX) for piece in tokenize(text)]) for text in texts
        ]


def _build_model(settings: Mapping[str, Any], source: int, target: int) -> Any:
    """Return a randomly initialized model with the sizes of a checkpoint."""
    import transformers

    options: dict[str, Any] = {
        **{
            f"{side}_{name.replace('ffn_embed', 'ffn')}": settings[f"{side}_{name}"]
            for side in ("encoder", "decoder")
            for name in ("layers", "attention_heads", "ffn_embed_dim")
        },
        "d_model": settings["encoder_embed_dim"],
        "activation_function": settings.get("activation_fn", "relu"),
        "scale_embedding": True,
        "tie_word_embeddings": False,
        "pad_token_id": PADDING,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "decoder_start_token_id": END,
        "attn_implementation": "eager",
    }
    kinds: Any = transformers
    if settings.get("encoder_normalize_before", False):
        return kinds.M2M100ForConditionalGeneration(kinds.M2M100Config(vocab_size=target, **options))
    return kinds.FSMTForConditionalGeneration(
        kinds.FSMTConfig(src_vocab_size=source, tgt_vocab_size=target, **options)
    )


def _make_tokenizer(side: FairseqVocabulary, texts: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a function that tokenizes any of `texts` into the symbols of a dictionary."""
    if isinstance(side.vocabulary, SentencePieceVocabulary):
        from sentencepiece import SentencePieceProcessor

        processor: Any = SentencePieceProcessor()
        processor.LoadFromSerializedProto(side.vocabulary.model)
        encode: Callable[[str], list[str]] = processor.EncodeAsPieces
        return encode
    if not isinstance(side.vocabulary, BpeCodesVocabulary):
        return str.split
    # The library `tokenizers` needs all intermediate pieces and all characters in the vocabulary.
    codes = side.vocabulary.codes
    letters = {symbol for text in texts for letter in text for symbol in (letter, f"{letter}{END_OF_WORD}")}
    known = {piece for pair in codes for piece in (*pair, "".join(pair))} | letters
    model = models.BPE(
        {piece: index for index, piece in enumerate(sorted(known))}, codes, end_of_word_suffix=END_OF_WORD
    )

    def tokenize(text: str) -> list[str]:
        pieces = [token.value for word in text.split() for token in model.tokenize(word)]
        return [
            piece.removesuffix(END_OF_WORD) if piece.endswith(END_OF_WORD) else f"{piece}{CONTINUATION}"
            for piece in pieces
        ]

    return tokenize

"""fairseq's Transformer as `transformers` has it, with the same parameters: what the certificate compares with.

FSMT is its Transformer with normalisation after each sum, M2M100 that with normalisation before each layer. Text
is cut by the libraries `tokenizers` and `sentencepiece`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from tokenizers import models
from torch import Tensor, nn

from regard.convert.fairtext import BEGIN, END, PADDING, UNSEEN, Side
from regard.convert.generating import InTransformers
from regard.convert.parameters import Numbering
from regard.data.bpe_codes import CONTINUATION, END_OF_WORD, BpeCodesVocabulary
from regard.data.sentencepieces import SentencePieceVocabulary


class Outside(NamedTuple):
    """What stands outside of the layers of a model."""

    source: Tensor
    """Embedding (V, D) of the source, by fairseq's numbers."""
    target: Tensor
    """The same of the target."""
    output: Tensor
    """The output layer (V, D)."""
    tables: Sequence[Tensor]
    """Positions (T, D) of source and target, by fairseq's numbers."""
    learned: Sequence[bool]
    """Whether these were learned; else they are waves, which are worked out here as well."""


class InFairseq(InTransformers):
    """A checkpoint's model: its `settings`, its parameters by fairseq's names (`state`, and `outside` of the
    layers), and its `sides`."""

    def __init__(
        self,
        *,
        settings: Mapping[str, Any],
        state: Mapping[str, Tensor],
        outside: Outside,
        sides: tuple[Side, Side],
    ) -> None:
        self._side = sides[0]
        model = _built(settings, *(len(side.symbols) for side in sides))
        with torch.no_grad():
            missing = model.load_state_dict(
                {f"model.{name}": value for name, value in state.items()}, strict=False
            )
            assert not missing.unexpected_keys, missing.unexpected_keys
            parts = (model.model.encoder, model.model.decoder)
            output = model.lm_head if hasattr(model, "lm_head") else model.model.decoder.output_projection
            for module, matrix in zip((*(part.embed_tokens for part in parts), output), outside[:3], strict=True):
                module.weight = nn.Parameter(matrix)
            for part, table, learned in zip(parts, outside.tables, outside.learned, strict=True):
                if learned:
                    name = "weight" if hasattr(part.embed_positions, "weight") else "weights"
                    getattr(part.embed_positions, name).data = table
        super().__init__(model.eval(), *(Numbering(side.rows) for side in sides))

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of texts, without the end of sequence."""
        cut = _cutter(self._side, texts)
        numbers = {symbol: number for number, symbol in enumerate(self._side.symbols) if number > UNSEEN}
        return [self.source.back([numbers.get(piece, UNSEEN) for piece in cut(text)]) for text in texts]


def _built(settings: Mapping[str, Any], source: int, target: int) -> Any:
    """Return a model with the sizes of a checkpoint and parameters of no meaning."""
    import transformers

    sizes = {
        f"{side}_{theirs}": settings[f"{side}_{ours}"]
        for side in ("encoder", "decoder")
        for theirs, ours in (
            ("layers", "layers"),
            ("attention_heads", "attention_heads"),
            ("ffn_dim", "ffn_embed_dim"),
        )
    }
    options: dict[str, Any] = {
        **sizes,
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


def _cutter(side: Side, texts: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what cuts some texts into the pieces of a dictionary."""
    if isinstance(side.vocabulary, SentencePieceVocabulary):
        from sentencepiece import SentencePieceProcessor

        processor: Any = SentencePieceProcessor()
        processor.LoadFromSerializedProto(side.vocabulary.model)
        found: Callable[[str], list[str]] = processor.EncodeAsPieces
        return found
    if not isinstance(side.vocabulary, BpeCodesVocabulary):
        return str.split
    # The library wants to know every piece on the way, and every character.
    codes = side.vocabulary.codes
    letters = {each for text in texts for letter in text for each in (letter, f"{letter}{END_OF_WORD}")}
    known = {piece for pair in codes for piece in (*pair, "".join(pair))} | letters
    model = models.BPE(
        {piece: index for index, piece in enumerate(sorted(known))}, codes, end_of_word_suffix=END_OF_WORD
    )

    def cut(text: str) -> list[str]:
        pieces = [token.value for word in text.split() for token in model.tokenize(word)]
        return [
            piece.removesuffix(END_OF_WORD) if piece.endswith(END_OF_WORD) else f"{piece}{CONTINUATION}"
            for piece in pieces
        ]

    return cut

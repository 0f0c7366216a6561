"""A model that `transformers` feeds and searches with, for certificates."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from regard.convert.certificate import Forced, token_log_probabilities
from regard.convert.parameters import Numbering
from regard.data import BOS, EOS, PAD, UNKNOWN, PairBatch


class InTransformers:
    """An encoder and decoder of `transformers`; `source` and `target` number its vocabularies' symbols.

    Subclasses define `read`, which cuts text.
    """

    program = "transformers"
    missing: Mapping[str, str] = {}

    def __init__(self, model: Any, source: Numbering, target: Numbering) -> None:
        self.model, self.source, self.target = model, source, target
        pad, begin, end, unknown = target.there[[PAD, BOS, EOS, UNKNOWN]].tolist()
        generation: Any = type(model.generation_config)
        model.generation_config = generation(
            pad_token_id=pad,
            eos_token_id=end,
            decoder_start_token_id=begin,
            suppress_tokens=sorted({pad, begin, unknown} - {end}),  # what begins a target may end it too
        )

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the indices of texts, without the end of sequence."""
        raise NotImplementedError

    def force(self, batch: PairBatch) -> Forced:
        """Feed a batch's targets."""
        found = self.model(
            input_ids=self.source.there[batch.source],
            attention_mask=batch.source_mask.long(),
            decoder_input_ids=self.target.there[batch.target_in],
            output_attentions=True,
            use_cache=False,
        )
        kinds = (
            ("encoder.layers.{}.self_attention", found.encoder_attentions),
            ("decoder.layers.{}.self_attention", found.decoder_attentions),
            ("decoder.layers.{}.cross", found.cross_attentions),
        )
        weights = {name.format(layer): each for name, layers in kinds for layer, each in enumerate(layers)}
        logits = self.target.logits(found.logits)
        return Forced(token_log_probabilities(logits, batch), logits, weights)

    def translate(self, source: Tensor, *, beam: int, most: int) -> list[list[int]]:
        """Answer sources (B, Ts) with at most `most` tokens."""
        mask = (source != PAD).long()
        options = {"num_beams": beam, **({"length_penalty": 0.0, "early_stopping": False} if beam > 1 else {})}
        found = self.model.generate(
            input_ids=self.source.there[source],
            attention_mask=mask,
            max_new_tokens=most,
            max_length=None,
            do_sample=False,
            **options,
        )
        rows = [self.target.back(row[1:]) for row in found.tolist()]
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]

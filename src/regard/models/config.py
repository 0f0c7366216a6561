"""What the configs of all models have in common."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Base of the dataclasses that say what parts a model has.

    What only some models have stands here as it is for all others, so that whoever asks for it need not know
    which model it is.
    """

    dropout = 0.0
    enc_layers = 0
    layer = "standard"
    positions = "none"
    score = "none"

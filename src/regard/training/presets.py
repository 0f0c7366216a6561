"""Presets of a Transformer for translation (`--preset`): functions that return its options and training options.

>>> tiny().model.hidden, small().model.hidden
(128, 256)
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from regard.models.transformer import TransformerConfig
from regard.training.translation_settings import TranslationTraining


@dataclass(frozen=True)
class Preset:
    """Options of a Transformer and of its training."""

    model: TransformerConfig
    training: TranslationTraining


def tiny() -> Preset:
    """Return the best known model for 29,000 pairs and 20 minutes on one core.

    docs/explanation/results.md lists the trials.
    """
    return Preset(_tiny_model(), TranslationTraining(steps=4000, lr=0.003))


def tiny_r_drop() -> Preset:
    """Return the best known model for 29,000 pairs and two hours on one core. R-Drop doubles the cost of a
    step."""
    return Preset(_tiny_model(), TranslationTraining(steps=7000, lr=0.003, r_drop=3.0))


def marian() -> Preset:
    """Return a model of the size of `tiny`, with the type of layers that `regard export --to huggingface`
    requires."""
    model = dataclasses.replace(_tiny_model(), positions="sinusoidal", pre_norm=False, dropout=0.3)
    return Preset(model, TranslationTraining(steps=12_000, lr=0.001))


def small() -> Preset:
    model = TransformerConfig(hidden=256, heads=4, inner=1024, enc_layers=4, dec_layers=4, dropout=0.3)
    return Preset(model, TranslationTraining(steps=12_000, lr=0.002))


def base() -> Preset:
    """Return the base model of Vaswani et al. 2017, table 3."""
    model = TransformerConfig(hidden=512, heads=8, inner=2048, enc_layers=6, dec_layers=6, dropout=0.1)
    return Preset(model, TranslationTraining(steps=12_000, lr=0.001))


def big() -> Preset:
    """Return the big model of Vaswani et al. 2017, table 3."""
    model = TransformerConfig(hidden=1024, heads=16, inner=4096, enc_layers=6, dec_layers=6, dropout=0.3)
    return Preset(model, TranslationTraining(steps=12_000, lr=0.0005))


def _tiny_model() -> TransformerConfig:
    return TransformerConfig(
        hidden=128, heads=4, inner=256, enc_layers=4, dec_layers=4, positions="rotary", dropout=0.2
    )


PRESETS: dict[str, Callable[[], Preset]] = {
    "tiny": tiny,
    "tiny-r-drop": tiny_r_drop,
    "marian": marian,
    "small": small,
    "base": base,
    "big": big,
}
"""Presets by name; tiny is the default."""

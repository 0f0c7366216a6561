"""Small random transformers models, built from their configs without a download."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

Category = Literal["encoder", "decoder", "encoder-decoder", "vision", "speech", "two towers"]


@dataclass(frozen=True)
class Architecture:
    """An architecture with a small config."""

    name: str
    """Model type in transformers."""
    category: Category
    sizes: Mapping[str, Any]
    model: str = ""
    """Class of the model, if it differs from the auto class for the category."""
    grouped_heads: bool = False
    """Whether groups of heads share keys."""
    window: bool = False
    """Whether some layers attend only to a window."""
    implementations: tuple[str, ...] = ("eager", "sdpa")
    """Attention implementations that run on a CPU."""
    generates: bool = True
    """Whether the model generates with a cache."""
    unsupported: str = ""
    """Reason why the model cannot be recorded, or empty."""
    note: str = ""
    """Remark for the table."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Additional inputs."""


def build(architecture: Architecture, implementation: str = "") -> nn.Module:
    """Build a model with random weights from a fixed seed, large enough that heads differ."""
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(architecture.name, **architecture.sizes)
    config.use_cache = architecture.generates and architecture.category != "encoder"
    auto_class: Any = transformers.AutoModel
    if architecture.category == "decoder":
        auto_class = transformers.AutoModelForCausalLM
    elif architecture.category == "encoder-decoder":
        auto_class = transformers.AutoModelForSeq2SeqLM
    elif architecture.name == "whisper":
        auto_class = transformers.AutoModelForSpeechSeq2Seq
    if architecture.model:
        auto_class = getattr(transformers, architecture.model)
    create = auto_class._from_config if architecture.model else auto_class.from_config
    options = {"attn_implementation": implementation} if implementation else {}
    model: nn.Module = create(config, **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.2 * (parameter[0].numel()) ** -0.5)
    return model


def make_inputs(architecture: Architecture, padding: str = "right", batch: int = 2) -> dict[str, Any]:
    """Return inputs of `batch` sequences; all but the first are padded."""
    generator = torch.Generator().manual_seed(1)

    def tokens(length: int) -> Tensor:
        return torch.randint(3, 60, (batch, length), generator=generator)

    length = 9
    mask = torch.ones(batch, length, dtype=torch.long)
    if padding != "none":
        mask[1:, slice(-3, None) if padding == "right" else slice(3)] = 0
    text = {"input_ids": tokens(length) * mask, "attention_mask": mask}
    inputs: dict[str, Any] = dict(text)
    if architecture.category == "encoder-decoder":
        inputs |= {"decoder_input_ids": tokens(7)}
    elif architecture.category == "vision":
        inputs = {"pixel_values": torch.randn(batch, 3, 16, 16, generator=generator)}
    elif architecture.category == "two towers":
        inputs |= {"pixel_values": torch.randn(batch, 3, 16, 16, generator=generator)}
    elif architecture.name == "whisper":
        inputs = {"input_features": torch.randn(batch, 8, 24, generator=generator), "decoder_input_ids": tokens(7)}
    elif architecture.name == "audio-spectrogram-transformer":
        inputs = {"input_values": torch.randn(batch, 24, 16, generator=generator)}
    elif architecture.category == "speech":
        inputs = {"input_values": torch.randn(batch, 400, generator=generator)}
    return inputs | dict(architecture.inputs)

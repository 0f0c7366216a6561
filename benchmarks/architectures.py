"""Small random models of Hugging Face's architectures, built from their configs and never downloaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

Sort = Literal["encoder", "decoder", "encoder-decoder", "vision", "speech", "two towers"]


@dataclass(frozen=True)
class Architecture:
    """One architecture, and sizes that make it small."""

    name: str
    """Of its model, as transformers calls it."""
    sort: Sort
    sizes: Mapping[str, Any]
    model: str = ""
    """The class, where it is not the one of its name with a head that writes, or without head."""
    heads_differ: bool = False
    """Whether groups of heads share their keys."""
    window: bool = False
    """Whether layers see a window only."""
    implementations: tuple[str, ...] = ("eager", "sdpa")
    """What its attention can be computed with on a processor."""
    generates: bool = True
    """Whether it generates with a cache."""
    excuse: str = ""
    """Why it cannot be recorded as others can."""
    note: str = ""
    """What a reader of the table should know."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """What it is given besides."""


def build(architecture: Architecture, implementation: str = "") -> nn.Module:
    """Build a model with weights large enough that heads differ, always the same ones."""
    import transformers

    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(architecture.name, **architecture.sizes)
    config.use_cache = architecture.generates and architecture.sort != "encoder"
    automatic: Any = transformers.AutoModel
    if architecture.sort == "decoder":
        automatic = transformers.AutoModelForCausalLM
    elif architecture.sort == "encoder-decoder":
        automatic = transformers.AutoModelForSeq2SeqLM
    elif architecture.name == "whisper":
        automatic = transformers.AutoModelForSpeechSeq2Seq
    if architecture.model:
        automatic = getattr(transformers, architecture.model)
    create = automatic._from_config if architecture.model else automatic.from_config
    options = {"attn_implementation": implementation} if implementation else {}
    model: nn.Module = create(config, **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=1.2 * (parameter[0].numel()) ** -0.5)
    return model


def make_inputs(architecture: Architecture, padding: str = "right", batch: int = 2) -> dict[str, Any]:
    """Make inputs of `batch` sequences, of which the second is shorter."""
    generator = torch.Generator().manual_seed(1)

    def tokens(length: int) -> Tensor:
        return torch.randint(3, 60, (batch, length), generator=generator)

    length = 9
    there = torch.ones(batch, length, dtype=torch.long)
    if padding != "none":
        there[1:, slice(-3, None) if padding == "right" else slice(3)] = 0
    text = {"input_ids": tokens(length) * there, "attention_mask": there}
    given: dict[str, Any] = dict(text)
    if architecture.sort == "encoder-decoder":
        given |= {"decoder_input_ids": tokens(7)}
    elif architecture.sort == "vision":
        given = {"pixel_values": torch.randn(batch, 3, 16, 16, generator=generator)}
    elif architecture.sort == "two towers":
        given |= {"pixel_values": torch.randn(batch, 3, 16, 16, generator=generator)}
    elif architecture.name == "whisper":
        given = {
            "input_features": torch.randn(batch, 8, 24, generator=generator),
            "decoder_input_ids": tokens(7),
        }
    elif architecture.name == "audio-spectrogram-transformer":
        given = {"input_values": torch.randn(batch, 24, 16, generator=generator)}
    elif architecture.sort == "speech":
        given = {"input_values": torch.randn(batch, 400, generator=generator)}
    return given | dict(architecture.inputs)

"""Models without a run, as subjects of `regard.why`."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

import regard
from regard.activations.components import Components, find_components
from regard.attention.layer import attention_layers
from regard.attention.names import short_name
from regard.interpret.linear_pass import own_forward_pass
from regard.models.decoder_only import DecoderOnly, DecoderOnlyConfig
from regard.models.query import QueryModel, QueryModelConfig
from regard.models.transformer import Transformer, TransformerConfig
from regard.viz.attention_map import AttentionMap
from regard.viz.maps import layer_kind
from regard.viz.subject import ForwardPass, Layer

STEPS, SYMBOLS = 6, 11


class BareModel:
    """A model with one input, which `run` passes to it."""

    def __init__(self, model: nn.Module, run: Callable[[], Any]) -> None:
        torch.manual_seed(0)
        for parameter in model.parameters():  # no bias, norm or learned position is zero
            parameter.data += 0.3 * torch.randn_like(parameter)
        self.model, self.run = model.eval(), run

    @property
    def layers(self) -> Sequence[Layer]:
        layers = {short_name(name): layer for name, layer in attention_layers(self.model).items()}
        return [Layer(name, layer_kind(name), layer.heads) for name, layer in layers.items()]

    @property
    def components(self) -> Components:
        return find_components(self.model)

    def attend(self, input: str | None = None, *, seed: int = 0) -> AttentionMap:
        with torch.no_grad(), regard.record(self.model) as records:
            self.run()
        return regard.make_maps(records)[0]

    def forward_pass(self, input: str) -> ForwardPass:
        return own_forward_pass(self.model, self.run)


def tokens(steps: int = STEPS, seed: int = 1) -> torch.Tensor:
    return torch.randint(1, SYMBOLS, (1, steps), generator=torch.Generator().manual_seed(seed))


def decoder_only(**options: Any) -> BareModel:
    sizes = {"hidden": 24, "heads": 2, "layers": 3, "inner": 20} | options
    model = DecoderOnly(DecoderOnlyConfig(**sizes), symbols=SYMBOLS, longest=20)
    return BareModel(model, lambda: model(tokens()))


def transformer(**options: Any) -> BareModel:
    sizes = {"hidden": 24, "heads": 2, "inner": 20} | options
    model = Transformer(TransformerConfig(**sizes), source_symbols=SYMBOLS, target_symbols=SYMBOLS, longest=20)
    source = tokens()
    return BareModel(model, lambda: model(source, source > 0, tokens(5, 2)))


def query_model(*, vary_len: bool = False, **options: Any) -> BareModel:
    config = QueryModelConfig(**({"hidden": 24, "heads": 2} | options))
    model = QueryModel(config, letters=SYMBOLS, input_len=STEPS, outputs=3, classes=7, vary_len=vary_len)
    return BareModel(model, lambda: model(tokens()))

"""Growth of attention and of models, for growth.py: length, heads, vocabulary, recorded layers."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from growth import Growth, Work, spread_sizes
from torch import nn

import regard
from regard.attention.multihead import MultiHeadAttention
from regard.training.objective import cross_entropy

WIDTH, HEADS = 64, 4
LENGTHS = spread_sizes(40, 4000)
MEMORY_LENGTHS = spread_sizes(100, 10_000)
COUNTS = spread_sizes(3, 300)
HEAD_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
HEAD_WIDTH, HEAD_LENGTH = 8, 128
SYMBOLS = spread_sizes(300, 30_000)
PER_WEIGHT = 10
"""Operations of a weight beside its products: scale, mask, maximum, exponential, sum and division."""


def attention_growths() -> list[Growth]:
    """Return the growth of attention with the length and with the number of heads."""
    growths = []
    for recorded, name in ((None, "not recorded"), ({"rows": [0]}, "one row recorded"), ({}, "recorded")):
        for backward in (False, True):
            growths.append(
                Growth(
                    group="attention",
                    panel="attention, forward and backward" if backward else "attention, forward",
                    name=name,
                    size="sequence length",
                    sizes=LENGTHS,
                    prepare=partial(attention_pass, WIDTH, HEADS, None, recorded, backward),
                    demanded=attention_operations,
                )
            )
        growths.append(
            Growth(
                group="attention",
                panel="attention, memory",
                name=name,
                size="sequence length",
                sizes=MEMORY_LENGTHS,
                prepare=partial(attention_pass, WIDTH, 1, None, recorded, False),
                demanded=(lambda length: length**2) if recorded == {} else float,
                unit="MiB",
            )
        )
        growths.append(
            Growth(
                group="attention",
                panel="attention, heads",
                name=name,
                size="heads of width 8",
                sizes=HEAD_COUNTS,
                prepare=partial(heads_pass, recorded),
                demanded=heads_operations,
            )
        )
    return growths


def attention_operations(length: int) -> float:
    """Return the operations of four projections, scores, weights and contexts."""
    products = 8 * length * WIDTH**2 + 4 * length**2 * WIDTH
    return float(products + PER_WEIGHT * HEADS * length**2)


def heads_operations(heads: int) -> float:
    """Return the operations of `heads` heads of a fixed width, for a fixed width of the layer."""
    products = 8 * HEAD_LENGTH * WIDTH * HEAD_WIDTH * heads + 4 * HEAD_LENGTH**2 * HEAD_WIDTH * heads
    return float(products + PER_WEIGHT * HEAD_LENGTH**2 * heads)


def attention_pass(
    width: int, heads: int, head_width: int | None, recorded: Any, backward: bool, length: int, folder: Path
) -> Work:
    """Return a pass of self-attention over one sequence, with or without recording (options of `record`)."""
    del folder
    torch.manual_seed(0)
    layer = MultiHeadAttention(width, heads, head_width=head_width)
    states = torch.randn(1, length, width, requires_grad=backward)

    def work() -> None:
        with torch.set_grad_enabled(backward):
            if recorded is None:
                output = layer(states)
            else:
                with regard.record(layer, **recorded):
                    output = layer(states)
            if backward:
                output.sum().backward()

    return work


def heads_pass(recorded: Any, heads: int, folder: Path) -> Work:
    """Return a forward pass with `heads` heads."""
    return attention_pass(WIDTH, heads, HEAD_WIDTH, recorded, False, HEAD_LENGTH, folder)


def model_growths() -> list[Growth]:
    """Return the growth of the loss with the vocabulary, and of passes with the number of layers."""
    loss = Growth(
        group="models",
        panel="vocabulary",
        name="loss of a training step",
        size="symbols",
        sizes=SYMBOLS,
        prepare=loss_step,
        demanded=float,
    )
    layers = [
        Growth(
            group="models",
            panel=panel,
            name=name,
            size="layers",
            sizes=COUNTS,
            prepare=partial(layers_pass, build, recorded),
            demanded=float,
        )
        for panel, build in (("layers of a PyTorch model", torch_layers), ("layers of a BERT", bert_layers))
        for name, recorded in (("not recorded", None), ("one layer recorded", "one"), ("recorded", "all"))
    ]
    return [loss, *layers]


def loss_step(symbols: int, folder: Path) -> Work:
    """Return the loss of 512 positions with its gradient."""
    del folder
    torch.manual_seed(0)
    states, weight = torch.randn(1, 512, WIDTH, requires_grad=True), torch.randn(symbols, WIDTH)
    weight.requires_grad_()
    target = torch.randint(symbols, (512,))
    return lambda: cross_entropy(states, (weight, None), target, 0.1)[0].backward()


def torch_layers(layers: int) -> nn.Module:
    """Return a stack of small PyTorch layers."""
    parts = [nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(layers)]
    return nn.Sequential(*parts).eval()


def bert_layers(layers: int) -> nn.Module:
    """Return a small BERT with many layers."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=8,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    return transformers.BertModel(config).eval()


def layers_pass(build: Any, recorded: str | None, layers: int, folder: Path) -> Work:
    """Return a forward pass of a model with many small layers."""
    del folder
    torch.manual_seed(0)
    model = build(layers)
    inputs = torch.zeros(1, 4, 8) if isinstance(model, nn.Sequential) else torch.ones(1, 4, dtype=torch.long)
    with torch.no_grad(), regard.record(model) as records:
        model(inputs)
    options: dict[str, Any] = {"layers": list(records)[:1]} if recorded == "one" else {}

    def work() -> None:
        with torch.no_grad():
            if recorded is None:
                model(inputs)
            else:
                with regard.record(model, **options) as records:
                    model(inputs)
                assert len(records) == (1 if recorded == "one" else layers)

    return work

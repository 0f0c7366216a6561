"""Known models as custom modules with a loss: the module of the run, or a GPT-2 of transformers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import regard
from regard.attention.blocks import FeedForward
from regard.attention.layer import attention_layers
from regard.evaluation.accuracy import output_losses
from regard.tasks.batch import TokenBatch
from regard_lab.bench.known_models import KnownModel


def as_module(known: KnownModel, inputs: Sequence[Any]) -> Any:
    """Return a known model as a custom module with a loss, over some inputs of its run.

    The inputs of an encoder-decoder are sources; its decoder reads the true answer.
    """
    run: Any = known.subject
    pairs = known.family == "encoder-decoder"

    def read(input: Any) -> Any:
        if not pairs:
            return input.unsqueeze(0)
        batch = run.task.batch([run.task.known(input)])
        return batch.source, batch.source_mask, batch.target_in

    def loss(model: nn.Module, input: Any) -> float:
        return float(replace(run, model=model).losses([run.task.known(input) if pairs else input])[0, 0])

    return regard.look(run.model, read, inputs=[pair[0] for pair in inputs] if pairs else inputs, loss=loss)


def as_gpt2(known: KnownModel, inputs: Sequence[Tensor]) -> Any:
    """Return a compiled program as a GPT-2 with a loss; its norms are identities."""
    run: Any = known.subject
    model = _gpt2(run.model)

    def loss(model: nn.Module, input: Tensor) -> float:
        batch = TokenBatch(input.unsqueeze(0), run.task.answer(input.unsqueeze(0)), None)
        logits: Any = model(batch.inputs)
        return float(output_losses(logits.logits, batch.targets, batch.is_output)[0].sum())

    return regard.look(model, lambda input: {"input_ids": input.unsqueeze(0)}, inputs=inputs, loss=loss)


@torch.no_grad()
def _gpt2(own: Any) -> nn.Module:
    import transformers

    attention: list[Any] = list(attention_layers(own).values())
    units = [module for module in own.modules() if isinstance(module, FeedForward)]
    vocabulary, width = own.embedding.weight.shape
    config = transformers.GPT2Config(
        vocab_size=vocabulary,
        n_embd=width,
        n_head=attention[0].heads,
        n_layer=len(attention),
        n_inner=units[0].inner.out_features,
        n_positions=len(own.positions.weight),
        activation_function="relu",
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model: Any = transformers.GPT2LMHeadModel(config)
    for parameter in model.parameters():
        parameter.zero_()
    body = model.transformer
    body.wte.weight.copy_(own.embedding.weight)
    body.wpe.weight.copy_(own.positions.weight)
    model.lm_head = nn.Linear(width, own.output.out_features, bias=False)
    model.lm_head.weight.copy_(own.output.weight)
    body.ln_f = nn.Identity()
    for block, layer, unit in zip(body.h, attention, units, strict=True):
        block.ln_1, block.ln_2 = nn.Identity(), nn.Identity()
        block.attn.c_attn.weight.copy_(torch.cat([layer.query.weight, layer.key.weight, layer.value.weight]).T)
        block.attn.c_proj.weight.copy_(layer.output.weight.T)
        block.mlp.c_fc.weight.copy_(unit.inner.weight.T)
        block.mlp.c_proj.weight.copy_(unit.outer.weight.T)
    evaluated: nn.Module = model.eval()
    return evaluated

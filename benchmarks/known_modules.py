"""Known models as external models: the module of the run, or a GPT-2 of transformers, each with a loss."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.attention.blocks import FeedForward
from regard.attention.layer import attention_layers
from regard.data.vocabulary import PAD
from regard.tasks.batch import IGNORE
from regard_lab.bench.known_models import KnownModel


def as_external(known: KnownModel, inputs: Sequence[Any]) -> Any:
    """Return a known model as an external model: decoder-only programs as a GPT-2, all others as a custom module."""
    is_program = known.family == "decoder-only" and known.circuit is not None and known.kind != "trained-in"
    return (as_gpt2 if is_program else as_module)(known, inputs)


def as_module(known: KnownModel, inputs: Sequence[Any]) -> Any:
    """Return a known model as a custom module with a loss, over some inputs of its run.

    The inputs of an encoder-decoder are sources; its decoder reads the true answer.
    """
    task: Any = known.subject.task
    pairs = known.family == "encoder-decoder"

    def read(input: Any) -> Any:
        if not pairs:
            return input.unsqueeze(0)
        batch = task.batch([task.known(input)])
        return batch.source, batch.source_mask, batch.target_in

    def answer(input: Any) -> Tensor:
        if not pairs:
            answer: Tensor = task.answer(input.unsqueeze(0))
            return answer
        target = task.batch([task.known(input)]).target
        return target.masked_fill(target == PAD, IGNORE)

    given = [pair[0] for pair in inputs] if pairs else inputs
    return _with_loss(
        known.subject.model, read, given, answer, None if pairs else lambda input: list(task.render(input))
    )


def as_gpt2(known: KnownModel, inputs: Sequence[Tensor]) -> Any:
    """Return a compiled program as a GPT-2 with a loss; its norms are identities."""
    run: Any = known.subject
    model = _gpt2(run.model)
    return _with_loss(
        model,
        lambda input: {"input_ids": input.unsqueeze(0)},
        inputs,
        lambda input: run.task.answer(input.unsqueeze(0)),
        lambda input: list(run.task.render(input)),
    )


def _with_loss(model: nn.Module, read: Any, inputs: Sequence[Any], answer: Any, names: Any = None) -> Any:
    answers = {_key(input): answer(input) for input in inputs}

    def loss(model: nn.Module, input: Any) -> float:
        arguments = read(input)
        arguments = (arguments,) if isinstance(arguments, Tensor) else arguments
        output: Any = model(**arguments) if isinstance(arguments, dict) else model(*arguments)
        logits, truth = getattr(output, "logits", output), answers[_key(input)]
        return float(F.cross_entropy(logits.flatten(0, 1), truth.flatten(), ignore_index=IGNORE, reduction="sum"))

    return regard.look(model, read, inputs=inputs, loss=loss, names=names)


def _key(input: Any) -> Any:
    return tuple(input.tolist()) if isinstance(input, Tensor) else input


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

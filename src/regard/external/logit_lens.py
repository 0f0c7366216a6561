"""The logit lens (nostalgebraist 2020): the output that the state after each block would predict.

    logits_l = unembedding(final norm(state after block l))

The norm is the final norm of the model. The unembedding was trained only on states after the last block, so
earlier rows are interpretations, not predictions.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from rich.table import Table
from torch import Tensor, nn

from regard.activations.interface import Watch
from regard.activations.modules import unwrap
from regard.arguments import Limits, public
from regard.errors import InputError
from regard.external.adapters import call_model
from regard.external.next_tokens import read_tokens
from regard.models.decoder_only import DecoderOnly
from regard.result import Result, plain_table
from regard.viz.subject import Subject

AGREEMENT = 1e-3
"""Largest accepted difference from the model's own logits, as a fraction of the largest logit (at least 1)."""
COUNT = 5
"""Default number of tokens for each state."""
SHOWN = 8
"""Number of positions, counted from the end, in the printed table."""


@public
@dataclass(frozen=True, kw_only=True, repr=False)
class LogitLens(Result):
    """The likeliest tokens of each state, by layer and position."""

    input: str
    positions: list[str]
    """Labels of the tokens of the input."""
    layers: list[str]
    """`embeddings`, and the name of each block; the last row is the model's own output."""
    head: list[str]
    """Names of the modules that turned states into logits: final norm and unembedding."""
    tokens: list[list[list[str]]]
    """By layer and position: the likeliest tokens."""
    probabilities: list[list[list[float]]]

    def summary(self) -> str:
        """Return the size of the table, and the tokens read at the last position, in one line."""
        path = [row[-1][0] for row in self.tokens]
        return f"{len(self.layers)} layers, {len(self.positions)} positions; at the last: {' > '.join(path)}"

    def table(self) -> Table:
        """Return a table of the likeliest tokens, with a row for each layer and columns for the last positions."""
        first = max(len(self.positions) - SHOWN, 0)
        cells = (
            (f"{token[0]} {share[0]:.0%}" for token, share in zip(tokens[first:], shares[first:], strict=True))
            for tokens, shares in zip(self.tokens, self.probabilities, strict=True)
        )
        rows = ((layer, *row) for layer, row in zip(self.layers, cells, strict=True))
        return plain_table(("layer", *self.positions[first:]), rows, f"Logit lens through {', '.join(self.head)}")


@public
def logit_lens(subject: Subject[Any], text: str, *, count: Annotated[int, Limits(1, 1000)] = COUNT) -> LogitLens:
    """Return the `count` likeliest tokens of the state before the first block and after each block.

    States (T, D) pass through the model's own final norm and unembedding (for BERT, the whole output head). The
    last row is checked against the model's logits. Works for causal and masked language models of transformers,
    and for runs of decoder-only models.

    >>> model = regard.look("gpt2-folder")    # doctest: +SKIP
    >>> print(regard.logit_lens(model, "The cat sat on the"))    # doctest: +SKIP

    Raises `InputError` for another model, or if its output head is not known.
    """
    model = subject.model
    if not isinstance(model, DecoderOnly):
        tokens = read_tokens(subject, text)
        positions = tokens.labels
        states = read_states(model, lambda: tokens.subject.adapter.logits(call_model(model, tokens.arguments)))
        states.rows = [row[-len(tokens.ids) :] for row in states.rows]  # without learned steps before the text
    elif not isinstance(model.embedding, nn.Embedding):
        raise InputError(f"{subject.name} has real-valued inputs and outputs: choose a model of tokens")
    else:
        prepared = subject.prepare(text)
        positions = list(subject.called(prepared.tolist()))
        tokens_in = prepared.to(model.embedding.weight.device).unsqueeze(0)
        states = read_states(model, lambda: model(tokens_in))
    names: dict[int, str] = {}
    all_tokens: list[list[list[str]]] = []
    all_shares: list[list[list[float]]] = []
    for row in states.rows:
        best: Any = states.apply_head(row).softmax(-1)
        best = best.topk(min(count, best.shape[-1]))
        ids = best.indices.tolist()
        unnamed = sorted({number for likeliest in ids for number in likeliest} - names.keys())
        names |= dict(zip(unnamed, subject.called(unnamed), strict=True))
        all_tokens.append([[names[number] for number in likeliest] for likeliest in ids])
        all_shares.append(best.values.tolist())
    return LogitLens(
        input=text,
        positions=positions,
        layers=states.names,
        head=[name for name, _ in states.head],
        tokens=all_tokens,
        probabilities=all_shares,
    )


@dataclass
class BlockStates:
    """The states between the blocks in one pass, and the modules that turn states into logits."""

    names: list[str] = field(default_factory=list)
    """`embeddings`, and the name of each block."""
    rows: list[Tensor] = field(default_factory=list)
    """States (T, D) before the first block, and after each block."""
    head: list[tuple[str, Callable[[Tensor], Any]]] = field(default_factory=list)
    """Outermost modules that run after the last block: final norm and unembedding."""

    def apply_head(self, states: Tensor) -> Tensor:
        """Return the logits (T, V) for states (T, D)."""
        for _, module in self.head:
            output = module(states.unsqueeze(0))
            states = (output if isinstance(output, Tensor) else output[0])[0]
        return states.float()


@torch.no_grad()
def read_states(model: nn.Module, run: Callable[[], Tensor | None]) -> BlockStates:
    """Run a model; return the states of its blocks and its output head. `run` returns the logits (1, T, V).

    Raises `InputError` for a model without a list of blocks, and if modules after the last do not compute its logits.
    """
    result, kind = BlockStates(), type(unwrap(model)).__name__

    def keep(name: str, value: Tensor, continues: bool) -> Tensor:
        if name.endswith(".resid_pre") and result.rows:
            return value
        block = prefixes.get(name.removesuffix(".resid_post"), "embeddings")
        calls = sum(known.split("#")[0] == block for known in result.names)  # ALBERT runs one block many times
        result.names.append(f"{block}#{calls}" if calls else block)
        result.rows.append(value[0].clone())
        return value

    # Not `record`, which keeps the last call of a block that runs several times.
    watch, depth = Watch(model, ["*.resid_pre", "*.resid_post"], keep), 0
    names = watch.names
    if not names.attention or not names.blocks:
        raise InputError(f"{kind} has no list of blocks: its layers cannot be read one by one")
    # A hybrid model also has blocks without attention.
    known, modules = dict.fromkeys(names.blocks), watch.tracker.modules
    for name in names.blocks:
        parent = name.rpartition(".")[0]
        if isinstance(blocks := modules.get(parent), nn.ModuleList | nn.Sequential):
            known |= {f"{parent}.{part}": None for part, _ in blocks.named_children()}
    names.blocks = [name for name in modules if name in known]
    prefixes = {names.block(block): block for block in names.blocks}
    block_modules = {modules[block] for block in names.blocks}

    def enter(name: str) -> None:
        nonlocal depth
        result.head += [] if depth else [(name, model.get_submodule(name))]
        depth += 1

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        nonlocal depth
        depth = max(depth - 1, 0)
        if module in block_modules:  # what runs from here on may be the output head
            result.head.clear()
            depth = 0

    with ExitStack() as stack:
        for name, module in model.named_modules():
            before = module.register_forward_pre_hook(lambda module, args, name=name: enter(name))
            stack.callback(before.remove)
            stack.callback(module.register_forward_hook(leave).remove)
        stack.enter_context(watch.run())
        logits = run()
    assert logits is not None
    if isinstance(model, DecoderOnly):  # its output layer may be the transposed embedding, which is not a module
        norm = [] if isinstance(model.decoder.norm, nn.Identity) else [("decoder.norm", model.decoder.norm)]
        result.head = [*norm, ("embedding" if model.output is None else "output", model.logits)]
    expected = logits[0].float()
    try:
        largest = float((result.apply_head(result.rows[-1]) - expected).abs().max())
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        after = ", ".join(name for name, _ in result.head) or "no module"
        raise InputError(f"{kind} runs {after} after its blocks, which is not a known output head") from error
    if not largest <= AGREEMENT * max(1.0, float(expected.abs().max())):
        raise InputError(
            f"{kind} changes its logits after final norm and unembedding (by up to {largest:.3g}): its layers"
            " cannot be read through them"
        )
    return result

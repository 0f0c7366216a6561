"""The logit lens (nostalgebraist 2020): the output that the state after each block would predict.

    logits_l = unembedding(final norm(state after block l))

The norm is the final norm of the model. The unembedding was trained only on states after the last block, so
earlier rows are interpretations, not predictions.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from rich.table import Table
from torch import nn

from regard.arguments import Limits, public
from regard.errors import InputError
from regard.external.next_tokens import read_tokens
from regard.external.output_head import BlockStates, read_blocks, read_own_blocks
from regard.models.decoder_only import DecoderOnly
from regard.result import Result
from regard.viz.subject import Subject

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
        """Return a table of the likeliest tokens, with a row for each layer and columns for the last
        positions."""
        first = max(len(self.positions) - SHOWN, 0)
        table = Table("layer", *self.positions[first:], box=None, pad_edge=False)
        table.title, table.title_justify = f"Logit lens through {', '.join(self.head)}", "left"
        for layer, tokens, shares in zip(self.layers, self.tokens, self.probabilities, strict=True):
            cells = zip(tokens[first:], shares[first:], strict=True)
            table.add_row(layer, *(f"{token[0]} {share[0]:.0%}" for token, share in cells))
        return table


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
    positions, blocks = _read(subject, text)
    names: dict[int, str] = {}
    all_tokens: list[list[list[str]]] = []
    all_shares: list[list[list[float]]] = []
    for states in blocks.states:
        best: Any = blocks.apply_head(states).softmax(-1)
        best = best.topk(min(count, best.shape[-1]))
        rows = best.indices.tolist()
        unnamed = sorted({number for row in rows for number in row} - names.keys())
        names |= dict(zip(unnamed, subject.called(unnamed), strict=True))
        all_tokens.append([[names[number] for number in row] for row in rows])
        all_shares.append(best.values.tolist())
    return LogitLens(
        input=text,
        positions=positions,
        layers=blocks.names,
        head=[name for name, _ in blocks.after],
        tokens=all_tokens,
        probabilities=all_shares,
    )


def _read(subject: Subject[Any], text: Any) -> tuple[list[str], BlockStates]:
    """Return the labels of the tokens of a text, and the states of the blocks."""
    model = subject.model
    if not isinstance(model, DecoderOnly):
        tokens = read_tokens(subject, text)
        return tokens.labels, read_blocks(tokens)
    if not isinstance(model.embedding, nn.Embedding):
        raise InputError(f"{subject.name} has real-valued inputs and outputs: choose a model of tokens")
    prepared = subject.prepare(text)
    blocks = read_own_blocks(model, prepared.to(model.embedding.weight.device))
    return list(subject.called(prepared.tolist())), blocks

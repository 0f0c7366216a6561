"""Which heads of a sentence encoder does the search in Python's help texts need?

`python examples/search_heads.py MODEL pairs.tsv`: the first sentence of each line is a query. The model has to find
the second one among the second sentences of all lines, by the cosine of mean states. The loss is the cross entropy of
20 times the cosines. The output of a head is replaced by its mean over the queries, or by its output for another query:
for each head, for all heads without a shown effect, and for all heads. The stored sentences do not change. Intervals
are those of the sign test for the median, at 95 % for all heads and both ways at once.
"""

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

import regard
from regard.statistics import median_interval

BATCH = 50
SHOWN = 5  # heads
Head = tuple[int, int]  # layer and number
WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "its mean": lambda outputs: outputs.mean((0, 1), keepdim=True).expand_as(outputs),
    "its output for another query": lambda outputs: outputs.roll(1, 0),
}


class Search:
    """Queries, and the stored vectors of the sentences that they have to find."""

    def __init__(self, folder: str, file: str) -> None:
        self.model, self.tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
        lines = Path(file).read_text(encoding="utf-8").splitlines()
        pairs = sorted((line.split("\t") for line in lines), key=lambda pair: len(pair[0]))  # for little padding
        self.queries = [query for query, _ in pairs]
        self.stored = self.embed([sentence for _, sentence in pairs])

    @torch.no_grad()
    def embed(self, texts: list[str]) -> Tensor:
        """Return the mean state of each text, with length 1."""
        means = []
        for first in range(0, len(texts), BATCH):
            inputs = self.tokenizer(texts[first : first + BATCH], padding=True, return_tensors="pt")
            mask = inputs["attention_mask"].unsqueeze(-1)
            means.append((self.model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1))
        return torch.nn.functional.normalize(torch.cat(means), dim=-1)

    def losses(self, way: str, heads: Iterable[Head]) -> tuple[Tensor, str]:
        """Return the loss of each query with replaced outputs of heads, and a summary."""
        with ExitStack() as stack:
            for layer, head in heads:

                def changed(outputs: Tensor, head: int = head) -> Tensor:  # (B, T, H, d)
                    new = WAYS[way](outputs[:, :, [head]])
                    return torch.cat([outputs[:, :, :head], new, outputs[:, :, head + 1 :]], 2)

                stack.enter_context(regard.replace(self.model, f"layer.{layer}.z", changed))
            logits = 20 * self.embed(self.queries) @ self.stored.T
        truth = torch.arange(len(logits))
        losses = torch.nn.functional.cross_entropy(logits, truth, reduction="none")
        return losses, f"loss {losses.mean():.3f}, found first {(logits.argmax(-1) == truth).double().mean():.1%}"


def main(folder: str, file: str) -> None:
    """Print the effect of single heads, and of many at once."""
    search = Search(folder, file)
    config = search.model.config
    heads = [(layer, head) for layer in range(config.num_hidden_layers) for head in range(config.num_attention_heads)]
    level = 1 - 0.05 / (len(WAYS) * len(heads))
    before, summary = search.losses("its mean", [])
    print(f"{len(before)} queries: {summary}")
    for way in WAYS:
        rises = {head: search.losses(way, [head])[0] - before for head in heads}
        found = {head: median_interval(rise.tolist(), level) for head, rise in rises.items()}
        needed = [head for head in heads if (found[head].low or 0) > 0]
        lowering = [head for head in heads if (found[head].high or 0) < 0]
        print(f"\nReplaced by {way}: {len(needed)} of {len(heads)} heads raise the loss, {len(lowering)} lower it")
        for head in sorted(heads, key=lambda head: -float(rises[head].mean()))[:SHOWN]:
            ends = f"{found[head].low:+.3f} to {found[head].high:+.3f}"
            print(f"  {head[0]}.{head[1]}: mean {rises[head].mean():+.3f}, median {found[head].value:+.3f} ({ends})")
        others = [head for head in heads if head not in needed]
        for name, group in ((f"the {len(others)} heads that are not shown to raise it", others), ("all heads", heads)):
            print(f"  {name}, at once: {search.losses(way, group)[1]}")


if __name__ == "__main__":
    main(*sys.argv[1:])

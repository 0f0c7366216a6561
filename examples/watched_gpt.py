"""Train a small GPT on text with a plain PyTorch loop, and watch its attention.

    python examples/watched_gpt.py --rate 0.03 --out high               # too high: warnings, and a high loss
    python examples/watched_gpt.py --rate 0.03 --qk_norm --out normed   # with normalized queries and keys
    python examples/watched_gpt.py --rate 0.003 --out low               # a lower rate
    regard show high                                            # the heads, also while the training runs

The text is the help of Python's language, or any file with `--text`. The model is the decoder of nanoGPT's form: layer
norm before each block, one matrix for queries, keys and values, and `F.scaled_dot_product_attention`. Nothing in the
model knows of Regard; `regard.watch` is the one line that is added. One run takes ten seconds to a minute on two cores.
"""

import argparse
import math
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard


class Attention(nn.Module):
    """Causal self-attention; `qk_norm` normalizes each query and key (Henry et al. 2020)."""

    def __init__(self, width: int, heads: int, qk_norm: bool) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        size = width // heads
        self.query_norm, self.key_norm = (nn.LayerNorm(size) if qk_norm else nn.Identity() for _ in range(2))

    def forward(self, states: Tensor) -> Tensor:
        """Return what the heads write, (B, T, D)."""
        parts = self.project(states).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        context = F.scaled_dot_product_attention(self.query_norm(query), self.key_norm(key), value, is_causal=True)
        return self.output(context.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a feed-forward network, each after a layer norm, with residual connections."""

    def __init__(self, width: int, heads: int, qk_norm: bool) -> None:
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(width), Attention(width, heads, qk_norm)
        self.inner_norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, states: Tensor) -> Tensor:
        """Return the states (B, T, D) after the block."""
        states = states + self.attention(self.attention_norm(states))
        return states + self.inner(self.inner_norm(states))


class GPT(nn.Module):
    """A decoder-only language model."""

    def __init__(self, symbols: int, longest: int, *, width: int, layers: int, heads: int, qk_norm: bool) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(symbols, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads, qk_norm) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits (B, T, V) of the next token for tokens (B, T)."""
        states = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            states = block(states)
        logits: Tensor = self.head(self.norm(states))
        return logits


def main() -> None:
    """Train, and print the loss and the warnings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options: list[tuple[str, Any, str]] = [
        ("rate", 0.003, "largest learning rate of AdamW (default: 0.003)"),
        ("steps", 400, "number of training steps (default: 400)"),
        ("layers", 4, "number of layers (default: 4)"),
        ("width", 64, "width of the model, a multiple of 16 (default: 64)"),
        ("length", 64, "length of a sample in characters (default: 64)"),
        ("batch", 16, "samples in a batch (default: 16)"),
        ("seed", 0, "seed of the parameters and the batches (default: 0)"),
    ]
    for name, value, words in options:
        parser.add_argument(f"--{name}", type=type(value), default=value, help=words)
    parser.add_argument("--qk_norm", action="store_true", help="normalize queries and keys")
    parser.add_argument("--text", type=Path, help="text file (default: the help of Python's language)")
    parser.add_argument("--out", type=Path, default=Path("watch"), help="folder of the watch (default: watch)")
    flags = parser.parse_args()
    torch.manual_seed(flags.seed)
    text = "\n".join(map(str, topics.values())) if flags.text is None else flags.text.read_text(encoding="utf-8")
    alphabet = {letter: number for number, letter in enumerate(sorted(set(text)))}
    data = torch.tensor([alphabet[letter] for letter in text])
    model = GPT(
        len(alphabet),
        flags.length,
        width=flags.width,
        layers=flags.layers,
        heads=flags.width // 16,
        qk_norm=flags.qk_norm,
    )
    optimizer = torch.optim.AdamW(model.parameters(), flags.rate, betas=(0.9, 0.95), fused=True)
    losses = []
    with regard.watch(model, every=20, out=flags.out) as watch:
        for step in range(flags.steps):
            warmup, left = min(1.0, (step + 1) / 40), step / flags.steps
            for group in optimizer.param_groups:
                group["lr"] = flags.rate * warmup * (0.55 + 0.45 * math.cos(math.pi * left))
            begins = torch.randint(len(data) - flags.length, (flags.batch,))
            sample = torch.stack([data[begin : begin + flags.length + 1] for begin in begins])
            loss = F.cross_entropy(model(sample[:, :-1]).flatten(0, 1), sample[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            if step % 20 == 0:
                watch.note(loss=losses[-1])
            if step % 100 == 99:
                print(f"step {step + 1}: loss {sum(losses[-20:]) / 20:.3f}", flush=True)
    print(f"{len(watch.warnings)} warnings; regard show {flags.out} shows the heads")


if __name__ == "__main__":
    main()

"""Train small language models that fail for known reasons, and healthy ones, with `regard.watch`.

    python benchmarks/training_failures.py FOLDER [--steps 300] [--only NAME ...]

Writes one JSON file per training: its settings, the loss of each step and the rows of the watch. Existing files are
kept, so that an interrupted experiment continues. `benchmarks/training_warnings.py FOLDER` reads the files. The text
is the help of Python's language (`pydoc_data.topics`), read character by character.
"""

import argparse
import json
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard

LENGTH, BATCH = 64, 8
DEFAULTS: dict[str, Any] = {
    "rate": 1e-3,
    "warmup": 50,
    "beta2": 0.95,
    "clip": 1.0,
    "width": 64,
    "heads": 4,
    "layers": 2,
    "std": 0.02,
    "scale": 1.0,
    "norm": False,
    "softcap": None,
    "alibi": False,
    "sink": False,
    "half": False,
    "mask": "causal",
    "task": "text",
    "seed": 0,
}


FAILURES: dict[str, dict[str, Any]] = {
    "rate-0.03": {"rate": 0.03},
    "rate-copy": {"task": "copy", "rate": 0.05},
    "rate-ramp": {"rate": 0.2, "warmup": 600},
    "warmup": {"rate": 0.03, "warmup": 0, "beta2": 0.999},
    "init": {"std": 0.5},
    "half": {"half": True, "scale": 64.0, "rate": 0.01},
    "mask": {"mask": "all", "task": "copy", "rate": 3e-3},
}
HEALTHY: dict[str, dict[str, Any]] = {
    "text": {},
    "norm": {"norm": True, "rate": 4e-3},
    "alibi": {"alibi": True},
    "sink": {"sink": True},
    "copy": {"task": "copy", "rate": 3e-3},
    "copy-norm": {"task": "copy", "rate": 3e-3, "norm": True},
    "narrow": {"width": 32, "rate": 2e-3},
    "three-layers": {"layers": 3},
    "rate-0.0007": {"rate": 7e-4},
    "rate-0.002": {"rate": 2e-3},
}
REMEDIES: dict[str, dict[str, Any]] = {
    "lower-rate": {"rate": 3e-3},
    "norm": {"norm": True, "rate": 0.03},
    "softcap": {"softcap": 20.0, "rate": 0.03},
    "clip": {"clip": 0.1, "rate": 0.03},
}
"""Changes of `rate-0.03`."""
SEEDS = 8


def settings() -> dict[str, dict[str, Any]]:
    """Return the settings of each training by name."""
    groups = {"failing": (FAILURES, SEEDS), "healthy": (HEALTHY, SEEDS), "remedy": (REMEDIES, SEEDS)}
    return {
        f"{group}-{name}-{seed}": {**changed, "seed": seed}
        for group, (variants, seeds) in groups.items()
        for seed in range(seeds)
        for name, changed in variants.items()
    }


class Layer(nn.Module):
    """Causal attention and a feed-forward layer, pre-norm, as in GPT-2."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        width, self.heads = options["width"], options["heads"]
        self.options = options
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.packed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.sink = nn.Parameter(torch.zeros(self.heads)) if options["sink"] else None

    def forward(self, states: Tensor) -> Tensor:
        states = states + self.attend(self.attention_norm(states))
        return states + self.down(F.gelu(self.up(self.norm(states))))

    def attend(self, states: Tensor) -> Tensor:
        options, length = self.options, states.shape[1]
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.packed(states).chunk(3, dim=-1)
        )
        if options["norm"]:
            query, key = (F.normalize(part, dim=-1) * part.shape[-1] ** 0.5 for part in (query, key))
        steps = torch.arange(length)
        allowed = steps[:, None] >= steps if options["mask"] == "causal" else torch.zeros(length, length) > 0
        bias = torch.zeros(self.heads, length, length).masked_fill(~allowed, -torch.inf)
        if options["alibi"]:
            slopes = 2.0 ** -torch.arange(1, self.heads + 1)
            bias = bias - slopes[:, None, None] * (steps[:, None] - steps).abs()
        if self.sink is not None:  # one more key and value, both zero, with a learned score
            key, value = F.pad(key, (0, 0, 0, 1)), F.pad(value, (0, 0, 0, 1))
            bias = torch.cat([bias, self.sink[:, None, None].expand(-1, length, 1)], -1)
        scale = options["scale"] / query.shape[-1] ** 0.5
        if options["half"]:
            query, key, value, bias = query.half(), key.half(), value.half(), bias.clamp(min=-60000).half()
        if options["softcap"]:
            scores = options["softcap"] * torch.tanh(query @ key.mT * scale / options["softcap"])
            context = (scores + bias).softmax(-1) @ value
        else:
            context = F.scaled_dot_product_attention(query, key, value, bias, scale=scale)
        return self.out(context.float().transpose(1, 2).flatten(2))


class Model(nn.Module):
    """Embeddings of tokens and positions, layers, and scores of the next character."""

    def __init__(self, options: dict[str, Any], symbols: int) -> None:
        super().__init__()
        width = options["width"]
        self.tokens, self.places = nn.Embedding(symbols, width), nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList([Layer(options) for _ in range(options["layers"])])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=options["std"])

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            states = layer(states)
        return self.head(self.norm(states))


def draw(text: Tensor, task: str, generator: torch.Generator) -> Tensor:
    """Return a batch (B, T + 1) of text, or of eight random symbols that repeat."""
    if task == "copy":
        part = torch.randint(0, 16, (BATCH, 8), generator=generator)
        return part.repeat(1, LENGTH // 8 + 1)[:, : LENGTH + 1]
    starts = torch.randint(0, len(text) - LENGTH - 1, (BATCH,), generator=generator)
    return text[starts[:, None] + torch.arange(LENGTH + 1)]


def train(options: dict[str, Any], steps: int, every: int) -> dict[str, Any]:
    torch.manual_seed(options["seed"])
    whole = "\n".join(topics[name] for name in sorted(topics))
    alphabet = {letter: number for number, letter in enumerate(sorted(set(whole)))}
    text = torch.tensor([alphabet[letter] for letter in whole])
    model, generator = Model(options, len(alphabet)), torch.Generator().manual_seed(options["seed"])
    optimizer = torch.optim.AdamW(model.parameters(), options["rate"], betas=(0.9, options["beta2"]), fused=True)
    losses = []
    probe = draw(text, options["task"], torch.Generator().manual_seed(100))[:1, :-1]
    with regard.watch(model, every=every, probe=probe) as watch:
        for step in range(steps):
            warm = min(1.0, (step + 1) / options["warmup"]) if options["warmup"] else 1.0
            for group in optimizer.param_groups:
                group["lr"] = options["rate"] * warm
            batch = draw(text, options["task"], generator)
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            losses.append(loss.item())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), options["clip"])
            optimizer.step()
            optimizer.zero_grad()
    return {"options": options, "losses": losses, "rows": watch.rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=300, help="training steps of each model (300)")
    parser.add_argument("--every", type=int, default=20, help="steps between two measurements (20)")
    parser.add_argument("--only", nargs="*", default=[""], help="beginnings of the names of the trainings (all)")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), help="of N parts, train part I: I N (0 1)")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    flags.folder.mkdir(parents=True, exist_ok=True)
    for name, changed in list(settings().items())[flags.part[0] :: flags.part[1]]:
        path = flags.folder / f"{name}.json"
        if path.exists() or not name.startswith(tuple(flags.only)):
            continue
        began = time.perf_counter()
        result = train(DEFAULTS | changed, flags.steps, flags.every)
        path.write_text(json.dumps(result))
        print(
            f"{name}: last loss {sum(result['losses'][-50:]) / 50:.3f}, {time.perf_counter() - began:.0f} s", flush=True
        )


if __name__ == "__main__":
    main()

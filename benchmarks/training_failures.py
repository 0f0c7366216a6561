"""Train small language models that fail for known reasons, and healthy ones, with `regard.watch`.

    python benchmarks/training_failures.py FOLDER [--steps 800] [--only NAME]

Writes one JSON file per training: its settings, the loss of each step and the rows of the watch. Existing files are
kept, so that an interrupted experiment continues. `benchmarks/training_warnings.py FOLDER` reads the files. The text
is the help of Python's language (`pydoc_data.topics`), read character by character.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from pydoc_data.topics import topics
from torch import Tensor, nn

import regard

LENGTH, BATCH = 64, 8
DEFAULTS: dict[str, Any] = {
    **{"rate": 1e-3, "warmup": 50, "width": 64, "heads": 4, "layers": 2, "seed": 0, "std": 0.02, "scale": 1.0},
    **{"norm": False, "alibi": False, "sink": False, "half": False, "mask": "causal", "task": "text", "beta2": 0.95},
}


def settings() -> dict[str, dict[str, Any]]:
    """Return the settings of each training by name; names of failures begin with the cause."""
    runs: dict[str, dict[str, Any]] = {}
    for seed in range(4):
        for rate in (0.03, 0.1):
            runs[f"rate-{rate}-{seed}"] = {"rate": rate, "warmup": 50, "seed": seed}
        runs[f"warmup-{seed}"] = {"rate": 0.02, "warmup": 0, "seed": seed, "beta2": 0.999}
        for std in (0.3, 0.6):
            runs[f"init-{std}-{seed}"] = {"std": std, "seed": seed}
        runs[f"half-{seed}"] = {"half": True, "scale": 8.0, "rate": 0.01, "std": 0.3, "seed": seed}
        runs[f"mask-{seed}"] = {"mask": "all", "seed": seed}
        for variant in (
            {"norm": True},
            {"alibi": True},
            {"sink": True},
            {"task": "copy"},
            {"width": 32},
            {"layers": 2},
        ):
            name = "-".join(f"{key}={value}" for key, value in variant.items())
            runs[f"healthy-{name}-{seed}"] = {**variant, "seed": seed}
        for rate in (3e-4, 2e-3):
            runs[f"healthy-rate={rate}-{seed}"] = {"rate": rate, "seed": seed}
        runs[f"healthy-norm-rate-{seed}"] = {"norm": True, "rate": 4e-3, "seed": seed}
        runs[f"healthy-long-warmup-{seed}"] = {"rate": 2e-3, "warmup": 200, "seed": seed}
    return runs


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
        scale = options["scale"] / query.shape[-1] ** 0.5
        if options["half"]:
            scores = (query.half() @ key.half().mT * scale).float()
        else:
            scores = query @ key.mT * scale
        steps = torch.arange(length)
        if options["alibi"]:
            slopes = 2.0 ** -torch.arange(1, self.heads + 1)
            scores = scores - slopes[:, None, None] * (steps[:, None] - steps).abs()
        allowed = steps[:, None] >= steps if options["mask"] == "causal" else torch.zeros(length, length) > 0
        scores = scores.masked_fill(~allowed, -1e9)
        if self.sink is None:
            weights = scores.softmax(-1)
        else:
            column = self.sink[:, None, None].expand(*scores.shape[:3], 1)
            weights = torch.cat([scores, column], -1).softmax(-1)[..., :-1]
        return self.out((weights @ value).transpose(1, 2).flatten(2))


class Model(nn.Module):
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


def draw(text: Tensor, task: str, symbols: int, generator: torch.Generator) -> Tensor:
    """Return a batch (B, T + 1) of text, or of random symbols that repeat after half of the length."""
    if task == "copy":
        half = torch.randint(0, symbols, (BATCH, LENGTH // 2 + 1), generator=generator)
        return torch.cat([half, half], 1)[:, : LENGTH + 1]
    starts = torch.randint(0, len(text) - LENGTH - 1, (BATCH,), generator=generator)
    return torch.stack([text[start : start + LENGTH + 1] for start in starts])


def train(options: dict[str, Any], steps: int, every: int) -> dict[str, Any]:
    torch.manual_seed(options["seed"])
    whole = "\n".join(topics[name] for name in sorted(topics))
    alphabet = {letter: number for number, letter in enumerate(sorted(set(whole)))}
    text = torch.tensor([alphabet[letter] for letter in whole])
    model, generator = Model(options, len(alphabet)), torch.Generator().manual_seed(options["seed"])
    optimizer = torch.optim.AdamW(model.parameters(), options["rate"], betas=(0.9, options["beta2"]), fused=True)
    losses = []
    with regard.watch(model, every=every) as watch:
        for step in range(steps):
            warm = min(1.0, (step + 1) / options["warmup"]) if options["warmup"] else 1.0
            for group in optimizer.param_groups:
                group["lr"] = options["rate"] * warm
            batch = draw(text, options["task"], len(alphabet), generator)
            loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            losses.append(loss.item())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return {"options": options, "losses": losses, "rows": watch.rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=800, help="training steps of each model (800)")
    parser.add_argument("--every", type=int, default=20, help="steps between two measurements (20)")
    parser.add_argument("--only", default="", help="beginning of the names of the trainings (all)")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    flags.folder.mkdir(parents=True, exist_ok=True)
    for name, changed in settings().items():
        path = flags.folder / f"{name}.json"
        if path.exists() or not name.startswith(flags.only):
            continue
        began = time.perf_counter()
        result = train(DEFAULTS | changed, flags.steps, flags.every)
        path.write_text(json.dumps(result))
        print(
            f"{name}: last loss {sum(result['losses'][-50:]) / 50:.3f}, {time.perf_counter() - began:.0f} s", flush=True
        )


if __name__ == "__main__":
    main()

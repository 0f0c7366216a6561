"""Compute the steps of formation of `regard timeline` on runs of induction by another program, and compare them.

    python benchmarks/timeline_check.py seed*/induction

The other program shares no code with Regard. It reads the snapshots with safetensors, computes the attention of
the two layers in plain PyTorch, and draws other sequences. It finds the step at which the first
previous-token head and the first induction head form: their score, (weight - share) / (1 - share) for a share
of the visible keys, stays at 0.3 or above. The previous-token score counts the tokens before the repetition.
Exit status 1 if a step differs by more than one snapshot. The CPU time of both is printed too.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

import regard

THRESHOLD, SEQUENCES, EPSILON = 0.3, 200, 1e-5


def draw(length: int, repeated: int, symbols: int) -> Tensor:
    """Return sequences (B, T): different tokens, then `repeated` of them again, from a random position."""
    generator = torch.Generator().manual_seed(12345)
    rows = []
    for _ in range(SEQUENCES):
        first = torch.randperm(symbols, generator=generator)[: length - repeated]
        begin = int(torch.randint(length - 2 * repeated + 1, (1,), generator=generator))
        rows.append(torch.cat([first, first[begin : begin + repeated]]))
    return torch.stack(rows)


def attention(tensors: dict[str, Tensor], tokens: Tensor, layers: int, heads: int) -> list[Tensor]:
    """Return the weights (B, H, T, T) of each layer of an attention-only pre-norm model."""
    batch, time_steps = tokens.shape
    states = tensors["embedding.weight"][tokens] + tensors["positions.weight"][:time_steps]
    width = states.shape[2]
    future = torch.ones(time_steps, time_steps, dtype=torch.bool).triu(1)
    weights = []
    for layer in range(layers):
        name = f"decoder.layers.{layer}"
        inputs = F.layer_norm(states, (width,), tensors[f"{name}.attention_residual.norm.weight"], eps=EPSILON)
        query, key, value = (
            (inputs @ tensors[f"{name}.self_attention.{part}.weight"].T).view(batch, time_steps, heads, -1)
            for part in ("query", "key", "value")
        )
        scores = torch.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(width // heads)
        weights.append(scores.masked_fill(future, -math.inf).softmax(-1))
        context = torch.einsum("bhqk,bkhd->bqhd", weights[-1], value).reshape(batch, time_steps, width)
        states = states + context @ tensors[f"{name}.self_attention.output.weight"].T
    return weights


def scores_of(weights: Tensor, tokens: Tensor, repeated: int) -> dict[str, list[float]]:
    """Return both scores of each head of a layer, position by position."""
    time_steps = tokens.shape[1]
    previous = []
    for query in range(1, time_steps - repeated):
        share = 1 / (query + 1)
        if share < 1:
            previous.append((weights[:, :, query, query - 1].mean(0) - share) / (1 - share))
    induction = []
    for query in range(time_steps - repeated, time_steps):
        earlier = (tokens[:, :query] == tokens[:, query : query + 1]).long().argmax(1)
        rows = torch.arange(len(tokens))[earlier + 1 < query]
        share = 1 / (query + 1)
        induction.append((weights[rows, :, query, earlier[rows] + 1].mean(0) - share) / (1 - share))
    return {
        "previous-token": torch.stack(previous).mean(0).tolist(),
        "induction": torch.stack(induction).mean(0).tolist(),
    }


def formation(folder: Path) -> tuple[list[int], dict[str, int | None]]:
    """Return the steps of a run's snapshots, and by role the step from which a head keeps its score."""
    config = json.loads((folder / "config.json").read_text())
    task = model = config["options"]
    expected = {"feed_forward": False, "positions": "learned", "norm": "layer", "pre_norm": True, "bias": False}
    if config["on"] != "induction" or any(model[name] != value for name, value in expected.items()):
        raise SystemExit(f"{folder} is not a run of induction with attention only")
    tokens = draw(task["max_len"], task["repeated"], task["vocab_size"])
    files = sorted((folder / "snapshots").glob("*.safetensors"), key=lambda path: int(path.stem[5:]))
    steps, curves = [int(path.stem[5:]) for path in files], dict[str, list[list[float]]]()
    for path in files:
        tensors = {name: value.float() for name, value in load_file(path).items()}
        layers = attention(tensors, tokens, model["layers"], model["heads"])
        found = [scores_of(weights, tokens, task["repeated"]) for weights in layers]
        for role in found[0]:
            curves.setdefault(role, []).append([score for layer in found for score in layer[role]])
    result: dict[str, int | None] = {}
    for role, curve in curves.items():
        first = None
        for head in range(len(curve[0])):
            below = [index for index, scores in enumerate(curve) if scores[head] < THRESHOLD]
            begin = below[-1] + 1 if below else 0
            if begin < len(curve) and (first is None or begin < first):
                first = begin
        result[role] = None if first is None else steps[first]
    return steps, result


def main() -> None:
    """Compare both programs on some runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    folders = parser.parse_args().runs
    torch.set_num_threads(1)
    begin = time.process_time()
    timeline = regard.timeline(folders, threshold=THRESHOLD, progress=False)
    between = time.process_time()
    worst, compared = 0, 0
    print("run, role, step by Regard, step by the other program, difference in snapshots")
    regards = {role.role: role.steps for role in timeline.roles}
    for index, folder in enumerate(folders):
        steps, found = formation(folder)
        places: dict[int | None, int] = {None: len(steps), **{step: place for place, step in enumerate(steps)}}
        for role, step in found.items():
            difference = abs(places[step] - places[regards[role][index]])
            worst, compared = max(worst, difference), compared + 1
            print(f"{folder}, {role}, {regards[role][index]}, {step}, {difference}")
    print(f"largest difference of {compared}: {worst} snapshots")
    print(f"CPU seconds: Regard {between - begin:.1f}, the other program {time.process_time() - between:.1f}")
    if worst > 1:
        raise SystemExit(1)


if __name__ == "__main__":
    with torch.inference_mode():
        main()

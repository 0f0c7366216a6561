"""Train the models of docs/dev/results/attention.md over 10 seeds, and write its tables.

    python benchmarks/attention_results.py [scale] [positions] [heads] [--seeds 10]

The tables answer four questions. Why are scores divided by √D? Is it better to add positions or to append them?
Does performance depend on projections or on the number of heads? Which letters does a head attend to? Each
result is stored in docs/dev/results/attention-results.json immediately, so an interrupted program can be
continued.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from markdown_tables import RESULTS, markdown, spread, write_tables
from stored_measurements import Flags, Results, key_of, measure_missing

SMALL = {"model": "transformer", "enc_layers": 1, "dec_layers": 1, "max_len": 8, "steps": 600}
WIDTHS = (16, 64, 128)
SCALE = [
    {"task": "reverse", **SMALL, "hidden": width, "inner": 2 * width, "heads": 1, "score": score}
    for width in WIDTHS
    for score in ("dot", "scaled_dot")
]
"""One head with the full width, with and without division by √D."""
CONCATENATED = {"hidden": 64, "positions": "concatenated"}
POSITIONS = {
    "added, embeddings of 32, states of 32": {"hidden": 32, "positions": "sinusoidal"},
    "appended, embeddings of 32, states of 64": CONCATENATED,
    "added, embeddings of 64, states of 64": {"hidden": 64, "positions": "sinusoidal"},
}
HEADS: dict[str, Flags] = {
    "one head, no projections": {"multihead": False},
    "one head, with projections": {"multihead": True, "heads": 1},
    "four heads, no projections": {"model": "unprojected_heads:UnprojectedQueryModel", "multihead": True, "heads": 4},
    "four heads, with projections": {"multihead": True, "heads": 4},
}
FOUR = "four heads, with projections"


def position_flags(flags: Flags) -> Flags:
    """Return the flags of a training run for the comparison of positional encodings."""
    return {"task": "reverse", **SMALL, "heads": 4, "inner": 128, **flags}


def head_flags(flags: Flags) -> Flags:
    """Return the flags of a training run for the comparison of numbers of heads."""
    return {"task": "signal2", "steps": 1500, **flags}


def jobs_of(questions: list[str], seeds: range) -> list[Flags]:
    """Return the flags of all training runs of the tables."""
    trainings = {
        "scale": SCALE,
        "positions": [position_flags(flags) for flags in POSITIONS.values()],
        "heads": [head_flags(flags) for flags in HEADS.values()],
    }
    return [{**flags, "seed": seed} for name in questions for flags in trainings[name] for seed in seeds]


def measure(flags: Flags) -> dict[str, Any]:
    """Train a model, and measure its exact match and weights."""
    import regard

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run: Any = regard.train(**flags, savepath=folder, progress=False)
        figures = run.figures()
        results = {
            "exact_match": figures.exact_match,
            "parameters": sum(weight.numel() for weight in run.model.parameters() if weight.requires_grad),
        }
        if flags["task"] == "signal2":
            return {**results, "weighed": head_attention(run)}
        if flags not in [{**job, "seed": flags["seed"]} for job in SCALE]:
            return results
        untrained = {**flags, "steps": 1, "lr": 1e-9}
        first: Any = regard.train(**untrained, savepath=f"{folder}/first", progress=False)
        return {**results, "largest_at_first": largest(first)}


def largest(run: Any) -> float:
    """Return the mean of the largest weight of each row of the encoder, on eight inputs of full length."""
    import regard

    with regard.record(run.model, layers=["encoder.0.self_attention"]) as records:
        run.translate([run.draw(sample_len=8, seed=seed) for seed in range(8)])
    return statistics.mean(layer.weights.amax(-1).mean().item() for layer in records.values())


@torch.inference_mode()
def head_attention(run: Any) -> list[dict[str, float]]:
    """Return the mean weight of each head of the cross-attention, by group of attended positions.

    `own` is the signal of the output; `signals` are the two other signals; `same` are the letters that are
    counted; `rest` are other letters. `favoured` is the largest mean weight on a letter, divided by the
    fraction of this letter in the inputs.
    """
    import regard

    inputs = run.task.sample(2000, torch.Generator().manual_seed(0)).inputs
    with regard.record(run.model, layers=["cross"]) as records:
        run.model(inputs)
    weights = records["cross"].weights  # (B, H, 3, T)
    signals, letters = inputs[:, :3], inputs[:, 3:]
    at_signals, at_letters = weights[..., :3], weights[..., 3:]
    own = torch.diagonal(at_signals, dim1=2, dim2=3)  # (B, H, 3)
    same = (at_letters * (signals[:, :, None] == letters[:, None, :])[:, None]).sum(-1)
    shares = []
    for head in range(weights.shape[1]):
        mass = {
            "own": own[:, head].mean(),
            "signals": at_signals[:, head].sum(-1).mean() - own[:, head].mean(),
            "same": same[:, head].mean(),
            "rest": at_letters[:, head].sum(-1).mean() - same[:, head].mean(),
        }
        relative = []
        for letter in letters.unique():
            positions = letters == letter
            weight = (at_letters[:, head].mean(1) * positions).sum() / at_letters[:, head].mean(1).sum()
            relative.append((weight / positions.float().mean()).item())
        shares.append({name: round(value.item(), 4) for name, value in mass.items()})
        shares[-1]["favoured"] = round(max(relative), 3)
    return shares


def figures_of(results: Results, flags: Flags, seeds: range, name: str = "exact_match") -> list[Any]:
    """Return one figure of the training runs for all seeds."""
    return [results[key_of({**flags, "seed": seed})][name] for seed in seeds]


def exact(values: list[float]) -> str:
    """Format fractions as median, minimum and maximum."""
    return spread(values, lambda share: f"{share:.1%}" if share < 0.99 else f"{share:.2%}")


def scale(results: Results, seeds: range) -> str:
    """Table of dot and scaled dot scores by width: exact match, and the largest weights before training."""
    body = []
    for width in WIDTHS:
        line = [str(width)]
        for name, form in (("largest_at_first", lambda x: f"{x:.2f}"), ("exact_match", lambda x: f"{x:.1%}")):
            for score in ("dot", "scaled_dot"):
                (flags,) = (job for job in SCALE if job["hidden"] == width and job["score"] == score)
                line.append(spread(figures_of(results, flags, seeds, name), form))
        body.append(line)
    head = ["width", "largest weight before training: q · k", "q · k / √D", "exact match: q · k", "q · k / √D"]
    return markdown(head, body)


def joined(results: Results, seeds: range) -> str:
    """Table of added and concatenated positions."""
    body = [
        [
            name,
            f"{figures_of(results, position_flags(flags), seeds, 'parameters')[0]:,}",
            exact(figures_of(results, position_flags(flags), seeds)),
        ]
        for name, flags in POSITIONS.items()
    ]
    return markdown(["positions", "parameters", "exact match"], body)


def heads(results: Results, seeds: range) -> str:
    """Table of one and four heads, with and without projections."""
    body = []
    for name, flags in HEADS.items():
        shares = figures_of(results, head_flags(flags), seeds)
        learned = figures_of(results, head_flags(flags), seeds, "parameters")[0]
        body.append([name, f"{learned:,}", exact(shares), f"{sum(share >= 0.99 for share in shares)} of {len(shares)}"])
    return markdown(["", "learned parameters", "exact match", "seeds ≥ 99 %"], body)


def letters(results: Results, seeds: range) -> str:
    """Table of the attention of four projected heads; the heads of each seed are sorted by their weight on
    signals."""
    ranked = [
        sorted(seed_heads, key=lambda head: -(head["own"] + head["signals"]))
        for seed_heads in figures_of(results, head_flags(HEADS[FOUR]), seeds, "weighed")
    ]
    body = []
    for rank, name in enumerate(("first", "second", "third", "fourth")):
        of_seeds = [seed_heads[rank] for seed_heads in ranked]
        cells = [exact([head[part] for head in of_seeds]) for part in ("own", "signals", "same", "rest")]
        body.append([name, *cells, spread([head["favoured"] for head in of_seeds], lambda x: f"{x:.2f}")])
    head = ["head", "signal of the output", "other signals", "counted letters", "other letters", "preferred letter"]
    return markdown(head, body)


TABLES: dict[str, tuple[str, Callable[[Results, range], str]]] = {
    "scale": ("scale", scale),
    "joined positions": ("positions", joined),
    "heads and projections": ("heads", heads),
    "letters of heads": ("heads", letters),
}
"""Name and function of each table."""


def main() -> None:
    """Train the missing runs, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("questions", nargs="*", default=["scale", "positions", "heads"])
    parser.add_argument("--seeds", type=int, default=10, help="seeds of each variant (default: 10)")
    args = parser.parse_args()
    seeds = range(args.seeds)
    results = measure_missing(RESULTS / "attention-results.json", measure, jobs_of(args.questions, seeds))
    write_tables(
        {name: table(results, seeds) for name, (question, table) in TABLES.items() if question in args.questions}
    )


if __name__ == "__main__":
    main()

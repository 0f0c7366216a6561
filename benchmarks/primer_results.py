"""Train the models of docs/explanation/results.md and docs/dev/results/primer.md over 10 seeds; write the tables.

    python benchmarks/primer_results.py [--seeds 10] [--cache FILE]

The program starts one process with one thread for each core. Each result is stored in the cache (default:
docs/dev/results/results.json), so an interrupted program can be continued. Tables are written between the
markers `<!-- table: NAME -->` and `<!-- end -->` of these pages; the text around the markers does not change.
"""

import argparse
import dataclasses
import statistics
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from markdown_tables import RESULTS, markdown, spread, write_tables
from stored_measurements import Flags, Results, key_of, measure_missing

TASKS: dict[str, dict[str, Any]] = {
    "counting": {},
    "difference": {"self_att": True},
    "signal": {"pos_enc": True},
    "signal2": {},
}
"""Flags of each task in the primer."""
WITHOUT: dict[str, dict[str, Any]] = {
    "regard": {},
    "constant rate": {"warmup": None},
    "output layer at the common rate": {"output_lr": 1.0},
    "Adam's usual betas 0.9, 0.999": {"betas": (0.9, 0.999)},
}
"""The recipe regard and its ablations."""
LENGTHS = range(1, 11)


def job(task: str, seed: int, recipe: str = "regard", **flags: Any) -> Flags:
    """Return the flags of a training run."""
    return {"task": task, "seed": seed, "recipe": recipe, **flags}


def jobs_of(seeds: range) -> list[Flags]:
    """Return the flags of all training runs of the tables, starting with the fastest."""
    wanted = [
        *(job(task, seed, recipe, **flags) for recipe in WITHOUT for task, flags in TASKS.items() for seed in seeds),
        *(job(task, seed, vary_len=True, **flags) for task, flags in TASKS.items() for seed in seeds),
        *(job("signal", seed, r, pos_enc=pos) for r in ("seed", "regard") for pos in (True, False) for seed in seeds),
        *(
            job("signal2", seed, recipe, multihead=multihead, steps=4000)
            for recipe in ("seed", "regard")
            for multihead in (True, False)
            for seed in seeds
        ),
        *(job(task, seed, "seed", **flags) for task, flags in TASKS.items() for seed in seeds),
        *(job("difference", seed, recipe) for recipe in ("seed", "regard") for seed in seeds),
    ]
    return list({key_of(flags): flags for flags in wanted}.values())


def measure(flags: Flags) -> dict[str, Any]:
    """Train a model, and measure it on samples that are drawn with the seed of the model."""
    from regard.training.config import RECIPES

    whole = RECIPES["regard"]
    recipe = flags["recipe"]
    if recipe in WITHOUT:  # a process measures many trainings, which use different variants of the recipe
        RECIPES["regard"] = dataclasses.replace(whole, **WITHOUT[recipe])
        flags = {**flags, "recipe": "regard"}
    try:
        return figures_of(flags)
    finally:
        RECIPES["regard"] = whole


def figures_of(flags: Flags) -> dict[str, Any]:
    """Train a model with a recipe of the package, and return its figures."""
    import regard

    with tempfile.TemporaryDirectory() as folder:
        run = regard.train(**flags, savepath=folder, progress=False)
        assert isinstance(run, regard.AnswerRun)
        report = run.test(seed=flags["seed"])
        assert report.relevance is not None
        every = 500
        return {
            "exact_match": report.exact_match,
            "heads": report.relevance.heads,
            "uniform": report.relevance.uniform,
            # The mean loss of the hundred steps before each mark, because the loss of a single batch is noisy.
            "loss": {
                str(mark): statistics.mean(m["loss"] for m in run.metrics if mark - 100 < m["step"] <= mark)
                for mark in range(every, run.step + 1, every)
            },
            "by_length": {
                str(n): run.test(seed=flags["seed"], samples=2000, sample_len=n).exact_match for n in LENGTHS
            },
            "position_norms": run.attend().position_norms,
        }


def main() -> None:
    """Run and measure all training runs that are not yet in the cache, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="seeds of each variant (default: 10)")
    parser.add_argument("--cache", type=Path, default=RESULTS / "results.json", help="file of measurements")
    args = parser.parse_args()
    seeds = range(args.seeds)
    results = measure_missing(args.cache, measure, jobs_of(seeds))
    write_tables({name: table(results, seeds) for name, table in TABLES.items()})


def rows(
    results: Results, seeds: Iterable[int], task: str, recipe: str = "regard", **flags: Any
) -> list[dict[str, Any]]:
    """Return the measurements of a training run for all seeds."""
    return [results[key_of(job(task, seed, recipe, **flags))] for seed in seeds]


def percent(share: float) -> str:
    """Format a fraction as a percentage with two decimals."""
    return f"{share:.2%}"


def reliability(results: Results, seeds: range) -> str:
    """Table of the exact match for each task with its defaults and with both recipes."""
    body = []
    for task, flags in {**TASKS, "difference, alone": {}}.items():
        name = task.split(",")[0]
        line = [f"{task} {' '.join(f'`--{flag}`' for flag in flags)}".strip()]
        if task == "difference, alone":
            line = ["difference"]
        for recipe in ("regard", "seed"):
            shares = [row["exact_match"] for row in rows(results, seeds, name, recipe, **flags)]
            line += [percent(min(shares)), percent(statistics.median(shares)), f"{sum(s >= 0.99 for s in shares)}"]
        body.append(line)
    head = ["task", "regard: minimum", "median", "seeds ≥ 99 %", "seed: minimum", "median", "seeds ≥ 99 %"]
    return markdown(head, body)


def losses(
    results: Results, seeds: range, task: str, variants: list[tuple[str, dict[str, Any], list[str]]], marks: list[int]
) -> str:
    """Table of losses at some steps: published, and measured with both recipes."""
    body = []
    for name, flags, published in variants:
        body.append([f"{name}, published", *published])
        for recipe in ("seed", "regard"):
            runs = rows(results, seeds, task, recipe, **flags)
            cells = [spread([row["loss"][str(mark)] for row in runs], lambda x: f"{x:.2g}") for mark in marks]
            body.append([f"{name}, recipe {recipe}", *cells])
    return markdown(["", *[f"{mark} steps" for mark in marks]], body)


def signal2_losses(results: Results, seeds: range) -> str:
    """Table of losses of Signal 2 with and without heads."""
    variants = [
        ("with heads", {"multihead": True, "steps": 4000}, ["0.618", "0.046", "0.027", "0.0018"]),
        ("without", {"multihead": False, "steps": 4000}, ["1.43", "1.18", "1.08", "0.82"]),
    ]
    return losses(results, seeds, "signal2", variants, [1000, 2000, 3000, 4000])


def signal_losses(results: Results, seeds: range) -> str:
    """Table of losses of Signal with and without positions."""
    variants = [
        ("with positions", {"pos_enc": True}, ["1.30", "0.116", "0.051", "0.015"]),
        ("without", {"pos_enc": False}, ["1.33", "1.23", "1.01", "0.99"]),
    ]
    return losses(results, seeds, "signal", variants, [500, 1000, 1500, 2000])


def without(results: Results, seeds: range) -> str:
    """Table of ablations of the recipe regard: minimum and median of the exact match for each task."""
    body = []
    for recipe in WITHOUT:
        line = [recipe if recipe == "regard" else f"…: {recipe}"]
        for task, flags in TASKS.items():
            shares = [row["exact_match"] for row in rows(results, seeds, task, recipe, **flags)]
            line.append(f"{percent(min(shares))} / {percent(statistics.median(shares))}")
        body.append(line)
    return markdown(["recipe", *TASKS], body)


def by_length(results: Results, seeds: range) -> str:
    """Table of the minimum exact match at each length, after training on one length and on all lengths."""
    body = []
    for task, flags in TASKS.items():
        for name, all_flags in ((task, flags), (f"{task} `--vary_len`", {**flags, "vary_len": True})):
            runs = rows(results, seeds, task, **all_flags)
            cells = [f"{min(row['by_length'][str(n)] for row in runs):.1%}" for n in LENGTHS]
            body.append([name, *cells])
    return markdown(["letters", *map(str, LENGTHS)], body)


def relevance(results: Results, seeds: range) -> str:
    """Table of the fraction of attention on relevant inputs, for the best and the worst head of each seed."""
    body = []
    for task, flags in TASKS.items():
        runs = rows(results, seeds, task, **flags)
        best, worst = ([f(row["heads"]) for row in runs] for f in (max, min))
        form = "{:.0%}".format
        uniform = statistics.median(row["uniform"] for row in runs)
        body.append([task, f"{uniform:.0%}", spread(best, form), spread(worst, form)])
    return markdown(["task", "uniform attention", "best head", "worst head"], body)


def position_norms(results: Results, seeds: range) -> str:
    """Table of the L2 norms of learned positions: the smallest norm at a signal, and the largest norm at a
    letter."""
    body = []
    for task, flags, signals in (("signal", {"pos_enc": True}, 1), ("signal2", {}, 3)):
        for recipe in ("regard", "seed"):
            norms = [row["position_norms"] for row in rows(results, seeds, task, recipe, **flags)]
            ratio = [min(norm[:signals]) / max(norm[signals:]) for norm in norms]
            form = "{:.2f}".format
            body.append(
                [
                    f"{task}, recipe {recipe}",
                    spread([min(norm[:signals]) for norm in norms], form),
                    spread([max(norm[signals:]) for norm in norms], form),
                    f"{sum(r > 1 for r in ratio)} of {len(ratio)}",
                ]
            )
    return markdown(
        ["", "smallest norm at a signal", "largest norm at a letter", "seeds where every signal is larger"], body
    )


TABLES: dict[str, Callable[[Results, range], str]] = {
    "reliability": reliability,
    "without": without,
    "signal2": signal2_losses,
    "signal": signal_losses,
    "lengths": by_length,
    "relevance": relevance,
    "positions": position_norms,
}

if __name__ == "__main__":
    main()

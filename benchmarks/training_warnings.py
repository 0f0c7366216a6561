"""Set the thresholds of the warnings of `regard.watch`, and measure how often the warnings are right.

    python benchmarks/training_warnings.py FOLDER [--write]

FOLDER holds the trainings of `benchmarks/training_failures.py`, of which the first 300 steps count. The loss shows a
failure at the first step at which it is not finite, at which the mean loss of the last 20 steps is 0.5 nats above its
smallest value so far, or, from step 250 on, at which this mean is 0.2 nats above that of the trainings `healthy-text`
or `healthy-copy` at the same step. Trainings meant to fail that do not, and healthy ones that do, are left out and
named. Even seeds set the thresholds: each is beyond the most extreme value of their healthy trainings by a quarter, for
similarity half-way to 1. Odd seeds give the rates.
`--write` writes `training_warnings.json` to the package.
"""

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

from regard.interpret.training_warnings import KINDS, RATES, crosses, values

STEPS, MEAN, LATE, RISE, WORSE, LEAD = 300, 20, 250, 0.5, 0.2, 50

TRIED = {
    "failing-rate-0.03": "rate 0.03 alone",
    "remedy-lower-rate": "rate 0.003",
    "remedy-norm": "QK-norm",
    "remedy-softcap": "softcap 20",
    "remedy-clip": "gradients clipped at 0.1 instead of 1",
    "healthy-text": "healthy",
}
"""Trainings whose mean last loss, over the seeds, shows what helps."""


def smooth(losses: list[float]) -> list[float]:
    """Return the mean of the last losses before each step; the first losses have none and repeat the first mean."""
    means = [sum(losses[end - MEAN : end]) / MEAN for end in range(MEAN, len(losses) + 1)]
    return [means[0]] * (MEAN - 1) + means


def failure(losses: list[float], reference: list[float]) -> int | None:
    """Return the step at which the loss shows a failure."""
    smallest = math.inf
    for step, (loss, usual) in enumerate(zip(smooth(losses), reference, strict=True), 1):
        smallest = min(smallest, loss)
        if not math.isfinite(loss) or loss > smallest + RISE or (step >= LATE and loss > usual + WORSE):
            return step
    return None


def measurements(run: dict[str, Any]) -> list[tuple[int, str, float]]:
    """Return step, kind and value of each head at each measurement."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    for row in run["rows"]:
        by_step.setdefault(row["step"], []).append({"finite": True, **row})
    found, before = [], list[dict[str, Any]]()
    for step, rows in sorted(by_step.items()):
        found += [(step, kind, value) for _, kind, value in values(rows, before)]
        before = rows
    return found


def choose_threshold(kind: str, healthy: list[float]) -> float | None:
    """Return the threshold of a kind for the values of healthy trainings."""
    if kind == "not a number":
        return 0.0
    if not healthy:
        return None
    if kind == "copied heads":
        return (1 + max(healthy)) / 2
    return 0.8 * min(healthy) if KINDS[kind][1] == "below" else 1.25 * max(healthy)


def first_steps(found: list[tuple[int, str, float]], thresholds: dict[str, float | None]) -> dict[str, int]:
    """Return the step of the first warning of each kind."""
    steps: dict[str, int] = {}
    for step, kind, value in found:
        if crosses(kind, value, thresholds[kind]):
            steps.setdefault(kind, step)
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write the rates to the package")
    flags = parser.parse_args()
    runs = {path.stem: json.loads(path.read_text()) for path in sorted(flags.folder.glob("*.json"))}
    for run in runs.values():
        run["losses"] = run["losses"][:STEPS]
        run["rows"] = [row for row in run["rows"] if row["step"] <= STEPS]
    references = {}
    for task in ("text", "copy"):
        curves = [
            smooth(run["losses"])
            for name, run in runs.items()
            if name.startswith(f"healthy-{task}-") and name[-2:-1] == "-" and name.count("-") == 2
        ]
        references[task] = [statistics.fmean(step) for step in zip(*curves, strict=True)]
    shown: dict[str, Any] = {
        name: failure(run["losses"], references[run["options"]["task"]]) for name, run in runs.items()
    }
    left_out = [
        name
        for name, step in shown.items()
        if not name.startswith("remedy") and name.startswith("failing") != (step is not None)
    ]
    chosen = {
        name: measurements(run)
        for name, run in runs.items()
        if name not in left_out and name.split("-")[0] in ("failing", "healthy")
    }
    thresholds = {
        kind: choose_threshold(
            kind,
            [
                value
                for name, found in chosen.items()
                if name.startswith("healthy") and int(name[-1]) % 2 == 0
                for _, other, value in found
                if other == kind
            ],
        )
        for kind in KINDS
    }
    tested = {name: first_steps(found, thresholds) for name, found in chosen.items() if int(name[-1]) % 2}
    failing = {name: steps for name, steps in tested.items() if name.startswith("failing")}
    healthy = {name: steps for name, steps in tested.items() if name.startswith("healthy")}
    kinds = {}
    for kind in KINDS:
        leads = [
            shown[name] - steps[kind] for name, steps in failing.items() if kind in steps and steps[kind] <= shown[name]
        ]
        kinds[kind] = {
            "threshold": thresholds[kind],
            "healthy": [sum(kind in steps for steps in healthy.values()), len(healthy)],
            "failing": [len(leads), len(failing)],
            "lead": statistics.median(leads) if leads else None,
        }
        print(f"{kind}: {kinds[kind]}")
    early = [name for name, steps in failing.items() if steps and min(steps.values()) <= shown[name] - LEAD]
    false = [name for name, steps in healthy.items() if steps]
    for name, steps in tested.items():
        print(f"{name}: loss shows it at {shown[name]}, warnings {steps}")
    remedies = {
        name: [
            round(smooth(runs[name]["losses"])[-1], 3),
            shown[name],
            first_steps(measurements(runs[name]), thresholds),
        ]
        for name in runs
        if name.startswith("remedy")
    }
    effects = ", ".join(
        f"{title} {statistics.fmean(smooth(run['losses'])[-1] for name, run in runs.items() if name[:-2] == group):.2f}"
        for group, title in TRIED.items()
    )
    print(effects)
    print(f"remedies, last loss and failure: {remedies}; loss of the reference: {references['text'][-1]:.3f}")
    print(f"left out: {left_out}")
    print(f"announced {LEAD} steps before the loss: {len(early)} of {len(failing)}; false: {false} of {len(healthy)}")
    if flags.write:
        summary = {"early": [len(early), len(failing)], "false": [len(false), len(healthy)], "left out": left_out}
        path = Path(__file__).parents[1] / "src/regard/interpret" / RATES
        stored = {"experiment": summary, "remedies": effects, "kinds": kinds}
        path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

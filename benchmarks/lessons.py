"""Train every run of the course over ten seeds, and store what they came to: `python benchmarks/lessons.py`.

The figures are what a learner's own run is held against. They are kept in src/regard/course/lessons/ranges.json;
what stands there already is not measured again, so a second call goes on where the first one stopped. About 40
minutes of one core; with the name of a lesson, that one alone.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import regard
from regard.course.lessons import RUNS, LessonRun

SEEDS = 10
FILE = Path(__file__).parents[1] / "src" / "regard" / "course" / "lessons" / "ranges.json"


def measure(run: LessonRun) -> dict[str, Any]:
    """Return the figures of a run over all seeds, and the processor's seconds of each in the mean."""
    figures: dict[str, list[float]] = {}
    begin = time.process_time()
    for seed in range(SEEDS):
        with tempfile.TemporaryDirectory() as folder:
            trained: Any = regard.train(run.task, **run.flags, seed=seed, savepath=folder, progress=False)
            for name, value in vars(trained.figures()).items():
                if value is not None:
                    figures.setdefault(name, []).append(round(value, 4))
    return {
        "command": run.command,
        "seconds": round((time.process_time() - begin) / SEEDS, 1),
        "figures": figures,
    }


def main() -> None:
    """Measure what is not there yet."""
    torch.set_num_threads(1)
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for lesson in sys.argv[1:] or RUNS:
        for run in RUNS[lesson]:
            if known.get(lesson, {}).get(run.name, {}).get("command") == run.command:
                continue
            found = measure(run)
            known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
            known.setdefault(lesson, {})[run.name] = found
            FILE.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            sys.stdout.write(f"{lesson}, {run.name}: {found}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Measure every run of the course over ten seeds (language: three), and store the ranges of their figures.

    python benchmarks/lessons.py [LESSON]

The course compares a learner's run with these ranges, which are stored in src/regard_course/lessons/ranges.json.
Runs that are stored with all seeds are not measured again, so an interrupted program continues where it stopped.
All lessons take about 55 minutes on one core.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import regard
from regard_course.lesson_runs import measure, run_flags
from regard_course.lessons.lesson import RUNS, LessonRun

SEEDS = {"language": 3}
"""Number of seeds of a lesson that is not measured with ten."""
FILE = Path(__file__).parents[1] / "src" / "regard_course" / "lessons" / "ranges.json"


def measure_run(lesson: str, run: LessonRun) -> dict[str, Any]:
    """Return the figures of a run for all seeds, and its mean processor time in seconds."""
    figures: dict[str, list[float]] = {}
    begin = time.process_time()
    seeds = SEEDS.get(lesson, 10)
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            trained: Any = regard.train(
                run.task, **run_flags(run, Path(folder)), seed=seed, savepath=folder, progress=False
            )
            for name, value in measure(lesson, trained).items():
                if value is not None:
                    figures.setdefault(name, []).append(round(value, 4))
    return {"command": run.command, "seconds": round((time.process_time() - begin) / seeds, 1), "figures": figures}


def main() -> None:
    """Measure all runs that are not stored yet."""
    torch.set_num_threads(1)
    stored = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("lessons", nargs="*", choices=[[], *RUNS], metavar="LESSON", help="default: all lessons")
    for lesson in parser.parse_args().lessons or RUNS:
        for run in RUNS[lesson]:
            known = stored.get(lesson, {}).get(run.name, {"command": "", "figures": {"exact_match": []}})
            if known["command"] == run.command and len(known["figures"]["exact_match"]) == SEEDS.get(lesson, 10):
                continue
            measured = measure_run(lesson, run)
            stored = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
            stored.setdefault(lesson, {})[run.name] = measured
            FILE.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
            sys.stdout.write(f"{lesson}, {run.name}: {measured}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()

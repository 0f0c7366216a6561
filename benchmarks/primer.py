"""Compare the speed of the primer's tasks in Regard, in a plain eager loop, and in a loop compiled by JAX.

    python benchmarks/primer.py [--repeats 3] [--jax [FOLDER]] [--json FILE]
    python benchmarks/primer.py --profile TASK

For each task and repeat, Regard and the plain loop train alternately in separate processes. The program
measures wall-clock and processor time from the start of the process, including imports, until an exact match of
99 % on 2,000 new samples. The program also measures steps per second, without the first 50 steps. Both programs
evaluate the model every 50 steps, and the time of the evaluation is subtracted. Regard writes its run to disk
as `regard train` does. `--jax` adds the time of a step of `jax_loop.py` without compilation, and creates an
environment for JAX in .venv/jax or FOLDER. `--profile` prints the operations of a step of Regard instead, with
their shares of the time.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flags import count, new_file
from peers import HERE, jax_python

TASKS = {"counting": {}, "difference": {"self_att": True}, "signal": {"pos_enc": True}, "signal2": {}}
EVERY, SAMPLES, GOAL = 50, 2000, 0.99
PATIENCE = 20_000
"""Number of steps after which a program stops if it has not reached the goal."""


class Stopwatch:
    """Time since the start of the process, without the time of `evaluate`."""

    def __init__(self, imports: tuple[float, float]) -> None:
        self.wall, self.cpu = imports
        self.evaluating = [0.0, 0.0]
        self.steps = 0
        self.loop_began = time.perf_counter()
        self.warm = (0.0, 0.0)
        """Wall-clock and processor time after the first steps, which are a warm-up."""

    def evaluate(self, model: Any, inputs: Any, targets: Any) -> dict[str, Any] | None:
        """Evaluate every 50 steps; return the measurements at the goal or at the maximum number of steps."""
        import torch

        began = time.perf_counter(), time.process_time()
        self.steps += EVERY
        with torch.inference_mode():
            share = (model(inputs).argmax(-1) == targets).all(-1).float().mean().item()
        self.evaluating[0] += time.perf_counter() - began[0]
        self.evaluating[1] += time.process_time() - began[1]
        loop = time.perf_counter() - self.loop_began - self.evaluating[0]
        spent = time.process_time() - self.evaluating[1]
        if self.steps == EVERY:
            self.warm = (loop, spent)
        if self.steps < 2 * EVERY or (share < GOAL and self.steps < PATIENCE):
            return None
        return {
            "cpu_per_step": (spent - self.warm[1]) / (self.steps - EVERY),
            "reached": share >= GOAL,
            "steps": self.steps,
            "steps_per_second": (self.steps - EVERY) / (loop - self.warm[0]),
            "wall": self.wall + loop,
            "cpu": spent,
        }


def train_regard(task: str, seed: int, began: float) -> dict[str, Any]:
    """Train with Regard's defaults."""
    from regard.fast.memory import keep_memory
    from regard.fast.threads import limit_threads
    from regard.streams import make_generator
    from regard.tasks.base import Task
    from regard.tasks.batch import BatchContext
    from regard.training.building import start
    from regard.training.config import make_config
    from regard.training.run_folder import create_run
    from regard.training.trainer import Learner

    class DoneError(Exception):
        """Passes the measurements out of the training loop."""

    watch = Stopwatch((time.perf_counter() - began, time.process_time()))
    config = make_config(task, {**TASKS[task], "seed": seed}).resolved()
    built = config.task_class.restore(config.task, {})
    assert isinstance(built, Task)
    inputs, targets, _ = built.sample(SAMPLES, make_generator(seed, "test"))
    keep_memory()
    state = start(config, built)

    def report(metrics: dict[str, float]) -> None:
        if metrics["step"] % EVERY == 0:
            results = watch.evaluate(state.model, inputs, targets)
            if results is not None or metrics["step"] == config.training.steps:
                raise DoneError(results)

    with tempfile.TemporaryDirectory() as folder:
        with create_run(Path(folder) / task, config, overwrite=False) as building:
            state.save(building)
        try:
            batches = built.batches(config.training, BatchContext(generator=state.generator))
            learner = Learner(state, config.training, batches, type(building)(Path(folder) / task))
            with limit_threads(state.model):
                learner.train(report)
        except DoneError as done:
            if done.args[0] is not None:
                return done.args[0]
    return {"reached": False, "steps": watch.steps}


def train_plain(task: str, seed: int, began: float) -> dict[str, Any]:
    """Train with the plain loop."""
    import numpy as np
    from plain_loop import next_batch, train

    watch = Stopwatch((time.perf_counter() - began, time.process_time()))
    inputs, targets = next_batch(task, SAMPLES, np.random.default_rng(10_000 + seed))
    for step, model in enumerate(train(task, seed), start=1):
        if step % EVERY == 0:
            results = watch.evaluate(model, inputs, targets)
            if results is not None:
                return results
    raise AssertionError("the loop does not end")


def measure(program: str, task: str, seed: int, jax: Path | None) -> dict[str, Any]:
    """Run a program in a separate process."""
    command = [sys.executable, __file__, "--child", program, task, str(seed)]
    if program == "jax":
        command = [str(jax), str(HERE / "jax_loop.py"), task, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    results: dict[str, Any] = json.loads(done.stdout)
    return results


def row(task: str, runs_by_program: dict[str, list[dict[str, Any]]]) -> str:
    """Return a row of the table."""
    cells = [task]
    for key, form, peers in COLUMNS:
        middle = {name: statistics.median(run.get(key, NAN) for run in runs) for name, runs in runs_by_program.items()}
        factor = 1000 if key == "cpu_per_step" else 1
        cells += [f"{middle[name] * factor:{form}}" for name in peers if name in runs_by_program]
        if key in ("wall", "cpu", "cpu_per_step"):
            cells.append(f"{middle['regard'] / middle['plain']:.2f}")
    late = sum(not run["reached"] for runs in runs_by_program.values() for run in runs)
    return f"| {' | '.join(cells)} |" + (f"   ({late} did not reach 99 %)" if late else "")


NAN = float("nan")
ALL, OURS = ("plain", "jax", "regard"), ("plain", "regard")
COLUMNS = [
    ("steps_per_second", ".0f", ALL),
    ("cpu_per_step", ".2f", ALL),
    ("steps", ".0f", ALL),
    ("wall", ".1f", OURS),
    ("cpu", ".1f", OURS),
]
"""Key of a measurement, its format, and the programs that report this measurement."""


def head(jax: bool) -> str:
    """Return the header of the table."""
    names = "plain | JAX | ours" if jax else "plain | ours"
    head = f"| task | steps/s: {names} | CPU ms per step: {names} | ratio | steps to 99 %: {names} "
    head += "| wall s to 99 %: plain | ours | ratio | CPU s to 99 %: plain | ours | ratio |"
    return head + "\n| --- |" + " ---: |" * (head.count("|") - 2)


def print_profile(task: str) -> None:
    """Print the operations of a training step in one thread: their number, and their shares of the time."""
    import torch
    from learner import with_learner

    def work(learner: Any, settings: Any) -> None:
        step = lambda: learner.learn(settings.schedule_at(learner.step))  # noqa: E731
        for _ in range(EVERY):
            step()
        begin = time.process_time()
        for _ in range(EVERY):
            step()
        used = time.process_time() - begin
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for _ in range(EVERY):
                step()
        calls: dict[str, list[float]] = {}
        for event in profiler.events():
            calls.setdefault(event.name, []).append(event.self_cpu_time_total)
        # Times of the profiler include interruptions by other programs, so a median represents the calls.
        times = {name: len(durations) * statistics.median(durations) for name, durations in calls.items()}
        total, count = sum(times.values()), sum(map(len, calls.values()))
        print(f"{task}: {1e3 * used / EVERY:.2f} ms and {count / EVERY:.0f} calls per step, ", end="")
        print(f"{total / EVERY / 1e3:.2f} ms in calls\n")
        print("| operation | calls per step | share of the time |\n| --- | ---: | ---: |")
        for name in sorted(times, key=lambda name: -times[name])[:12]:
            print(f"| {name} | {len(calls[name]) / EVERY:.1f} | {times[name] / total:.0%} |")

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        with_learner(work, task, folder, TASKS[task])


def main() -> None:
    """Run all measurements, and print the table."""
    began = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=count, default=3, help="processes per task and program (default: 3)")
    parser.add_argument(
        "--jax",
        type=Path,
        nargs="?",
        const=HERE.parent / ".venv" / "jax",
        help="also run JAX, installed in this folder (default: .venv/jax)",
    )
    parser.add_argument("--json", type=new_file, help="also write the measurements to this file")
    parser.add_argument("--profile", choices=TASKS, help="profile a step of Regard instead")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.profile:
        print_profile(args.profile)
        return
    if args.child:
        program, task, seed = args.child
        trained = (train_regard if program == "regard" else train_plain)(task, int(seed), began)
        print(json.dumps(trained))
        return
    import torch

    jax = None if args.jax is None else jax_python(args.jax)
    print(f"{platform.machine()}, {torch.get_num_threads()} threads, Python {platform.python_version()}, ", end="")
    print(f"torch {torch.__version__}, medians of {args.repeats} processes each\n")
    print(head(jax is not None))
    results: dict[str, Any] = {}
    for task in TASKS:
        runs_by_program: dict[str, list[dict[str, Any]]] = {name: [] for name in ALL if jax or name != "jax"}
        for repeat in range(args.repeats):
            for program, runs in runs_by_program.items():
                runs.append(measure(program, task, repeat, jax))
        results[task] = runs_by_program
        print(row(task, runs_by_program), flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

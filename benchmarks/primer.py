"""Speed on the primer's tasks: Regard beside a plain eager loop, in one run.

    python benchmarks/primer.py [--repeats 3] [--json FILE]

For each task and repeat, each contestant trains in a process of its own, turn by turn: how long from the
start of the process (imports included) until 99 % of 2000 fresh samples are exactly right, in wall and
processor time, and how many steps a second. Both are evaluated every 50 steps; the evaluation's own time is
left out of both. Ours writes its run to disk as `regard train` does.
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

TASKS = {
    "counting": {},
    "difference": {"self_att": True},
    "signal": {"pos_enc": True},
    "signal2": {},
}
EVERY, SAMPLES, GOAL = 50, 2000, 0.99
PATIENCE = 20_000
"""Steps after which a contestant that has not reached the goal is given up."""


class Stopwatch:
    """Time since the process began, without what is spent in `evaluate`."""

    def __init__(self, imports: tuple[float, float]) -> None:
        self.wall, self.cpu = imports
        self.evaluating = [0.0, 0.0]
        self.steps = 0
        self.loop_began = time.perf_counter()

    def evaluate(self, model: Any, inputs: Any, targets: Any) -> dict[str, Any] | None:
        """Count 50 steps; return the measurements once the goal is reached or hopeless."""
        import torch

        began = time.perf_counter(), time.process_time()
        self.steps += EVERY
        with torch.inference_mode():
            share = (model(inputs).argmax(-1) == targets).all(-1).float().mean().item()
        self.evaluating[0] += time.perf_counter() - began[0]
        self.evaluating[1] += time.process_time() - began[1]
        if share < GOAL and self.steps < PATIENCE:
            return None
        loop = time.perf_counter() - self.loop_began - self.evaluating[0]
        return {
            "reached": share >= GOAL,
            "steps": self.steps,
            "steps_per_second": self.steps / loop,
            "wall": self.wall + loop,
            "cpu": time.process_time() - self.evaluating[1],
        }


def train_regard(task: str, seed: int, began: float) -> dict[str, Any]:
    """Train with Regard's defaults."""
    from regard.streams import generator_of
    from regard.tasks import Beginning, Task
    from regard.training import OneLearner, make_config, new_run, start, train_steps

    class DoneError(Exception):
        """Carries the measurements out of the training."""

    watch = Stopwatch((time.perf_counter() - began, time.process_time()))
    config = make_config(task, {**TASKS[task], "seed": seed}).resolved()
    built = config.task_class.restore(config.task, {})
    assert isinstance(built, Task)
    inputs, targets, _ = built.sample(SAMPLES, generator_of(seed, "test"))
    state = start(config, built)

    def look(metrics: dict[str, float]) -> None:
        if metrics["step"] % EVERY == 0:
            found = watch.evaluate(state.model, inputs, targets)
            if found is not None or metrics["step"] == config.training.steps:
                raise DoneError(found)

    with tempfile.TemporaryDirectory() as folder:
        with new_run(Path(folder) / task, config, overwrite=False) as building:
            state.save(building)
        try:
            batches = built.batches(config.training, Beginning(generator=state.generator))
            learner = OneLearner(state, config.training, batches, type(building)(Path(folder) / task))
            train_steps(learner, config.training, look)
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
            found = watch.evaluate(model, inputs, targets)
            if found is not None:
                return found
    raise AssertionError("the loop has no end of its own")


def measure(contestant: str, task: str, seed: int) -> dict[str, Any]:
    """Run one contestant in a process of its own."""
    command = [sys.executable, __file__, "--child", contestant, task, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    """Measure all and print the table."""
    began = time.perf_counter()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3, help="processes per task and contestant (default: 3)")
    parser.add_argument("--json", type=Path, help="also write the measurements here")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        contestant, task, seed = args.child
        trained = (train_regard if contestant == "regard" else train_plain)(task, int(seed), began)
        print(json.dumps(trained))
        return
    import torch

    print(
        f"{platform.machine()}, {torch.get_num_threads()} threads, Python {platform.python_version()}, ",
        end="",
    )
    print(f"torch {torch.__version__}, medians of {args.repeats} processes each")
    print(f"{'':12}{'steps/s':>20}{'steps to 99 %':>18}{'wall s to 99 %':>22}{'cpu s to 99 %':>22}")
    print(
        f"{'':12}"
        + f"{'plain':>7}{'ours':>7}{'ratio':>6}"
        + f"{'plain':>9}{'ours':>9}"
        + 2 * f"{'plain':>8}{'ours':>8}{'ratio':>6}"
    )
    results: dict[str, Any] = {}
    for task in TASKS:
        found: dict[str, list[dict[str, Any]]] = {"plain": [], "regard": []}
        for repeat in range(args.repeats):
            for contestant, runs in found.items():
                runs.append(measure(contestant, task, repeat))
        results[task] = found
        line = f"{task:12}"
        for key, width in (("steps_per_second", 7), ("steps", 9), ("wall", 8), ("cpu", 8)):
            plain, ours = (statistics.median(run.get(key, float("nan")) for run in found[name]) for name in found)
            digits = 1 if key in ("wall", "cpu") else 0
            line += f"{plain:{width}.{digits}f}{ours:{width}.{digits}f}"
            if key != "steps":
                line += f"{ours / plain:6.2f}"
        late = sum(not run["reached"] for run in found["plain"] + found["regard"])
        print(line + (f"   ({late} did not reach 99 %)" if late else ""), flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

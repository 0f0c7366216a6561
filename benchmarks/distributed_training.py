"""Measure training on several processes: steps, memory and checkpoints.

    python benchmarks/distributed_training.py DATA [--rounds 3] [--steps 30] [--only steps|sharded]

`DATA` is the folder of Multi30k's files. The first part times a step of the tiny Transformer, alternately on
two processes with one thread and on one process with two threads. The second part trains a base Transformer
(width 512, 6 + 6 layers) for a few steps, replicated and `--sharded`. The program prints the peak memory of
each process, the bytes of its parameters, moments and average, and the time to write and read checkpoints. All
processes run on this machine.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from markdown_tables import markdown
from multi30k import files

LEFT_OUT = 5
"""First steps, which are not timed."""
TINY: dict[str, Any] = {"tokens": 4096, "batchsize": 0}
BASE: dict[str, Any] = {"preset": "base", "vocab_size": 37_000, "tokens": 512, "steps": 3, "precision": "float32"}
CASES = [(1, False), (2, False), (2, True), (4, True)]
"""Number of processes, and whether the model is sharded."""
MB = 1 << 20


def work(out: Path, flags: dict[str, Any], checkpoints: bool) -> None:
    """Train, and write the measurements of one process; runs in a separate process or under torchrun."""
    import torch

    import regard
    from regard.training.trainer import Learner

    learn, times, measurements = Learner.learn, list[float](), dict[str, Any]()

    def timed(self: Learner, lr: float) -> Any:
        begin = time.perf_counter()
        loss = learn(self, lr)
        times.append(time.perf_counter() - begin)
        if checkpoints and self.step == self.settings.steps:
            measurements["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            measurements["held"] = state_bytes(self.state) / MB
            measurements["parameters"] = sum(weight.numel() for weight in self.state.model.parameters())
            for name, use in (("save", False), ("with model", True)):
                begin = time.perf_counter()
                self.state.save(self.folder, self.context, use=use)
                self.context.wait()
                measurements[name] = time.perf_counter() - begin
            begin = time.perf_counter()
            self.state.restore(self.folder)
            self.context.wait()
            measurements["load"] = time.perf_counter() - begin
        return loss

    Learner.learn = timed  # type: ignore[method-assign]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    regard.train("translation", savepath=out, progress=False, overwrite=True, **flags)
    measurements["step"] = statistics.median(times[LEFT_OUT:] or times)
    measurements["end"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (out / f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps(measurements))


def state_bytes(state: Any) -> int:
    """Return the bytes of parameters, moments and average in this process."""
    moments = [moment for moments in state.optimizer.moments.values() for moment in moments.values()]
    tensors = [*state.model.parameters(), *moments, *state.average.values()]
    return sum(local.numel() * local.element_size() for local in map(_local, tensors))


def _local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def measure(
    folder: Path, processes: int, threads: int, flags: dict[str, Any], *, checkpoints: bool = False
) -> list[dict[str, Any]]:
    """Train on several processes, and return the measurements of each process."""
    python = [sys.executable]
    if processes > 1:
        python += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    words = [__file__, "--worker", json.dumps([str(folder), flags, checkpoints])]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    subprocess.run([*python, *words], check=True, capture_output=True, env=environment)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]


def steps(folder: Path, text: dict[str, Any], rounds: int, count: int) -> str:
    """Return a table of the step time of the tiny Transformer."""
    step_times: dict[tuple[int, int], list[float]] = {(1, 2): [], (2, 1): [], (1, 1): []}
    for _ in range(rounds):
        for (processes, threads), times in step_times.items():
            flags = {**text, **TINY, "steps": count}
            times.append(measure(folder, processes, threads, flags)[0]["step"])
    first = statistics.median(step_times[1, 2])
    rows = []
    for (processes, threads), times in step_times.items():
        median = statistics.median(times)
        spread = f"{1000 * min(times):.0f} to {1000 * max(times):.0f}"
        rows.append([f"{processes}, {threads}", f"{1000 * median:.0f}", spread, f"{first / median:.2f}"])
    return markdown(["processes, threads per process", "ms per step", "range", "speed ratio"], rows)


def sharded(folder: Path, text: dict[str, Any]) -> str:
    """Return a table of memory and checkpoints of the base Transformer."""
    rows, parameters = [], 0
    for processes, split in CASES:
        flags = {**text, **BASE, "sharded": split}
        ranks = measure(folder, processes, 1, flags, checkpoints=True)
        parameters = max(parameters, ranks[0]["parameters"])
        largest = {name: max(rank[name] for rank in ranks) for name in ranks[0]}
        rows.append(
            [
                f"{processes}{', `--sharded`' if split else ''}",
                f"{largest['held']:.0f}",
                " ".join(f"{rank['peak']:.0f}" for rank in ranks),
                " ".join(f"{rank['end']:.0f}" for rank in ranks),
                f"{largest['step']:.1f}",
                f"{largest['save']:.1f}",
                f"{largest['with model']:.1f}",
                f"{largest['load']:.1f}",
            ]
        )
    head = ["processes", "state, MB", "peak memory of each process, MB", "with checkpoints", "step, s"]
    head += ["saving, s", "saving with the model, s", "loading, s"]
    return f"{parameters:,} parameters\n\n{markdown(head, rows)}"


def main() -> None:
    """Run all measurements, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?", help="folder of Multi30k's files")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of measurement (default: 3)")
    parser.add_argument("--steps", type=int, default=30, help="steps per round (default: 30)")
    parser.add_argument("--only", choices=["steps", "sharded"], help="measure only one of the two tables")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        out, flags, checkpoints = json.loads(args.worker)
        work(Path(out), flags, checkpoints)
        return
    text = {"train": files(args.data)["train"]}
    with tempfile.TemporaryDirectory() as name:
        if args.only != "sharded":
            print(steps(Path(name), text, args.rounds, args.steps), flush=True)
        if args.only != "steps":
            print(sharded(Path(name), text))


if __name__ == "__main__":
    main()

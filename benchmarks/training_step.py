"""Measure a training step on a CPU: Regard beside the plain loops of strong_loop.py.

    python benchmarks/training_step.py [--rounds 3] [--steps 6] [--models tiny decoder-only]
        [--precisions float32 bfloat16] [--compile]

Each program runs in a process of its own with one thread and the same settings of the allocator. The processes
run in turn. The table shows the processor time of a step (user time, the median of all steps of all rounds, and
the minimum), target tokens per second of processor time, and the number of PyTorch operations of a step.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from flags import count
from gpu_training import Workload, plain_model, workloads, write_text
from learner import with_learner
from markdown_tables import markdown
from strong_loop import Sizes, StrongTraining
from torch.utils._python_dispatch import TorchDispatchMode

WARM_UP = 12
PROGRAMS = ("Regard", "plain loop")
PRECISIONS = ("float32", "bfloat16")
DECODER = Sizes(symbols=8000, width=256, heads=4, inner=1024, layers=4, longest=128)


class CountOperations(TorchDispatchMode):
    """Counts the operations that reach PyTorch's kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count and call a function."""
        self.count += 1
        return function(*args, **(kwargs or {}))


def models() -> dict[str, Workload]:
    """Return the models by name, at sizes for a CPU."""
    tiny, _, decoder = workloads(small=False)
    flags = {"hidden": DECODER.width, "heads": DECODER.heads, "inner": DECODER.inner, "layers": DECODER.layers}
    flags |= {"max_len": DECODER.longest, "batchsize": 16}
    return {"tiny": tiny, "decoder-only": replace(decoder, sizes=DECODER, flags={**decoder.flags, **flags})}


def measure(step: Callable[[], Any], drawn: list[Any], steps: int, *, compiled: bool) -> dict[str, Any]:
    """Return the processor milliseconds and the target tokens of each step, and the operations of one step."""
    for _ in range(WARM_UP):
        step()
    milliseconds, tokens = [], []
    for _ in range(steps):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
        step()
        milliseconds.append(1e3 * (resource.getrusage(resource.RUSAGE_SELF).ru_utime - before))
        tokens.append(drawn[-1].tokens)
    operations = 0
    if not compiled:
        with CountOperations() as counter:
            step()
        operations = counter.count
    return {"ms": milliseconds, "tokens": tokens, "operations": operations}


def run_program(name: str, program: str, precision: str, steps: int, compiled: bool) -> dict[str, Any]:
    """Train a model with one program in this process."""
    torch.set_num_threads(1)
    workload = models()[name]
    results: list[dict[str, Any]] = []

    def work(learner: Any, settings: Any) -> None:
        drawn: list[Any] = []
        draw = learner.batches.draw

        def draw_and_note(step: int = 0) -> Any:
            drawn.append(draw(step))
            return drawn[-1]

        learner.batches.draw = draw_and_note
        if program == "Regard":
            step = lambda: learner.learn(settings.schedule_at(learner.step))  # noqa: E731
        else:
            dtype = getattr(torch, precision)
            device = torch.device("cpu")
            step = StrongTraining(plain_model(workload), draw_and_note, device, dtype, compiled=compiled).step
        results.append(measure(step, drawn, steps, compiled=compiled))

    with tempfile.TemporaryDirectory() as folder:
        text = write_text(Path(folder), pairs=3000)[workload.task]
        flags = {**text, **workload.flags, "precision": precision, "compile": compiled}
        with_learner(work, workload.task, folder, flags)
    return results[0]


def table(results: dict[tuple[str, str, str], list[dict[str, Any]]]) -> str:
    """Return the measurements of all rounds as a Markdown table."""
    head = ["model", "program", "precision", "ms per step", "fastest step", "target tokens per s", "operations"]
    body = []
    for (name, program, precision), rounds in results.items():
        times = [value for figures in rounds for value in figures["ms"]]
        tokens = sum(value for figures in rounds for value in figures["tokens"])
        cells = [f"{statistics.median(times):,.0f}", f"{min(times):,.0f}", f"{1e3 * tokens / sum(times):,.0f}"]
        operations = rounds[0]["operations"]
        body.append([name, program, precision, *cells, f"{operations:,}" if operations else ""])
    return markdown(head, body)


def main() -> None:
    """Measure all programs in turn, each in its own process, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=count, default=3, help="processes for each program (default: 3)")
    parser.add_argument("--steps", type=count, default=6, help="measured steps in each process (default: 6)")
    parser.add_argument("--models", nargs="+", choices=models(), default=list(models()), help="default: both")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="default: both")
    parser.add_argument("--compile", action="store_true", help="with torch.compile, which takes minutes")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.one:
        name, program, precision = flags.one
        print(json.dumps(run_program(name, program, precision, flags.steps, flags.compile)))
        return
    results: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for number in range(flags.rounds):
        for name in flags.models:
            for precision in flags.precisions:
                for program in PROGRAMS:
                    command = [sys.executable, __file__, "--steps", str(flags.steps), "--one", name, program, precision]
                    command += ["--compile"] if flags.compile else []
                    process = subprocess.run(command, check=False, capture_output=True, text=True)
                    if process.returncode:
                        sys.exit(f"{' '.join(command)} failed:\n{process.stderr}")
                    figures = json.loads(process.stdout.splitlines()[-1])
                    results.setdefault((name, program, precision), []).append(figures)
                    median = statistics.median(figures["ms"])
                    print(f"round {number + 1}: {name} {program} {precision} {median:.0f} ms", flush=True)
    print(table(results))


if __name__ == "__main__":
    main()

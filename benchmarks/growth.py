"""Measure how costs grow with sizes, fit the growth, and compare it with the growth of the arithmetic.

    python benchmarks/growth.py [--groups attention models] [--small] [--json FILE] [--pictures FOLDER]

Each curve measures a cost (processor seconds, memory or bytes) at sizes over two decades. The slope is that of a
least-squares line through the logarithms of sizes and costs: 1 for a cost proportional to the size, 2 for its
square. The demanded slope is that of the operations or bytes that the task needs at the same sizes. Both slopes
are also fitted to the upper decade alone, where constant costs matter less. A curve grows too fast if its
slope in the upper decade exceeds the demanded slope by more than 0.2.

The program uses one core, and takes about 5 minutes. Costs are medians of several repeats. `--small` measures
two small sizes of each curve, to test the program. `--pictures` writes the curves as SVG, for light and dark
pages.
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flags import existing, new_file
from markdown_tables import markdown

TOLERANCE = 0.2
"""Accepted difference between the slopes of a curve and of its arithmetic: caches and kernels depend on sizes."""
REPEATS = 5
SHORTEST, LONGEST = 0.02, 1.0
"""Processor seconds of one repeat, at least, and of all repeats of one size, at most. A longer call is measured
once."""
RESOLUTION = 1.0
"""Smallest peak of memory in MiB that is fitted: the process already has some of the memory of smaller ones."""
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_ARENA_MAX": "1"}
"""Settings with which glibc returns freed memory at once, so that peaks of memory are those of one pass."""
Work = Callable[[], Any]


@dataclass(frozen=True, kw_only=True)
class Growth:
    """A cost whose growth is measured."""

    group: str
    panel: str
    """Title of the panel that shows the curve."""
    name: str
    size: str
    """What the size counts."""
    sizes: tuple[int, ...]
    prepare: Callable[[int, Path], Work]
    """Returns the function to measure, for a size and an empty folder. The function returns the cost if `unit` is
    KB."""
    demanded: Callable[[int], float]
    """Operations or bytes that the task needs at a size, up to a constant factor."""
    unit: str = "s"
    """s: processor seconds. MiB: peak memory of a call. KB: a number that the function returns."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The measured costs of a `Growth`, with fitted slopes."""

    group: str
    panel: str
    name: str
    size: str
    unit: str
    sizes: list[int]
    costs: list[float]
    demanded: list[float]
    slope: float
    demanded_slope: float
    upper_slope: float
    """Slope in the upper decade."""
    upper_demanded_slope: float

    @property
    def is_too_fast(self) -> bool:
        """Whether the cost grows faster than the arithmetic."""
        return self.upper_slope > self.upper_demanded_slope + TOLERANCE


def spread_sizes(first: int, last: int, count: int = 6) -> tuple[int, ...]:
    """Return sizes at equal ratios.

    >>> spread_sizes(10, 1000, 3)
    (10, 100, 1000)
    """
    return tuple(round(first * (last / first) ** (index / (count - 1))) for index in range(count))


def fit_slope(sizes: list[int], costs: list[float]) -> float:
    """Return the slope of the least-squares line through the logarithms.

    >>> round(fit_slope([1, 10, 100], [3.0, 300.0, 30000.0]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(costs, 1e-9)), 1)[0])


def processor_seconds() -> float:
    """Return the processor seconds of this process and of its ended children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def time_work(work: Work, repeats: int) -> float:
    """Return the median processor seconds of a call, without the first call if it is short."""
    begin = processor_seconds()
    work()
    if (first := processor_seconds() - begin) > LONGEST:
        return first
    calls = 1 if repeats == 1 else max(1, math.ceil(SHORTEST / max(first, 1e-6)))
    times: list[float] = []
    while len(times) < repeats and (not times or sum(times) * calls < LONGEST):
        begin = processor_seconds()
        for _ in range(calls):
            work()
        times.append((processor_seconds() - begin) / calls)
    return statistics.median(times)


def peak_memory(work: Work) -> float:
    """Return the MiB by which a call raises the memory of this process (Linux)."""
    work()
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak to the present memory
    before = _status("VmRSS")
    work()
    return max(_status("VmHWM") - before, 4) / 1024


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def measure(growth: Growth, repeats: int) -> Curve:
    """Measure a cost at all sizes."""
    costs = []
    for size in growth.sizes:
        with tempfile.TemporaryDirectory() as folder:
            work = growth.prepare(size, Path(folder))
            if growth.unit == "KB":
                costs.append(float(work()))
            else:
                costs.append(peak_memory(work) if growth.unit == "MiB" else time_work(work, repeats))
    return fit(growth, costs)


def fit(growth: Growth, costs: list[float]) -> Curve:
    """Fit the slopes of measured costs."""
    sizes, demanded = list(growth.sizes), [growth.demanded(size) for size in growth.sizes]
    exact = [index for index, cost in enumerate(costs) if growth.unit != "MiB" or cost >= RESOLUTION]
    exact = exact if len(exact) > 1 else list(range(len(costs)))
    upper = [index for index in exact if sizes[index] >= sizes[-1] / 12]  # a decade, with rounded ends
    slope, demanded_slope, upper_slope, upper_demanded_slope = (
        fit_slope([sizes[index] for index in points], [values[index] for index in points])
        for points in (exact, upper)
        for values in (costs, demanded)
    )
    return Curve(
        group=growth.group,
        panel=growth.panel,
        name=growth.name,
        size=growth.size,
        unit=growth.unit,
        sizes=sizes,
        costs=costs,
        demanded=demanded,
        slope=slope,
        demanded_slope=demanded_slope,
        upper_slope=upper_slope,
        upper_demanded_slope=upper_demanded_slope,
    )


def table(curves: list[Curve]) -> str:
    """Return the curves as a Markdown table."""
    head = ["cost", "size", "from", "to", "cost at the smallest", "at the largest"]
    head += ["slope", "demanded", "upper decade", "demanded"]
    body = []
    for curve in curves:
        costs = [format_cost(cost, curve.unit) for cost in (curve.costs[0], curve.costs[-1])]
        slopes = [curve.slope, curve.demanded_slope, curve.upper_slope, curve.upper_demanded_slope]
        cells = [f"{slope:.2f}".replace("-0.00", "0.00") for slope in slopes]
        cells[2] = f"**{cells[2]}**" if curve.is_too_fast else cells[2]
        ends = [f"{curve.sizes[0]:,}", f"{curve.sizes[-1]:,}"]
        body.append([f"{curve.panel}: {curve.name}", curve.size, *ends, *costs, *cells])
    return markdown(head, body)


def format_cost(cost: float, unit: str) -> str:
    """Return a cost with its unit.

    >>> format_cost(0.0123, "s"), format_cost(0.000034, "s"), format_cost(1234, "KB")
    ('12.3 ms', '34 µs', '1,234 KB')
    """
    if unit == "s" and cost < 1:
        return f"{1e3 * cost:.3g} ms" if cost >= 1e-3 else f"{1e6 * cost:.3g} µs"
    return f"{cost:,.0f} {unit}" if cost >= 100 else f"{cost:.3g} {unit}"


def all_growths(groups: list[str], *, small: bool) -> list[Growth]:
    """Return the costs to measure; with `small`, each at two small sizes."""
    from growth_models import attention_growths, model_growths
    from growth_runs import page_growths, run_growths
    from growth_text import text_growths

    growths = [*attention_growths(), *model_growths(), *text_growths(), *run_growths(), *page_growths()]
    chosen = [growth for growth in growths if growth.group in groups]
    return [Growth(**{**vars(growth), "sizes": growth.sizes[:2]}) for growth in chosen] if small else chosen


def measure_all(flags: argparse.Namespace, unit: str | None) -> list[Curve]:
    """Measure the memory (unit MiB) or all other costs in this process."""
    curves, repeats = [], 1 if flags.small else REPEATS
    for growth in all_growths(flags.groups, small=flags.small):
        if (growth.unit == "MiB") == (unit == "MiB"):
            begin = time.perf_counter()
            curves.append(measure(growth, repeats))
            line = f"{growth.panel}: {growth.name}: {curves[-1].upper_slope:.2f} of "
            line += f"{curves[-1].upper_demanded_slope:.2f}, {time.perf_counter() - begin:.0f} s"
            print(line, file=sys.stderr, flush=True)
    return curves


def memory_curves(flags: argparse.Namespace) -> list[Curve]:
    """Measure memory in a process whose allocator returns freed memory at once."""
    command = [sys.executable, __file__, "--memory", "--groups", *flags.groups]
    command += ["--small"] if flags.small else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **MALLOC})
    return [Curve(**values) for values in json.loads(done.stdout.splitlines()[-1])]


GROUPS = ("attention", "models", "text", "runs", "pages")


def main() -> None:
    """Measure all curves, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS), help="default: all")
    parser.add_argument("--small", action="store_true", help="two small sizes of each curve")
    parser.add_argument("--json", type=new_file, help="write the measurements to this file")
    parser.add_argument("--pictures", type=Path, help="write the pictures to this folder")
    parser.add_argument("--from-json", type=existing, nargs="+", help="draw earlier measurements instead of measuring")
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.from_json:
        curves = [Curve(**values) for path in flags.from_json for values in json.loads(path.read_text())]
    else:
        import torch

        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
        torch.set_num_threads(1)
        curves = measure_all(flags, "MiB" if flags.memory else None)
        if flags.memory:
            print(json.dumps([asdict(curve) for curve in curves]))
            return
        curves += memory_curves(flags)
        curves.sort(key=lambda curve: GROUPS.index(curve.group))
    if flags.json:
        flags.json.write_text(json.dumps([asdict(curve) for curve in curves], indent=1) + "\n")
    if flags.pictures:
        from growth_pictures import draw

        draw(curves, flags.pictures)
    print(table(curves))
    if too_fast := [f"{curve.panel}: {curve.name}" for curve in curves if curve.is_too_fast]:
        print(f"\nFaster than the arithmetic: {', '.join(too_fast)}")


if __name__ == "__main__":
    main()

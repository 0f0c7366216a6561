"""Simulate how often intervals over seeds contain what they are about, for seeds that are not normal.

    python benchmarks/interval_coverage.py    prints the table of docs/dev/claims.md (40 seconds)

Differences of one seed are drawn from four distributions. `median_interval` is about their median, Student's and the
sign-flip interval about their mean, `shift_interval` about the shift between two groups of the same distribution. The
levels are those of one test, of the 13 tests of a card, and of all 25 claims.
"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from scipy import stats

from regard.statistics import LEVEL, Interval, mean_interval, median_interval, shift_interval

DRAWS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float, float]] = {
    "normal": (lambda random, n: random.normal(1, 1, n), 1.0, 1.0),
    "lognormal": (lambda random, n: random.lognormal(0, 1, n), 1.0, float(np.exp(0.5))),
    "bounded": (lambda random, n: random.beta(20, 0.2, n), float(stats.beta(20, 0.2).median()), 20 / 20.2),
    "one in ten fails": (
        lambda random, n: random.normal(0.1, 0.01, n) - 0.5 * (random.random(n) < 0.1),
        float(stats.norm(0.1, 0.01).ppf(4 / 9)),  # failed seeds are below all others
        0.05,
    ),
}
"""For each distribution: how it is drawn, its median and its mean."""
TESTS = (1, 13, 25)


def sign_flip_covers(values: np.ndarray, center: float, level: float) -> bool | None:
    """Whether the sign-flip test (Fisher 1935, section 21) does not reject `center`; None if it can reject nothing."""
    if 2.0 ** (1 - len(values)) > 1 - level + 1e-12:
        return None
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=len(values))))
    sums = np.abs(signs @ (values - center))
    return bool((sums >= sums[0] - 1e-12).mean() > 1 - level)


def _held(interval: Interval, center: float) -> bool | None:
    return None if interval.low is None or interval.high is None else interval.low <= center <= interval.high


def rows(repetitions: int) -> Iterator[tuple[str, int, int, list[float | None]]]:
    """Yield a distribution, the number of seeds and of tests, and the coverage (0 to 1) of `median_interval`,
    `shift_interval`, the sign-flip interval and Student's; None if there is no interval."""
    for (name, (draw, median, mean)), seeds, tests in itertools.product(DRAWS.items(), (3, 5, 10), TESTS):
        random, level = np.random.default_rng(0), 1 - (1 - LEVEL) / tests
        held: list[list[bool | None]] = [[], [], [], []]
        for _ in range(repetitions):
            values, other = draw(random, seeds), draw(random, seeds)
            held[0].append(_held(median_interval(values.tolist(), level), median))
            held[1].append(_held(shift_interval((values + 1).tolist(), other.tolist(), level), 1.0))
            held[2].append(sign_flip_covers(values, mean, level))
            held[3].append(_held(mean_interval(values.tolist(), level=level), mean))
        yield name, seeds, tests, [None if None in outcome else outcome.count(True) / len(outcome) for outcome in held]


def table(repetitions: int = 400) -> list[list[str]]:
    lines = []
    for name, seeds, tests, shares in rows(repetitions):
        said = f"{100 * (1 - (1 - LEVEL) / tests):.1f}"
        lines.append([name, str(seeds), said, *("none" if x is None else f"{100 * x:.1f}" for x in shares)])
    return lines


if __name__ == "__main__":
    from markdown_tables import markdown_table

    columns = [
        "differences",
        "seeds",
        "said, %",
        "median, sign test",
        "shift, ranks",
        "mean, sign flip",
        "mean, Student",
    ]
    print(markdown_table(columns, table()))

"""Search for a small setting in which softmax attention has a sink: a head puts much weight on the first token.

    python benchmarks/sink_search.py [SETTING ...]

Prints one line per setting and seed: the share of weight on the first token, divided by the share of uniform
attention (mean over heads, and the largest head), in the second half of the sequence. Table in docs/dev/claims.md.
"""

import dataclasses
import sys
import time
from unittest import mock

from regard.training.config import Recipe
from regard_lab.cards import cells
from regard_lab.cards.cells import BASELINE, average_heads, train_probe, uniform_first
from regard_lab.cards.probes import Backcopy, BackcopyConfig, CardProbe, HelpText, HelpTextConfig

PAPER = {"betas": (0.9, 0.95), "weight_decay": 0.1}
"""Settings of AdamW of Gu et al. 2025, section 3. Probes have beta2 0.98 and no decay."""
TEXT, LONG = HelpTextConfig(), HelpTextConfig(max_len=64)
WALK, SHORT = BackcopyConfig(max_len=64), BackcopyConfig()
SETTINGS: dict[str, tuple[CardProbe, dict[str, object]]] = {
    "text, 500 steps": (CardProbe("text", "", HelpText, TEXT, 500), {}),
    "text, 3000 steps": (CardProbe("text", "", HelpText, TEXT, 3000), {}),
    "text, 3000 steps, AdamW as Gu et al.": (CardProbe("text", "", HelpText, TEXT, 3000), PAPER),
    "text, width 96, 3 layers, 64 characters, 1500 steps, AdamW as Gu et al.": (
        CardProbe("text", "", HelpText, LONG, 1500, hidden=96, inner=192, lr=0.002, layers=3),
        PAPER,
    ),
    "backcopy, 500 steps": (CardProbe("backcopy", "", Backcopy, WALK, 500), {}),
    "backcopy, 1000 steps": (CardProbe("backcopy", "", Backcopy, WALK, 1000), {}),
    "backcopy, one layer, one head, 1000 steps": (
        CardProbe("backcopy", "", Backcopy, WALK, 1000, layers=1, heads=1),
        {},
    ),
    "backcopy, one layer, 1000 steps": (CardProbe("backcopy", "", Backcopy, WALK, 1000, layers=1), {}),
    "backcopy, one layer, 32 tokens, 700 steps": (CardProbe("backcopy", "", Backcopy, SHORT, 700, layers=1), {}),
}


def main(names: list[str], seeds: int = 2) -> None:
    for name in names or SETTINGS:
        probe, changes = SETTINGS[name]

        def recipe(changes: dict[str, object] = changes, **options: object) -> Recipe:
            return Recipe(**(options | changes))  # type: ignore[arg-type]

        for seed in range(seeds):
            began = time.process_time()
            with mock.patch.object(cells, "Recipe", recipe):
                test = train_probe(BASELINE, dataclasses.replace(probe), seed).tests[""]
            uniform = uniform_first(probe.build_task().lengths[-1])
            mean, largest = average_heads(test.shares.first), max(map(max, test.shares.first))
            print(
                f"| {name} | {seed} | {100 * test.score:.1f} % | {mean / uniform:.2f} | {largest / uniform:.2f} "
                f"| {time.process_time() - began:.0f} s |",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])

"""A campaign of two simultaneous commands in one folder: each waits or is refused, and results never mix.

    python -m tests.faults together --count 100
    python -m tests.faults together --only 12      repeat one trial

Each command ends with status 0, or with status 2 and one line that names the process and machine of the other
command. The files equal, bit for bit, the files after running the commands one after the other, in either
order. No lock and no temporary file remains.
"""

import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.faults.children import Ended, begin, finish
from tests.faults.report import Report, Trial, campaign
from tests.faults.scenes import Scene, Stage, call, contents, doing, fresh, home_folder, set_up, training

USUAL_COUNT = 100
Contents = dict[str, bytes]


@dataclass(frozen=True)
class Couple:
    """Two commands that use the same folder, and their results when run one after the other."""

    stage: Stage
    other: tuple[str, ...]
    loose: str | None = None
    """Run whose content depends on the time at which the other run was read."""
    outcomes: tuple[Contents, ...] = ()


def couples(root: Path) -> list[Couple]:
    """Return all pairs, prepared below `root`."""
    counting, signal2 = training("counting"), training("signal2")
    again = training("counting", "--hidden", "4", "--overwrite")
    resume = ("train", "counting", "--resume")
    prune = ("prune", "signal2", "--heads", "1")
    to_file = ("test", "signal2", "--samples", "4", "--json", "a.json")
    pruned, anew = "models/signal2-pruned", training("signal2", "--overwrite")
    translation = training("translation")
    export = ("export", "translation", "--output", "exported")
    scenes = [
        (Scene("the same training twice", (), counting), counting),
        (Scene("two trainings of the same text", (), translation), translation),
        (Scene("two trainings into one place", (counting,), again), again),
        (Scene("a training goes on twice", (counting,), resume, half=True), resume),
        (Scene("a training is replaced while it goes on", (counting,), resume, half=True), again),
        (Scene("two prunings", (signal2,), prune), prune),
        (Scene("a pruning of what is trained anew", (signal2,), prune, run=pruned), anew),
        (Scene("two exports", (translation,), export), export),
        (Scene("two tests write one file", (signal2,), to_file), to_file),
    ]
    found = []
    for scene, other in scenes:
        loose = scene.run if other[:2] == ("train", "signal2") else None
        couple = Couple(set_up(scene, root / scene.name), other, loose)
        both, outcomes = (scene.argv, other), []
        for order in (both, both[::-1], both[:1], both[1:]):  # both orders, and each command alone
            site = fresh(couple.stage)
            for argv in order:
                call(argv, site)
            outcomes.append(contents(site))
        found.append(replace(couple, outcomes=tuple(outcomes)))
    return found


def judge(couple: Couple, site: Path, ended: list[Ended]) -> Iterator[str]:
    """Yield the faults in the outcomes of two commands."""
    refused = re.compile(
        rf"^regard: '.*' is being written by process \d+ on {re.escape(socket.gethostname())} since .*: wait"
    )
    there = re.compile(r"already|exists|has ended")
    for each in ended:
        own = [line for line in each.err.splitlines() if line.startswith("regard: ")]
        if "Traceback" in each.err:
            yield f"traceback: {each.err.strip().splitlines()[-1][:160]}"
        elif each.status == 2 and not (len(own) == 1 and (refused.match(own[0]) or there.search(own[0]))):
            yield f"is refused in other words: {own[-1:]}"
        elif each.status not in (0, 2) or each.hung or each.stopped:
            yield f"status {each.status}: {own[-1:]}"
    if all(each.status for each in ended):
        yield "both are refused"
    found, outcomes = contents(site), list(couple.outcomes)
    if couple.loose is not None:
        # The content belongs to a complete checkpoint without later steps.
        ended_well = call(["test", couple.loose, "--samples", "2"], site)
        if (site / couple.loose).exists() and ended_well.status:
            yield f"the run that is there is of no use: {ended_well.err.strip().splitlines()[-1][:200]}"
        found, *outcomes = (
            {name: content for name, content in each.items() if not name.startswith(f"{couple.loose}/")}
            for each in (found, *outcomes)
        )
    if found not in outcomes:
        nearest = min(outcomes, key=lambda whole: len(_differing(found, whole)))
        yield f"comes to what neither order comes to: {_differing(found, nearest)[:3]}"


def _differing(found: Contents, whole: Contents) -> list[str]:
    return sorted(name for name in found.keys() | whole.keys() if found.get(name) != whole.get(name))


def main(count: int | None, seed: int, only: int | None = None) -> Report:
    """Run `count` pairs; the second command starts at a random time that depends on the seed."""
    with home_folder() as root:
        every = couples(root)

        def attempt(index: int) -> tuple[Trial, str]:
            random = Random(f"{seed}/{index}")
            couple = random.choice(every)
            # Half of the commands start immediately, because the start is the most critical moment.
            seconds = 0.0 if random.random() < 0.5 else random.uniform(0, couple.stage.seconds)
            site = fresh(couple.stage)
            first = begin(doing(couple.stage.scene.argv), site)
            time.sleep(seconds)
            second = begin(doing(couple.other), site)
            ended = [finish(child, patience=120) for child in (first, second)]
            faults = tuple(judge(couple, site, ended))
            outcome = "one is refused" if any(each.status for each in ended) else "one after the other"
            what = (couple.stage.scene.name, f"{seconds:.3f} s apart")
            trial = Trial(index, couple.stage.scene.name, outcome, faults, what)
            return trial, "\n".join(each.err for each in ended)

        return campaign("two commands at once", "together", seed, count or USUAL_COUNT, only, attempt)

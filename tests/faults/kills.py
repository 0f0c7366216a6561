"""A campaign of kills, full disks and signals: no data is lost at any time.

    python -m tests.faults kills                   500 of all file operations of every scene, by the seed
    python -m tests.faults kills --count 5000      all of them, with each fault
    python -m tests.faults signals --count 300     signals and SIGKILL at random moments
    python -m tests.faults kills --only 123        repeat one trial

After each fault, the run in the folder works, and the next command continues. Finally, all files equal the
files of undisturbed training bit for bit: losses are equal, no older file is used, and no temporary file
remains.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.faults.children import Ended, begin, finish
from tests.faults.ground import at_home, warm_up
from tests.faults.operations import WAYS, Operations
from tests.faults.report import Report, Trial, counted
from tests.faults.scenes import Call, Stage, call, contents, doing, fresh, scenes, set_up

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
USUAL_COUNT = 500


def operations_of(stage: Stage) -> list[str]:
    """Return the file operations of a scene in order."""
    site = fresh(stage)

    def count(told: int) -> None:
        operations = Operations(site, "none", 0)
        operations.watch()
        logs.append(operations)

    logs: list[Operations] = []
    work = doing(stage.scene.argv, count)

    def tell(told: int) -> int:
        try:
            return work(told)
        finally:
            os.pwrite(told, "\n".join(logs[0].log).encode(), 0)

    ended = finish(begin(tell, site), patience=120)
    assert ended.status == 0, ended
    return list(ended.told)


def struck(stage: Stage, way: str, at: int) -> tuple[Path, Ended]:
    """Fail the operation `at` of a scene."""
    site = fresh(stage)
    return site, call(stage.scene.argv, site, lambda told: Operations(site, way, at).watch())


def signalled(stage: Stage, number: int, seconds: float) -> tuple[Path, Ended]:
    """Send a signal to a scene after some time."""
    site = fresh(stage)
    child = begin(doing(stage.scene.argv), site)
    time.sleep(seconds)
    os.kill(child.pid, number)
    return site, finish(child, patience=60)


def judge(stage: Stage, site: Path, ended: Ended, allowed: set[int]) -> Iterator[str]:
    """Yield the faults after a failure: in the messages, in the folder, and when continuing."""
    scene = stage.scene
    own = [line for line in ended.err.splitlines() if line.startswith("regard: ")]
    if "Traceback" in ended.err or "Exception ignored" in ended.err:
        yield f"traceback: {ended.err.strip().splitlines()[-1][:160]}"
    elif len(own) > 1 or (ended.status == 1 and not own):
        yield f"{len(own)} lines of words"
    if ended.status not in allowed or ended.hung or ended.stopped:
        yield f"status {ended.status}"
    now = contents(site)
    for name in ("a.json", "a.svg"):
        if name in stage.old and now.get(name) not in (stage.old[name], stage.whole[name]):
            yield f"{name} is neither the old one nor the new one"
    kept = {name: old for name, old in stage.old.items() if scene.kept and name.startswith(scene.kept)}
    if lost := [name for name, old in kept.items() if now.get(name) != old]:
        yield f"lost or changed: {lost[0]}"
    if (
        scene.run is not None
        and f"{scene.run}/config.json" in stage.old
        and f"{scene.run}/config.json" not in now
    ):
        # The next command that uses the folder restores renamed files.
        call(["test", scene.run, "--samples", "2"], site)
        if not (site / scene.run / "config.json").is_file():
            yield "neither the old run nor the new one is there"
    if scene.run is not None and (site / scene.run / "config.json").is_file():
        yield from _used(scene.run, site)
    yield from _gone_on(stage, site)


def _used(run: str, site: Path) -> Iterator[str]:
    samples: Call = [] if run.endswith("translation") else ["--samples", "2"]
    if run.endswith("translation"):
        samples = ["--data", "text/test.de", "text/test.en"]
    ended = call(["test", run, *samples], site)
    if ended.status:
        yield f"the run that is there is of no use: {ended.err.strip().splitlines()[-1][:200]}"


def _gone_on(stage: Stage, site: Path) -> Iterator[str]:
    """Run the remaining commands, and compare the files with the expected result."""
    again = stage.scene.again(site)
    if again is not None:
        ended = call(again, site)
        if ended.status:
            yield f"the next command fails: {(ended.err.strip().splitlines() or ['without a word'])[-1][:200]}"
            return
    found = contents(site)
    if missing := sorted(stage.whole.keys() - found.keys()):
        yield f"is missing in the end: {missing[0]}"
    # The lock of a dead process is free: the next writer acquires and removes the lock.
    held = {name for name in found if again is None and name.endswith(".lock")}
    if more := sorted(found.keys() - stage.whole.keys() - held):
        yield f"is left over in the end: {more[0]}"
    if other := [name for name in stage.whole if name in found and found[name] != stage.whole[name]]:
        yield f"differs in the end: {other[0]}"


def main(count: int | None, seed: int, only: int | None = None) -> Report:
    """Interrupt every scene at each of its operations with each fault; `count`: size of a random sample."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        stages = _stages(root)
        cases = [
            (stage, way, at, operation)
            for stage in stages
            for at, operation in enumerate(operations_of(stage), start=1)
            for way in WAYS
            if way != "half" or operation.startswith("write")
        ]
        indices = list(range(len(cases)))
        if count is not None and count < len(cases):
            indices = sorted(Random(seed).sample(indices, count))
        trials = []
        indices = indices if only is None else [only]
        for index in counted("kills", len(indices), indices):
            stage, way, at, operation = cases[index]
            site, ended = struck(stage, way, at)
            dies = way in ("die", "half")
            faults = tuple(judge(stage, site, ended, {137} if dies else {0, 1}))
            outcome = (
                "killed, and gone on" if dies else f"refused by the disk (status {ended.status}), and gone on"
            )
            trials.append(Trial(index, way, outcome, faults, (stage.scene.name, way, operation)))
            if only is not None:
                sys.stderr.write(f"{trials[-1]}\n{ended.err}")
    return Report("kills and full disks", seed, trials, "python -m tests.faults kills --only {index}")


def main_signals(count: int | None, seed: int, only: int | None = None) -> Report:
    """Send `count` signals at random moments that depend on the seed."""
    trials = []
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        stages = _stages(root)
        indices = list(range(count or 300)) if only is None else [only]
        for index in counted("signals", len(indices), indices):
            random = Random(f"{seed}/{index}")
            stage, number = random.choice(stages), random.choice(SIGNALS)
            seconds = random.uniform(0, stage.seconds)
            site, ended = signalled(stage, number, seconds)
            faults = tuple(judge(stage, site, ended, {0, 128 + number}))
            outcome = "had ended before" if ended.status == 0 else f"ended by {number.name}, and gone on"
            trials.append(
                Trial(index, number.name, outcome, faults, (stage.scene.name, number.name, f"{seconds:.3f} s"))
            )
            if only is not None:
                sys.stderr.write(f"{trials[-1]}\n{ended.err}")
    return Report(
        "signals at random moments",
        seed,
        trials,
        f"python -m tests.faults signals --seed {seed} --only {{index}}",
    )


def _stages(root: Path) -> list[Stage]:
    warm_up()
    for name in ("home", "tmp"):
        (root / name).mkdir()
    with at_home(root):
        return [set_up(scene, root / scene.name) for scene in scenes()]

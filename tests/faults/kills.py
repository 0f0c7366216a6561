"""Kill a process, or simulate a disk failure, at its n-th file operation.

Operations are counted by Python's audit events (opening for writing, mkdir, rename and replace, unlink, rmdir, link,
truncate, chmod). Functions without audit events are replaced (`os.fsync`, `os.write`, each write of a file when it
leaves the buffer), and the exchange of two names is counted by the call of the C library. Writes by C libraries are not
counted; the sizes of the written files show that no library used by Regard writes in this way (see `test_operations`).
"""

import builtins
import errno
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.children import Ended, begin, finish
from tests.faults.report import Report, Trial, campaign
from tests.faults.scenes import Stage, call, contents, doing, fresh, home_folder, scenes, set_up
from tests.faults.watch import WRITES

EVENTS = {
    "os.mkdir": "mkdir",
    "os.rename": "rename",
    "os.remove": "unlink",
    "os.rmdir": "rmdir",
    "os.link": "link",
    "os.symlink": "symlink",
    "os.truncate": "truncate",
    "os.chmod": "chmod",
}
GROWING = {"open", "write", "mkdir", "fsync", "link", "symlink"}
"""Operations that fail on a full disk; renaming and removing files still work."""
WAYS = ("die", "half", "full", "io")
"""Exit before the operation; exit after half of a write; no disk space from this operation on; a single device error.
"""


class Operations:
    """Counts file operations below a folder, and interrupts the n-th operation."""

    def __init__(self, root: Path, way: str, at: int) -> None:
        self.root, self.way, self.at = str(root), way, at
        self.log: list[str] = []

    def comes(self, name: str, path: str) -> None:
        """Count an operation before it runs."""
        self.log.append(f"{name} {path.removeprefix(self.root)}")
        count = len(self.log)
        if count == self.at and self.way in ("die", "half"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "full" and count >= self.at > 0 and name in GROWING:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self.way == "io" and count == self.at:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def writes(self, path: str, content: memoryview, write: Callable[[Any], int]) -> int:
        """Count a write operation, and run it."""
        if self.way == "half" and len(self.log) + 1 == self.at:
            write(content[: len(content) // 2])
        self.comes("write", path)
        return write(content)

    def hear(self, event: str, values: tuple[Any, ...]) -> None:
        """Handle an audit event."""
        if event == "open":
            path, mode, flags = values
            if (isinstance(mode, str) and set(mode) & set("wax+")) or (flags or 0) & WRITES:
                self._hear_of("open", path)
        elif event in EVENTS:
            inside = event in ("os.remove", "os.rmdir") and values[-1] not in (-1, None)  # a name in an open folder
            self._hear_of(EVENTS[event], f"{self.root}/.../{values[0]}" if inside else values[0])
        elif event == "ctypes.dlsym" and values[1] in ("renameat2", "renamex_np"):
            self.comes("exchange", "")

    def _hear_of(self, name: str, path: object) -> None:
        if isinstance(path, int):
            path = Path(f"/proc/self/fd/{path}").readlink()
        if isinstance(path, str | bytes | os.PathLike):
            found = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
            if found.startswith(self.root):
                self.comes(name, found)

    def watch(self) -> None:
        """Start counting for the remaining life of this process."""
        sys.addaudithook(self.hear)
        real_fsync, real_write, real_open, operations = os.fsync, os.write, io.open, self

        def fsync(descriptor: int) -> None:
            operations._hear_of("fsync", descriptor)
            real_fsync(descriptor)

        def write(descriptor: int, content: Any) -> int:
            path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
            if path.startswith(operations.root):
                return operations.writes(path, memoryview(content), lambda part: real_write(descriptor, part))
            return real_write(descriptor, content)

        class Raw(io.FileIO):
            def write(self, content: Any) -> int:
                where = os.path.abspath(os.fsdecode(self.name))  # noqa: PTH100
                if not where.startswith(operations.root):
                    return super().write(content) or 0
                return operations.writes(where, memoryview(content), lambda part: io.FileIO.write(self, part) or 0)

        def opened(file: Any, mode: str = "r", buffering: int = -1, *others: Any, **named: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wax") or "+" in mode or buffering == 0:
                return real_open(file, mode, buffering, *others, **named)
            raw = Raw(os.fspath(file), mode.replace("b", "").replace("t", ""), opener=named.pop("opener", None))
            buffered = io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *others, **named)

        os.fsync, os.write = fsync, write  # type: ignore[assignment]
        io.open = builtins.open = opened


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


def sample(size: int, count: int | None, seed: int) -> list[int]:
    """Return the numbers below `size`, or `count` of them at random."""
    numbers = list(range(size))
    return numbers if count is None or count >= size else sorted(Random(seed).sample(numbers, count))


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
    if scene.run is not None and f"{scene.run}/config.json" in stage.old and f"{scene.run}/config.json" not in now:
        # The next command that uses the folder restores renamed files.
        call(["test", scene.run, "--samples", "2"], site)
        if not (site / scene.run / "config.json").is_file():
            yield "neither the old run nor the new one is there"
    if scene.run is not None and (site / scene.run / "config.json").is_file():
        data = ["--data", "text/test.de", "text/test.en"]
        tested = call(["test", scene.run, *(data if scene.run.endswith("translation") else ["--samples", "2"])], site)
        if tested.status:
            yield f"the run that is there is of no use: {tested.err.strip().splitlines()[-1][:200]}"
    yield from _gone_on(stage, site)


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
    with home_folder() as root:
        cases = [
            (stage, way, at, operation)
            for stage in [set_up(scene, root / scene.name) for scene in scenes()]
            for at, operation in enumerate(operations_of(stage), start=1)
            for way in WAYS
            if way != "half" or operation.startswith("write")
        ]

        def attempt(index: int) -> tuple[Trial, str]:
            stage, way, at, operation = cases[index]
            site = fresh(stage)
            ended = call(stage.scene.argv, site, lambda told: Operations(site, way, at).watch())
            dies = way in ("die", "half")
            faults = tuple(judge(stage, site, ended, {137} if dies else {0, 1}))
            outcome = "killed, and gone on" if dies else f"refused by the disk (status {ended.status}), and gone on"
            return Trial(index, way, outcome, faults, (stage.scene.name, way, operation)), ended.err

        return campaign("kills and full disks", "kills", seed, sample(len(cases), count, seed), only, attempt)


def main_signals(count: int | None, seed: int, only: int | None = None) -> Report:
    """Send `count` signals at random moments that depend on the seed."""
    with home_folder() as root:
        stages = [set_up(scene, root / scene.name) for scene in scenes()]

        def attempt(index: int) -> tuple[Trial, str]:
            random = Random(f"{seed}/{index}")
            stage, number = random.choice(stages), random.choice(SIGNALS)
            seconds = random.uniform(0, stage.seconds)
            site = fresh(stage)
            child = begin(doing(stage.scene.argv), site)
            time.sleep(seconds)
            os.kill(child.pid, number)
            ended = finish(child, patience=60)
            faults = tuple(judge(stage, site, ended, {0, 128 + number}))
            outcome = "had ended before" if ended.status == 0 else f"ended by {number.name}, and gone on"
            what = (stage.scene.name, number.name, f"{seconds:.3f} s")
            return Trial(index, number.name, outcome, faults, what), ended.err

        return campaign("signals at random moments", "signals", seed, count or 300, only, attempt)

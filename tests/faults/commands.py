"""A campaign of command lines: every command and every flag, with invalid and unusual values.

    python -m tests.faults commands --seed 7 --count 20000      number of trials
    python -m tests.faults commands --seed 7 --only 123         repeat one trial, with its full output

Each command line runs in a forked child, as a user with few rights. The working directory is a site with small runs,
which is restored afterwards. A correct command ends with status 0, 1 or 2, or with the status of the signal that
stopped the command after the time limit. If the status is not 0, standard error contains one line from Regard; if the
status is 2, this line names the invalid value. Nothing is unpickled. Nothing is written outside the named paths, and a
refused command changes nothing. No process and no temporary file remains. Modules that are planted in the site are not
executed. The output contains no control characters. Standard streams may be closed.
"""

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from unittest import mock

from regard.runs.training import PREPARED
from tests.faults.children import PATIENCE, Ended, as_nobody, run
from tests.faults.ground import TRAININGS, Site, at_home, make_ground, warm_up
from tests.faults.lines import Form, Line, forms, line_of, near
from tests.faults.planted import RAN
from tests.faults.report import Report, Trial, counted
from tests.faults.watch import watch

USUAL_COUNT = 20_000
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
LONGEST = 1000
"""Largest number of characters in a message."""
PROGRESS = re.compile(
    r"(train|Training on|Validating on) |Unknown tokens: |Precision: |.*: step \d|.*: \d+ of \d+ done|"
    r".*step \d+: |learn the vocabulary|vocabulary of \d|encode|prepare|read|Writing the model for |"
    r"fetch|[A-Z].*\d"
)
HALF_WRITTEN = re.compile(r"(^|/)\..*(~[0-9a-f]{8}-\d+-[0-9a-f]{6}-\d+\.(new|old)|\.lock)$")
"""Names of temporary files and locks."""
KEEPS = "the last checkpoint of the run is intact"
"""Message of a training run that cannot continue."""
DONE, STOPPED = 0, {128 + signal.SIGTERM, 128 + signal.SIGINT}


def work(line: Line, root: Path, told: int) -> int:
    """Run a command line in the child."""
    from regard.cli import main

    os.environ["REGARD_DEBUG"] = "1"  # uncaught exceptions must be visible
    sys.argv, path = ["regard", *line.argv], list(sys.path)
    watch(told, root, line.argv)
    # The processes of a comparison are forked from this process; otherwise each process would import PyTorch
    # again.
    with mock.patch("multiprocessing.get_context", lambda method=None: get_context("fork")):
        try:
            return main()
        finally:
            # Ray and setuptools (for torch.compile) add their vendored libraries to sys.path.
            own = [entry for entry in sys.path if "/site-packages/" not in entry or entry in path]
            if own != path:
                os.write(told, f"leaves the path of modules as {sys.path}\n".encode())


def faults_of(line: Line, ended: Ended, changed: set[str], left: set[str]) -> list[str]:
    """Return the faults in the outcome of a command."""
    found = [*ended.told]
    found += ["hangs"] if ended.hung else []
    found += ["leaves a process"] if ended.left_alive else []
    found += [f"executes the planted module {name!r}" for name in sorted(changed) if RAN in name][:1]
    found += [f"leaves a temporary file: {min(left)}"] if left else []
    hidden = sorted(name for name in changed if HALF_WRITTEN.search(name))
    found += [f"leaves {hidden[0]}"] if hidden and not ended.stopped else []
    if not ended.hung:
        found += _faults_of_words(line, ended)
    refused = {name for name in changed if not _is_of_preparation(name, changed)}
    # A closed pipe is detected only when the report is written, at the end.
    known = KEEPS in ended.err or "no process reads from it" in ended.err
    if ended.status == 2 and refused and not known:
        found.append(f"was refused, and changed {min(refused)!r}")
    return found


def _is_of_preparation(name: str, changed: set[str]) -> bool:
    """Return whether a name is a prepared text or a folder above one, which remains for later commands."""
    return f"{PREPARED}/" in f"{name}/" or any(
        each.startswith(f"{name}/") and f"/{PREPARED}/" in each for each in changed
    )


def _faults_of_words(line: Line, ended: Ended) -> Iterator[str]:
    if "Traceback" in ended.err:
        yield f"traceback: {ended.err.strip().splitlines()[-1][:200]}"
        return
    expected = STOPPED if ended.stopped else set()
    if ended.status not in {DONE, 1, 2} | expected:
        yield f"status {ended.status}"
    own = [each for each in ended.err.splitlines() if each.startswith("regard: ")]
    if controls := CONTROLS.search(ended.out + ended.err):
        yield f"a control character reaches the terminal: {controls[0]!r}"
    strange = [each for each in ended.err.splitlines() if each not in own and not PROGRESS.match(each)]
    if strange:
        yield f"somebody else's words: {strange[0][:200]!r}"
    if (
        ended.status in (1, 2)
        and 2 not in line.streams.closed
        and len(own) != 1 + sum("line " in each for each in own[:-1])
    ):
        yield f"{len(own)} lines for a refusal"
    if unlike := [each for each in own if len(each) > LONGEST or not each.isprintable()]:
        yield f"a line that is none: {unlike[0][:200]!r}"
    if ended.status == 2 and own and not near(line.odd, own[-1]):
        yield f"names nothing that was given: {own[-1][:200]}"


def attempt(seed: int, index: int, every: Sequence[Form], site: Site) -> tuple[Trial, Ended]:
    """Run one command line, check the outcome, and restore the site."""
    line = line_of(seed, index, every)
    ended = run(lambda told: work(line, site.folder, told), site.at, line.streams, PATIENCE)
    changed, left = (set[str](), set[str]()) if site.same() else site.changes()
    faults = faults_of(line, ended, changed, left)
    if not site.same():
        site.put_back()
    names = {0: "done (status 0)", 1: "the machine refused (status 1)", 2: "refused (status 2)"}
    outcome = "stopped while it worked" if ended.stopped else names.get(ended.status, f"status {ended.status}")
    return Trial(index, f"{line.argv[0][:20]!r}"[1:-1], outcome, tuple(faults), line.argv), ended


def main(count: int | None, seed: int, only: int | None = None, *, ground: Path | None = None) -> Report:
    """Run `count` command lines of a seed on all cores; `only` runs a single command line with its full
    output. `ground`: an existing site.
    """
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        root = Path(scratch).resolve()
        warm_up()
        if ground is None:
            with at_home(root):
                ground = make_ground(root)
        os.chdir(ground)
        every = forms(list(TRAININGS))
        os.chdir("/")
        if only is not None:
            trials = _alone(seed, only, every, ground, root)
        else:
            total = count or USUAL_COUNT
            trials = list(counted("command lines", total, _side_by_side(seed, total, every, ground, root)))
    return Report("command lines", seed, trials, f"python -m tests.faults commands --seed {seed} --only {{index}}")


def _alone(seed: int, index: int, every: Sequence[Form], ground: Path, root: Path) -> list[Trial]:
    folder = root / "alone"
    folder.mkdir()
    reader, writer = get_context("fork").Pipe(duplex=False)

    def alone() -> None:
        with _apart(folder, ground) as site:
            writer.send(attempt(seed, index, every, site))

    process = get_context("fork").Process(target=alone)
    process.start()
    trial, ended = reader.recv()
    process.join()
    sys.stderr.write(f"{trial}\n{ended.out}{ended.err}status {ended.status}, {ended.seconds:.2f} s\n")
    return [trial]


@contextlib.contextmanager
def _apart(folder: Path, ground: Path) -> Iterator[Site]:
    """Become an unprivileged user in a folder with a copy of the site."""
    with at_home(folder):
        copied = folder / "ground"
        shutil.copytree(ground, copied, symlinks=True, ignore=lambda inside, names: set(names) & {"pipe"})
        for name in ("home", "tmp"):
            (folder / name).mkdir()
        with as_nobody(folder):
            yield Site(copied, folder)


def _side_by_side(seed: int, count: int, every: Sequence[Form], ground: Path, root: Path) -> Iterator[Trial]:
    """Run the trials in one process per core."""
    context, workers = get_context("fork"), os.cpu_count() or 1
    queue = context.SimpleQueue()

    def part(first: int) -> None:
        folder = root / f"part{first}"
        folder.mkdir()
        with _apart(folder, ground) as site:
            for index in range(first, count, workers):
                queue.put(attempt(seed, index, every, site)[0])

    processes = [context.Process(target=part, args=(first,)) for first in range(workers)]
    for process in processes:
        process.start()
    for done in range(count):
        while queue.empty() and all(process.is_alive() or process.exitcode == 0 for process in processes):
            processes[done % workers].join(0.01)
        if queue.empty():
            raise RuntimeError("a part of the campaign died: see above")
        yield queue.get()
    for process in processes:
        process.join()

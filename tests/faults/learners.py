"""A campaign of learners' files that crash, print, patch functions and loop: `regard check` reports the cause
in one line.

    python -m tests.faults learners --count 100     number of files, by the seed
    python -m tests.faults learners --only 12       repeat one file

Each file contains a correct answer and one harmful act on import, in its function, or in a method that Python calls.
The status is 0 or 1. The output has no traceback and no internal error, and one line with the cause.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from tests.faults.report import Report, Trial, campaign

USUAL_COUNT = 60
PATIENCE = 300
RIGHT = "    return q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5\n"
ACTS = {
    "dies": [
        *("import os; os._exit({number})", "import ctypes; ctypes.string_at(0)"),
        *("import os, signal; os.kill(os.getpid(), signal.Signals({signal}))", "import os; os.abort()"),
        *("import sys; sys.exit({number})", "raise KeyboardInterrupt", "raise SystemExit('{word}')"),
        *("raise BaseException('{word}\\x1b[2J')", "def again(): again()\nagain()"),
        "many = [0] * 10**{power}",
    ],
    "prints": [
        *("print('{word}' * 10**{small})", "import os; os.write(1, bytes(range(256)))"),
        *("import sys; sys.stdout.close()", "import os; os.close({descriptor})"),
        *("import os; os.closerange(1, {number})", "import sys; sys.stdout = sys.stderr = None", "input()"),
    ],
    "patches": [
        *("import json; json.{name} = None", "import builtins; builtins.{builtin} = None"),
        *("import os; os.{call} = None", "import signal; signal.signal = signal.setitimer = None"),
        "import sys; sys.setprofile(lambda *a: None); sys.settrace(lambda *a: None)",
        *("import sys; sys.modules.clear()", "import sys; sys.path.clear()"),
    ],
    "loops": [
        "import threading, time; threading.Thread(target=time.sleep, args=(1000,)).start()",
        *("import os; os.fork()", "import subprocess; subprocess.Popen(['sleep', '1000'])"),
        "import multiprocessing as m; m.get_context('{start}').Process(target=print).start()",
        *("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", "while True: pass"),
    ],
    "moves": [
        "import os; os.chdir('/')",
        "import os; os.remove(__file__)",
        "import os; os.chmod(__file__, 0)",
        "import os, pathlib; pathlib.Path(__file__).write_text('1 / 0')",
    ],
}
PLACES = {
    "loaded": "{act}\ndef score(q, k):\n" + RIGHT,
    "called": "def score(q, k):\n{inner}\n" + RIGHT,
    "deleted": "class Act:\n    def __del__(self):\n{deeper}\nAct()\ndef score(q, k):\n" + RIGHT,
}


def learners_file(random: Random) -> tuple[str, str]:
    """Return the harmful act of a file, and the text of the file."""
    kind = random.choice(list(ACTS))
    act = random.choice(ACTS[kind]).format(
        number=random.randrange(3, 200),
        signal=random.choice((1, 2, 4, 6, 8, 9, 11, 15)),
        word=random.choice(("a", "\u00e9", "{}", "\\n")),
        power=random.randrange(9, 12),
        small=random.randrange(0, 7),
        descriptor=random.randrange(0, 8),
        name=random.choice(("dumps", "loads", "JSONEncoder", "decoder")),
        builtin=random.choice(("print", "len", "isinstance", "open", "list", "getattr")),
        call=random.choice(("write", "getpid", "_exit", "fspath")),
        start=random.choice(("fork", "spawn", "forkserver")),
    )
    place = random.choice(list(PLACES))
    inner, deeper = ("\n".join(" " * deep + line for line in act.splitlines()) for deep in (4, 8))
    return f"{kind}, {place}", PLACES[place].format(act=act, inner=inner, deeper=deeper)


def faults_of(status: int, out: str, err: str) -> Iterator[str]:
    """Yield the faults in the outcome of a check."""
    if status not in (0, 1):
        yield f"status {status}"
    if "internal error" in out + err:
        yield "internal error"
    # A check of half a minute says how long it has run.
    if said := [line for line in err.strip().splitlines() if not re.fullmatch(r"regard check: .* so far", line)]:
        yield f"standard error: {said[-1][:160]}"
    first = out.splitlines()[0] if out.strip() else ""
    if not first.startswith(("mine.py: stopped, ", "score: ")):
        yield f"no line says what happened: {first[:160]}"
    if (status == 0) != (first == "score: right"):
        yield f"status {status} after {first[:160]}"


def attempt(index: int, seed: int) -> tuple[Trial, str]:
    """Check one file."""
    kind, text = learners_file(Random(f"{seed} {index}"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.py"
        path.write_text(text, encoding="utf-8")
        argv = [sys.executable, "-m", "regard", "check", str(path)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                argv, capture_output=True, errors="replace", timeout=PATIENCE, env=environment, cwd=folder
            )
        except subprocess.TimeoutExpired:
            return Trial(index, kind, "hung", (f"did not end within {PATIENCE} seconds",), (text,)), ""
    found = tuple(faults_of(done.returncode, done.stdout, done.stderr))
    outcome = "right (status 0)" if done.returncode == 0 else "stopped or wrong (status 1)"
    return Trial(index, kind, outcome, found, (text,)), done.stdout + done.stderr


def main(count: int | None, seed: int, only: int | None = None) -> Report:
    """Check `count` files, or only the file with the number `only`."""
    tried = partial(attempt, seed=seed)
    return campaign("learners' files", "learners", seed, count or USUAL_COUNT, only, tried)

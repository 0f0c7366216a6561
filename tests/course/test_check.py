"""`regard.check` and `regard check`: what becomes of a learner's file, however it behaves."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import regard
from regard.course.check import check_file
from regard.course.exercises import EXERCISES
from regard.errors import InputError
from tests.course.learning import LEARNERS, checked

RIGHT = "def score(q, k):\n    return q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5\n"
Command = Callable[..., tuple[int, str, str]]


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_right_file_passes(tmp_path: Path, command: Command) -> None:
    status, out, err = command("check", written(tmp_path, "import numpy as np\n" + RIGHT))
    assert status == 0, err
    assert "score: right" in out and "✗" not in out


def test_a_wrong_file_is_told_what_is_wrong(tmp_path: Path, command: Command) -> None:
    path = written(tmp_path, "import numpy as np\n" + RIGHT.replace(" / q.shape[-1] ** 0.5", ""))
    status, out, _ = command("check", path, "--json", tmp_path / "report.json")
    assert status == 1
    assert "The scores are not divided by √d_k." in out
    assert "Vaswani et al. 2017, equation 1" in out
    assert "so      [[2., 0.]," in out and "should  [[1.414, 0.]," in out, out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["right"] is False
    assert report["exercises"][0]["diagnoses"][0]["findings"][0]["name"] == "no scale"


def test_stubs_are_written_and_are_not_begun(tmp_path: Path, command: Command) -> None:
    status, out, err = command("check", "--stubs", tmp_path / "stubs")
    assert status == 0, err
    paths = sorted((tmp_path / "stubs").iterdir())
    assert len(paths) == len(EXERCISES) == 16 and "Wrote 16 stubs" in out
    together = "".join(path.read_text(encoding="utf-8") for path in paths)
    report = regard.check(written(tmp_path, together))
    assert [each.state for each in report.exercises] == ["not begun"] * 16
    assert not report.right
    status, _, err = command("check", "--stubs", tmp_path / "stubs")
    assert status == 2 and "is there already" in err


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("while True:\n        pass", "did not end within 1 second"),
        ("import time\n    time.sleep(1000)", "did not end within 1 second"),
        ("import ctypes\n    ctypes.string_at(0)", "crashed (segmentation fault)"),
        ("import os\n    os.abort()", "crashed (aborted)"),
        ("import sys\n    sys.exit()", "calls sys.exit"),
        ("import os\n    os._exit(0)", "ended its own process"),
        ("while True:\n        print('again' * 100)", "prints without end"),
        ("import os\n    os.fork()", "starts a process (os.fork)"),
        ("import subprocess\n    subprocess.run(['true'])", "starts a process (subprocess.Popen)"),
        ("return input()", "reads standard input"),
        ("import numpy\n    return numpy.ones(10**10)", "asks for more than 3 GB of memory"),
        ("many = [0] * 10**6\n    while True:\n        many = many * 100", "asks for more than 3 GB of memory"),
    ],
    ids=[
        "loop",
        "sleep",
        "segfault",
        "abort",
        "sys.exit",
        "os._exit",
        "flood",
        "fork",
        "subprocess",
        "input",
        "array",
        "list",
    ],
)
def test_whatever_code_does_is_one_line_and_the_next_exercise_is_checked(
    tmp_path: Path, code: str, words: str
) -> None:
    attention = f"def attention(query, key, value, mask=None):\n    {code}\n"
    greedy = (LEARNERS / "searching_lists.py").read_text(encoding="utf-8")
    # Three gigabytes of a list take a second and more; an endless loop takes what it is given.
    report = check_file(written(tmp_path, attention + greedy), seconds=5 if "memory" in words else 1)
    first, second, _ = report.exercises
    assert first.state == "stopped" and words in first.trouble, first
    assert "\n" not in first.trouble
    assert second.exercise == "greedy_search" and second.state == "right"
    assert words in str(report)


def test_a_loop_that_swallows_everything_is_ended_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.course.sandbox.PATIENCE", 1)
    monkeypatch.setattr("regard.course.sandbox.LOADING", 0.5)
    code = "while True:\n        try:\n            while True:\n                pass\n"
    code += "        except BaseException:\n            pass"
    report = check_file(written(tmp_path, f"def score(query, key):\n    {code}\n"), seconds=1.5)
    assert "holds up its own limit" in report.exercises[0].trouble


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def score(:\n", "cannot be read: invalid syntax (line 1)"),
        ("import sys\nsys.exit(3)\n", "calls sys.exit"),
        ("import nothing_of_this_name\n", "cannot be loaded: No module named 'nothing_of_this_name'"),
        ("1 / 0\n", "cannot be run: ZeroDivisionError"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (report,) = regard.check(written(tmp_path, text)).exercises
    assert report.state == "stopped" and words in report.trouble


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os; os._exit(3)", "ended its own process, as os._exit does: take that out"),
        ("import ctypes; ctypes.string_at(0)", "crashed (segmentation fault)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "was ended by signal 15"),
        ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", "sends a signal to another process (os.kill)"),  # noqa: E501
        ("import multiprocessing as m; m.get_context('spawn').Process().start()", "starts a process (multiprocessing)"),  # noqa: E501
        ("raise KeyboardInterrupt", "raises KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError"),
        ("raise ValueError('\\x1b[2J')", "cannot be run: ValueError: \\x1b[2J"),
        ("print('x' * 3_000_000)", "prints without end"),
        ("import os; os.closerange(3, 999)", "broke the checker's own steps"),
        ("import builtins; builtins.len = None", "broke the checker's own steps"),
        ("import os\nfor n in range(3, 30):\n    try: os.write(n, b'{}\\n')\n    except OSError: pass", "of its own answers"),  # noqa: E501
    ],
)  # fmt: skip
def test_a_file_that_dies_while_it_is_loaded_is_one_line(
    tmp_path: Path, command: Command, text: str, words: str
) -> None:
    status, out, err = command("check", written(tmp_path, f"{text}\n{RIGHT}"))
    assert status == 1 and err == "", err
    first = out.splitlines()[0]
    assert first.startswith("mine.py: stopped, ") and words in first, out


def test_a_file_that_meddles_with_python_is_checked_all_the_same(tmp_path: Path, command: Command) -> None:
    text = (
        "import builtins, json, os, signal, sys, threading, time\n"
        "json.dumps = json.JSONEncoder.encode = lambda *a, **k: 1 / 0\n"
        "builtins.print = signal.signal = signal.setitimer = None\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "class A:\n    def __del__(self): 1 / 0\n"
        "A(); os.chdir('/'); os.remove(__file__); sys.stdout.close(); os.close(1); os.close(2)\n"
    )
    status, out, err = command("check", written(tmp_path, text + RIGHT))
    assert status == 0 and "score: right" in out and err == "", out
    text = "import numpy as np\nnp.allclose = None\n"
    status, out, _ = command("check", written(tmp_path, text + RIGHT))
    assert (
        status == 1 and "Note: your file replaces numpy.allclose, for the checker and all libraries too." in out
    )


def test_an_error_shows_the_learners_own_lines_only(tmp_path: Path) -> None:
    text = "import torch\n\ndef score(query, key):\n    return helper(query, key)\n\n"
    text += "def helper(query, key):\n    return torch.matmul(query, key)\n"
    (report,) = regard.check(written(tmp_path, text)).exercises
    assert report.lines == [
        "line 4, in score: return helper(query, key)",
        "line 7, in helper: return torch.matmul(query, key)",
    ]
    assert report.cases[0].verdict == "failed" and report.cases[0].words.startswith("RuntimeError: ")


def test_prints_are_shown_and_cut(tmp_path: Path) -> None:
    text = "import numpy as np\nprint('hello')\nprint('x' * 5000)\n" + RIGHT
    report = regard.check(written(tmp_path, text))
    assert report.right and report.prints.startswith("hello\nxxx") and "characters)" in report.prints
    assert len(report.prints) < 1_100
    often = RIGHT.replace("\n    ", "\n    print('again')\n    print('and again')\n    ", 1)
    prints = regard.check(written(tmp_path, often)).prints
    assert prints.count("again") == 10 and " lines in all, " in prints


def test_sequences_of_other_lengths_are_shown(tmp_path: Path) -> None:
    text = "def greedy_search(step, start, end, longest):\n    return [int(step([start]).argmax())]\n"
    words = regard.check(written(tmp_path, text)).exercises[0].cases[0].words
    assert re.fullmatch(r"\[\d+\], should be \[\d+(, \d+)+\]", words), words


def test_an_object_is_checked_in_a_fork() -> None:
    home = os.getpid()
    seen = []

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None):
        seen.append(1)
        assert os.getpid() != home
        weights = (query @ key.transpose(1, 2)).softmax(-1)
        return weights @ value, weights

    report = regard.check(attention)
    assert seen == [] and report.exercises[0].state == "wrong"
    found = [each.name for each in report.exercises[0].diagnoses[0].findings]
    assert found == ["no scale", "mask ignored"]
    assert repr(report) == "<CheckReport: attention: attention wrong>"


def test_of_a_module_that_was_made_its_class_is_checked() -> None:
    class FeedForward(torch.nn.Module):
        def __init__(self, width: int, inner: int) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.two(self.one(states))
            return found

    (report,) = regard.check(FeedForward(2, 3)).exercises
    assert [each.name for each in report.diagnoses[0].findings] == ["no activation"]


def test_a_name_that_says_nothing_needs_the_exercise() -> None:
    def mine(length: int, width: int) -> list[list[float]]:
        return [[0.0] * width] * length

    with pytest.raises(InputError, match="object 'mine' is called like no exercise"):
        regard.check(mine)
    report = regard.check(mine, "sinusoidal-positions")
    assert report.exercises[0].state == "wrong" and report.exercises[0].diagnoses == []


def test_what_cannot_be_asked_for_is_refused_in_one_line(tmp_path: Path, command: Command) -> None:
    path = written(tmp_path, "def something(a):\n    return a\n\ndef other(a):\n    return a\n")
    for argv, words in (
        ((tmp_path / "nothing.py",), "is not there"),
        ((tmp_path,), "is a folder: give one of its files"),
        ((path,), "has no answer to an exercise: it defines something, other; call yours one of score"),
        ((path, "atention"), "did you mean attention"),
        ((), "no file is named: give one"),
    ):
        status, _, err = command("check", *argv)
        assert status == 2 and words in err and err.count("\n") == 1, err


def test_a_file_needs_no_name_where_the_exercise_is_given(tmp_path: Path) -> None:
    report = regard.check(written(tmp_path, "import numpy\n" + RIGHT.replace("score", "s")), "score")
    assert report.right and report.exercises[0].object == "s"


def test_notes_on_what_is_no_wrong_number() -> None:
    text = (LEARNERS / "heads_separate.py").read_text(encoding="utf-8").replace("nn.ModuleList", "list")
    report = checked(text, "multi_head_attention")
    assert report.state == "wrong" and "plain list of modules" in report.notes[0]
    assert "No usual mistake" not in report.ending
    text = (LEARNERS / "heads_function.py").read_text(encoding="utf-8")
    always = text.replace("torch.softmax(att, -1)", "torch.dropout(torch.softmax(att, -1), 0.5, True)")
    report = checked(always, "multi_head_attention")
    assert report.state == "wrong" and any("dropout" in note for note in report.notes)
    assert report.ending.startswith("Mend what the note says first")
    text = "import torch\n\ndef masked_softmax(scores, mask):\n    scores[~mask] = -1e9\n"
    report = checked(text + "    return scores.softmax(-1) * mask\n", "masked_softmax")
    assert any("scores is changed in place" in note for note in report.notes)


MASKED = "weights = masked_softmax(scores, mask)"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (MASKED, f"{MASKED}.detach()", "no gradient comes to query, key"),
        ("scores = score(query, key)\n", "scores = score(query.data, key)\n", "no gradient comes to query:"),
        (
            MASKED,
            "weights = (scores + torch.log(mask.float())).softmax(-1)\n"
            "        weights = torch.where(weights.isnan(), 0.0, weights)",
            "is NaN",
        ),
        (
            MASKED,
            "scores = scores.detach() / 2 + scores / 2\n        " + MASKED,
            "is a part of the way detached?",
        ),
    ],
    ids=["detached", "data", "NaN", "part"],
)
def test_gradients_that_are_cut_or_broken_are_told(old: str, new: str, words: str) -> None:
    text = (LEARNERS / "weighing_einsum.py").read_text(encoding="utf-8")
    assert old in text
    report = checked(text.replace(old, new), "attention")
    assert report.state == "wrong" and any(words in each.words for each in report.cases), report.cases
    assert report.ending == ""  # the line of the gradients says what it is


def test_checking_numpy_does_not_load_pytorch(tmp_path: Path) -> None:
    path = written(tmp_path, "import numpy as np\n" + RIGHT)
    code = f"import sys, regard; assert regard.check({str(path)!r}).right; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

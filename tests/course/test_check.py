"""`regard.check` and `regard check`: the results for learners' files with every kind of behavior."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import regard
from regard.errors import InputError
from regard_course.check import check_file
from regard_course.exercises.course import EXERCISES
from tests.course.checking import LEARNERS, SCORE, Command, check_source, write


def test_a_right_file_passes(tmp_path: Path, command: Command) -> None:
    status, out, err = command("check", write(tmp_path, "import numpy as np\n" + SCORE))
    assert status == 0, err
    assert "score: right" in out and "✗" not in out


def test_the_mistake_of_a_wrong_file_is_reported(tmp_path: Path, command: Command) -> None:
    path = write(tmp_path, "import numpy as np\n" + SCORE.replace(" / q.shape[-1] ** 0.5", ""))
    status, out, _ = command("check", path, "--json", tmp_path / "report.json")
    assert status == 1
    assert "The scores are not divided by √d_k." in out
    assert "Vaswani et al. 2017, equation 1" in out
    assert "yours   [[2., 2.]," in out and "right   [[1.414, 1.414]," in out, out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["right"] is False
    assert report["exercises"][0]["diagnoses"][0]["findings"][0]["name"] == "no scale"


def test_several_files_and_a_folder_are_checked(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("a", SCORE), ("b", SCORE.replace("** 0.5", "** 1")), ("utils", "x = 1\n")):
        (tmp_path / f"{name}.py").write_text("import numpy as np\n" + text, encoding="utf-8")
    status, out, err = command("check", tmp_path)
    assert status == 1 and "utils.py contains no answer" in err
    assert out.index("a.py\nscore: right") < out.index("b.py\nscore: wrong")
    monkeypatch.chdir(tmp_path)
    assert "b.py\nscore: wrong" in command("check", ".")[1]
    monkeypatch.chdir(tmp_path.parent)
    assert "b.py\nscore: wrong" in command("check", tmp_path.name)[1]
    status, out, _ = command("check", tmp_path / "a.py", tmp_path / "utils.py", "--json", "-")
    report = json.loads(out)
    assert status == 0 and report["name"] == "a.py" and report["exercises"][0]["points"] == 9
    assert not Path("-").exists()
    status, out, _ = command("check", tmp_path / "a.py", tmp_path / "b.py", "--junit", "-")
    suites = ElementTree.fromstring(out)
    assert [(suite.get("tests"), suite.get("failures")) for suite in suites] == [("9", "0"), ("9", "9")]
    failure = suites[1].find("testcase/failure")
    assert failure is not None and failure.text == "The scores are divided by d_k, not by its square root."


def test_another_seed_draws_other_inputs(tmp_path: Path) -> None:
    path = write(tmp_path, "import numpy as np\n" + SCORE.replace(" / q.shape[-1] ** 0.5", ""))
    first, second, again = (regard.check(path, seed=seed).exercises[0] for seed in (0, 3, 3))
    assert [case.name for case in first.cases] == [case.name for case in second.cases]
    assert [case.words for case in first.cases[:-1]] != [case.words for case in second.cases[:-1]]
    assert second.cases == again.cases and second.diagnoses == first.diagnoses


def test_stubs_are_written_and_not_begun(tmp_path: Path, command: Command) -> None:
    status, out, err = command("check", "--stubs", tmp_path / "stubs")
    assert status == 0, err
    paths = sorted((tmp_path / "stubs").iterdir())
    assert len(paths) == len(EXERCISES) == 29 and "Wrote 29 stubs" in out
    together = "".join(path.read_text(encoding="utf-8") for path in paths)
    report = regard.check(write(tmp_path, together))
    assert [exercise.state for exercise in report.exercises] == ["not begun"] * len(EXERCISES)
    assert not report.right
    status, _, err = command("check", "--stubs", tmp_path / "stubs")
    assert status == 2 and "exists already" in err


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("while True:\n        pass", "did not end within 0.25 seconds"),
        ("import time\n    time.sleep(1000)", "did not end within 0.25 seconds"),
        ("import ctypes\n    ctypes.string_at(0)", "crashed (segmentation fault)"),
        ("import os\n    os.abort()", "crashed (aborted)"),
        ("import sys\n    sys.exit()", "calls sys.exit"),
        ("import os\n    os._exit(0)", "ended its own process"),
        ("while True:\n        print('again' * 100)", "prints without end"),
        ("import os\n    os.fork()", "starts a process (os.fork)"),
        ("import subprocess\n    subprocess.run(['true'])", "starts a process (subprocess.Popen)"),
        ("return input()", "reads standard input"),
        ("import numpy\n    return numpy.ones(10**10)", "needs more than 3 GB of memory"),
        ("many = [0] * 10**6\n    while True:\n        many = many * 100", "needs more than 3 GB of memory"),
    ],
    ids=[
        *("loop", "sleep", "segfault", "abort", "sys.exit", "os._exit"),
        *("flood", "fork", "subprocess", "input", "array", "list"),
    ],
)
def test_a_stopped_exercise_is_one_line_and_the_next_one_is_checked(tmp_path: Path, code: str, words: str) -> None:
    attention = f"def attention(query, key, value, mask=None):\n    {code}\n"
    greedy = (LEARNERS / "searching_lists.py").read_text(encoding="utf-8")
    # A list of three gigabytes takes more than a second, and an endless loop always reaches the limit.
    report = check_file(write(tmp_path, attention + greedy), seconds=0.25 if "did not end" in words else 5)
    first, second, _ = report.exercises
    assert first.state == "stopped" and words in first.trouble, first
    assert "\n" not in first.trouble
    assert second.exercise == "greedy_search" and second.state == "right"
    assert words in str(report)


def test_a_loop_that_catches_every_error_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard_course.sandbox.PATIENCE", 1)
    monkeypatch.setattr("regard_course.sandbox.LOADING_SECONDS", 0.25)
    code = "while True:\n        try:\n            while True:\n                pass\n"
    code += "        except BaseException:\n            pass"
    report = check_file(write(tmp_path, f"def score(query, key):\n    {code}\n"), seconds=0.5)
    assert "blocked its time limit" in report.exercises[0].trouble


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def score(:\n", "has a syntax error: invalid syntax (line 1)"),
        ("import sys\nsys.exit(3)\n", "calls sys.exit"),
        ("import nothing_of_this_name\n", "cannot be imported: No module named 'nothing_of_this_name'"),
        ("1 / 0\n", "cannot be run: ZeroDivisionError"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (report,) = regard.check(write(tmp_path, text)).exercises
    assert report.state == "stopped" and words in report.trouble


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os; os._exit(3)", "ended its own process, for example with os._exit: remove that"),
        ("import ctypes; ctypes.string_at(0)", "crashed (segmentation fault)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", "was ended by signal 15"),
        ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", "sends a signal to another process (os.kill)"),
        ("import multiprocessing as m; m.get_context('spawn').Process().start()", "starts a process (multiprocessing)"),
        ("raise KeyboardInterrupt", "raises KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError"),
        ("raise ValueError('\\x1b[2J')", "cannot be run: ValueError: \\x1b[2J"),
        ("print('x' * 3_000_000)", "prints without end"),
        ("import os; os.closerange(3, 999)", "made the checker fail"),
        ("import builtins; builtins.len = None", "made the checker fail"),
    ],
)  # fmt: skip
def test_a_file_that_crashes_while_loading_is_one_line(tmp_path: Path, command: Command, text: str, words: str) -> None:
    status, out, err = command("check", write(tmp_path, f"{text}\n{SCORE}"))
    assert status == 1 and err == "", err
    first = out.splitlines()[0]
    assert first.startswith("mine.py: stopped, ") and words in first, out


def test_a_file_that_writes_to_the_checker_is_one_line(tmp_path: Path) -> None:
    text = "import os\nfor n in range(3, 30):\n    try: os.write(n, b'{}\\n')\n    except OSError: pass\n"
    report = str(check_file(write(tmp_path, text + SCORE), seconds=0.25))  # the file blocks until its time limit
    first = report.splitlines()[0]
    assert first.startswith("mine.py: stopped, ") and "that contains its answers" in first, report


def test_a_file_that_changes_python_is_still_checked(tmp_path: Path, command: Command) -> None:
    text = (
        "import builtins, json, os, signal, sys, threading, time\n"
        "json.dumps = json.JSONEncoder.encode = lambda *a, **k: 1 / 0\n"
        "builtins.print = signal.signal = signal.setitimer = None\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "class A:\n    def __del__(self): 1 / 0\n"
        "A(); os.chdir('/'); os.remove(__file__); sys.stdout.close(); os.close(1); os.close(2)\n"
    )
    status, out, err = command("check", write(tmp_path, text + SCORE))
    assert status == 0 and "score: right" in out and err == "", out
    text = "import numpy as np\nnp.isfinite = None\n"
    status, out, _ = command("check", write(tmp_path, text + SCORE))
    assert status == 1 and "Note: your file replaces numpy.isfinite, also for the checker and all libraries." in out


def test_an_error_shows_only_the_learners_lines(tmp_path: Path) -> None:
    text = "import torch\n\ndef score(query, key):\n    return helper(query, key)\n\n"
    text += "def helper(query, key):\n    return (query, key).mT\n"
    (report,) = regard.check(write(tmp_path, text)).exercises
    assert report.lines == ["line 4, in score: return helper(query, key)", "line 7, in helper: return (query, key).mT"]
    assert report.cases[0].verdict == "failed" and report.cases[0].words.startswith("AttributeError: ")
    assert report.first_step is None and report.cases[0].words.endswith("choose one, for example with [0])")


def test_output_is_shown_and_truncated(tmp_path: Path) -> None:
    text = "import numpy as np\nprint('hello')\nprint('x' * 5000)\n" + SCORE
    report = regard.check(write(tmp_path, text))
    assert report.right and report.prints.startswith("hello\nxxx") and "characters in total)" in report.prints
    assert len(report.prints) < 1_100
    often = SCORE.replace("\n    ", "\n    print('again')\n    print('and again')\n    ", 1)
    assert (prints := regard.check(write(tmp_path, often)).prints).count("again") == 10 and " lines, " in prints


def test_sequences_of_other_lengths_are_shown(tmp_path: Path) -> None:
    text = "def greedy_search(step, start, end, longest):\n    return [int(step([start]).argmax())]\n"
    words = regard.check(write(tmp_path, text)).exercises[0].cases[0].words
    assert re.fullmatch(r"\[\d+\], should be \[\d+(, \d+)+\]", words), words


def test_an_object_is_checked_in_a_fork() -> None:
    home = os.getpid()
    seen = []

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        seen.append(1)
        assert os.getpid() != home
        weights = (query @ key.transpose(1, 2)).softmax(-1)
        return weights @ value, weights

    report = regard.check(attention)
    assert seen == [] and report.exercises[0].state == "wrong"
    names = [finding.name for finding in report.exercises[0].diagnoses[0].findings]
    assert names == ["no scale", "mask ignored"]
    assert repr(report) == "<CheckReport: attention: attention wrong>"


def test_the_class_of_a_module_instance_is_checked() -> None:
    class FeedForward(torch.nn.Module):
        def __init__(self, width: int, inner: int) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.two(self.one(states))
            return output

    (report,) = regard.check(FeedForward(2, 3)).exercises
    assert [finding.name for finding in report.diagnoses[0].findings] == ["no activation"]


def test_an_unknown_name_needs_the_exercise() -> None:
    def mine(length: int, width: int) -> list[list[float]]:
        return [[0.0] * width] * length

    with pytest.raises(InputError, match="no exercise has the name 'mine'"):
        regard.check(mine)
    report = regard.check(mine, "sinusoidal-positions")
    assert report.exercises[0].state == "wrong" and report.exercises[0].diagnoses == []


def test_invalid_requests_are_refused_in_one_line(tmp_path: Path, command: Command) -> None:
    path = write(tmp_path, "def something(a):\n    return a\n\ndef other(a):\n    return a\n")
    for argv, words in (
        ((tmp_path / "nothing.py",), "does not exist"),
        ((tmp_path,), "contains no answer to an exercise"),
        ((path, "--seed", "-1"), "--seed -1 must not be negative"),
        ((tmp_path / "none.py", path), "does not exist"),
        ((path, "--table", tmp_path / "t.csv"), "is not a folder"),
        ((tmp_path, "--table", tmp_path / "t.csv", "--junit", "-"), "leave out --junit"),
        ((tmp_path, "--page", tmp_path / "p.html", "--language", "de"), "--page writes English: leave out --language"),
        ((tmp_path, "--table", tmp_path / "t.csv"), "defines a name of an exercise"),
        ((path, "--json", path), "is also"),
        ((path,), "contains no answer to an exercise: it defines something, other; use one of the names score"),
        ((path, "atention"), "did you mean attention"),
        ((), "the file name is missing: give a file"),
    ):
        status, _, err = command("check", *argv)
        assert status == 2 and words in err and err.count("\n") == 1, err


def test_a_file_needs_neither_a_name_nor_an_import(tmp_path: Path) -> None:
    tensors = "def s(query, key):\n    return query @ key.transpose(-2, -1) / key.shape[-1] ** 0.5\n"
    for text in ("import numpy\n" + SCORE.replace("score", "s"), tensors):
        report = regard.check(write(tmp_path, text), "score")
        assert report.right and report.exercises[0].object == "s"
    with pytest.raises(regard.InputError, match="no answer"):  # the name of another exercise
        regard.check(write(tmp_path, tensors.replace("def s", "def rms_norm")), "score")


def test_notes_on_problems_other_than_wrong_numbers() -> None:
    text = (LEARNERS / "heads_separate.py").read_text(encoding="utf-8").replace("nn.ModuleList", "list")
    report = check_source(text, "multi_head_attention")
    assert report.state == "wrong" and "plain list or dictionary of modules" in report.notes[0]
    assert "known mistakes" not in report.ending
    text = (LEARNERS / "heads_function.py").read_text(encoding="utf-8")
    always = text.replace("torch.softmax(att, -1)", "torch.dropout(torch.softmax(att, -1), 0.5, True)")
    report = check_source(always, "multi_head_attention")
    assert report.state == "wrong" and any("dropout" in note for note in report.notes)
    assert report.ending.startswith("Fix the problem in the note first")
    text = "import torch\n\ndef masked_softmax(scores, mask):\n    scores[~mask] = -1e9\n"
    report = check_source(text + "    return scores.softmax(-1) * mask\n", "masked_softmax")
    assert any("scores is changed in place" in note for note in report.notes)


MASKED = "weights = masked_softmax(scores, mask)"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (MASKED, f"{MASKED}.detach()", "no gradient reaches query, key"),
        ("scores = score(query, key)\n", "scores = score(query.data, key)\n", "no gradient reaches query:"),
        (
            MASKED,
            "weights = (scores + torch.log(mask.float())).softmax(-1)\n"
            "        weights = torch.where(weights.isnan(), 0.0, weights)",
            "is NaN",
        ),
        (MASKED, "scores = scores.detach() / 2 + scores / 2\n        " + MASKED, "is a part detached?"),
    ],
    ids=["detached", "data", "NaN", "part"],
)
def test_missing_and_wrong_gradients_are_reported(old: str, new: str, words: str) -> None:
    text = (LEARNERS / "weighing_einsum.py").read_text(encoding="utf-8")
    assert old in text
    report = check_source(text.replace(old, new), "attention")
    assert report.state == "wrong" and any(words in case.words for case in report.cases), report.cases
    assert report.ending == ""  # the line of the gradients describes the problem


def test_checking_numpy_does_not_load_pytorch(tmp_path: Path) -> None:
    path = write(tmp_path, "import numpy as np\n" + SCORE)
    code = f"import sys, regard; assert regard.check({str(path)!r}).right; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

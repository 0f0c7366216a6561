"""Modules planted in the working directory and in the run's folder are not executed and do not break any
command.
"""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.cli import COMMANDS
from tests.faults.planted import RAN, extra_names, installed_files, loaded_files, plant, tried_names
from tests.german import write

CONSOLE = [sys.executable, "-c", "import sys; del sys.path[0]; from regard.cli import main; sys.exit(main())"]
"""The command `regard`, whose sys.path starts with the folder of the program, not with the working
directory.
"""
MODULE = [sys.executable, "-m", "regard"]
READY = "(Ctrl-C ends it)"
SAMPLES = "--samples 4"
LINES = {
    "train": "train translation --train text/train.de text/train.en --steps 2 --hidden 8 --heads 2 --inner 8 "
    "--vocab_size 60 --tokens 200 --savepath new",
    "test": f"test signal2 {SAMPLES} --input BCCCBAABACCCA --plot",
    "show": "show signal2 --no-browser",
    "look": "look models/signal2 --text A",
    "examine": f"examine signal2 {SAMPLES}",
    "explain": "explain signal2",
    "timeline": f"timeline signal2 {SAMPLES}",
    "generate": "generate induction AB",
    "prune": f"prune signal2 {SAMPLES} --heads 1",
    "translate": "translate dates A --plot",
    "align": "align dates --input text/pairs",
    "score": "score dates --input text/pairs",
    "compare": "compare counting --vary hidden=4,8 --seeds 2 --steps 2 --savepath compared",
    "card": "card sink --steps 1 --seeds 1 --savepath cards_of_mine",
    "bench": "bench --methods attention --models counting --seeds 1 --quick --savepath bench_of_mine",
    "average": "average dates --output averaged_of_mine",
    "trust": "trust dates",
    "learn": "learn --stubs stubs_of_mine --notebooks notebooks_of_mine",
    "check": "check learned/weights.py",
    "write": "write learned/program.py --puzzle first",
    "tasks": "tasks",
    "data": "data multi30k --languages de de",
    "clean": "clean --train text/train.de text/train.en",
    "export": "export dates --to ctranslate2 --output exported",
    "import": "import models/signal2",
    "plot": "plot positions --output waves_of_mine.png",
}
LEARNED = "import helper_of_mine\nimport numpy as np\ndef softmax(x): return np.exp(x) / np.exp(x).sum()\n"
WRITTEN = "from regard_lab.programs.language import tokens\nimport helper_of_mine\nanswer = tokens\n"


@pytest.fixture(scope="session")
def loaded_names() -> set[str]:
    """Return every module that a loaded module or an extra imports or tries to import."""
    return tried_names(loaded_files()) | extra_names()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Create a folder with runs, texts and a learner's code."""
    os.environ.pop("PYTHONPATH", None)
    regard.train("signal2", hidden=8, heads=2, steps=2, savepath=tmp_path / "models", progress=False)
    regard.train("dates", hidden=8, embedding=4, steps=2, savepath=tmp_path / "models", progress=False)
    regard.train("induction", hidden=8, heads=2, steps=2, savepath=tmp_path / "models", progress=False)
    (tmp_path / "text").mkdir()
    write(tmp_path / "text")
    (tmp_path / "text" / "pairs").write_text("A\tB\n")
    (tmp_path / "learned").mkdir()
    (tmp_path / "learned" / "weights.py").write_text(LEARNED)
    (tmp_path / "learned" / "helper_of_mine.py").write_text("")
    (tmp_path / "learned" / "program.py").write_text(WRITTEN)
    return tmp_path


def run(program: list[str], line: str, folder: Path) -> tuple[int, str]:
    """Run a command, or a server until it is ready; return its status and standard error."""
    with subprocess.Popen(
        [*program, *shlex.split(line)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = ""
        for each in process.stdout:
            said += each
            if READY in each:
                process.send_signal(signal.SIGINT)
    return process.returncode, said


def judge(folder: Path, line: str, found: tuple[int, str], expected: tuple[int, str] | None = None) -> None:
    status, said = found
    executed = sorted(path.name for path in folder.rglob(f"{RAN}*"))
    assert not executed, (line, executed[:5])
    assert "Traceback" not in said and "internal error" not in said, (line, said[-500:])
    if expected is not None:
        assert status == expected[0], (line, said[-300:], expected[1][-300:])


def test_every_command_is_tested() -> None:
    assert set(LINES) == set(COMMANDS)


@pytest.mark.parametrize("as_folders", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_no_planted_module_is_executed(site: Path, loaded_names: set[str], as_folders: bool) -> None:
    names = loaded_names
    assert {"dill", "torch", "numpy", "ray", "typing"} <= names and len(names) > 300
    places = (site, site / "models" / "signal2", site / "learned")
    # The first folder has modules, the second folder has empty folders of the same names.
    assert all(plant(place, names, as_folders=as_folders != (place != site)) > 300 for place in places)
    status = run(CONSOLE, LINES["test"], site)
    assert status[0] == 0, status[1]
    judge(site, LINES["test"], status)


def test_python_m_does_not_import_from_the_current_directory(site: Path, loaded_names: set[str]) -> None:
    """Python imports some modules from the working directory before Regard starts, so these modules are left
    out.
    """
    names = loaded_names - sys.stdlib_module_names - {"regard"}
    assert plant(site, names) > 100
    found = run(MODULE, "tasks", site)
    judge(site, "tasks", found)
    assert found[0] == 0, found[1]


@pytest.fixture(scope="session")
def every_name() -> set[str]:
    """Return every module that a dependency of Regard imports or tries to import."""
    return tried_names(installed_files()) | extra_names() | sys.stdlib_module_names


@pytest.mark.slow
@pytest.mark.parametrize("command", LINES)
def test_no_command_executes_a_planted_module(site: Path, command: str, every_name: set[str]) -> None:
    if command == "look":
        transformers = pytest.importorskip("transformers")
        config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=16)
        transformers.GPT2LMHeadModel(config).save_pretrained(site / "gpt_of_mine")
        LINES["look"] = "look gpt_of_mine --json looked.json"
    line = LINES[command]
    expected = run(CONSOLE, line, site)
    for made in (
        *("new", "compared", "cards_of_mine", "stubs_of_mine", "notebooks_of_mine", "exported"),
        "models/signal2-pruned",
    ):
        if (site / made).exists():
            (site / made).rename(site / f"{made}-before")
    names = every_name - {"helper_of_mine"}
    assert plant(site, names) > 1000
    assert plant(site / "models" / "signal2", names, as_folders=True) > 1000
    judge(site, line, run(CONSOLE, line, site), expected)


@pytest.mark.slow
def test_only_imports_of_a_learners_file_are_found_beside_it(site: Path, loaded_names: set[str]) -> None:
    plant(site / "learned", loaded_names)
    found = run(CONSOLE, LINES["check"], site)
    judge(site, LINES["check"], found)
    assert "helper_of_mine" not in found[1], found[1]
    (site / "learned" / "helper_of_mine.py").write_text("import own_too\n")
    (site / "learned" / "own_too.py").write_text("open('RAN-own_too', 'w')\n")
    run(CONSOLE, LINES["check"], site)
    assert list(site.rglob("RAN-own_too"))

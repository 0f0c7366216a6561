"""Modules in the working directory and in the run's folder are not executed and break no command."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regard.cli import COMMANDS
from tests.command_lines import LINES as COMMAND_LINES, add_models, make_folder
from tests.faults.planted import RAN, extra_names, installed_files, loaded_files, plant, tried_names

CONSOLE = [sys.executable, "-c", "import sys; del sys.path[0]; from regard.cli import main; sys.exit(main())"]
"""The command `regard`, whose sys.path starts with its folder, not with the working directory."""
MODULE = [sys.executable, "-m", "regard"]
READY = "(Ctrl-C ends it)"
LINES = {name: lines[0] for name, lines in COMMAND_LINES.items()}
LINES |= {"check": ["check", "learned/weights.py"], "write": ["write", "learned/program.py", "--puzzle", "first"]}
LEARNED = "import helper_of_mine\nimport numpy as np\ndef softmax(x): return np.exp(x) / np.exp(x).sum()\n"
WRITTEN = "from regard_lab.programs.language import tokens\nimport helper_of_mine\nanswer = tokens\n"


@pytest.fixture(scope="session")
def loaded_names() -> set[str]:
    """Return every module that a loaded module or an extra imports or tries to import."""
    return tried_names(loaded_files()) | extra_names()


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder with runs, texts and a learner's code."""
    folder = make_folder(tmp_path_factory.mktemp("planted"))
    (folder / "learned").mkdir()
    (folder / "learned" / "weights.py").write_text(LEARNED)
    (folder / "learned" / "helper_of_mine.py").write_text("")
    (folder / "learned" / "program.py").write_text(WRITTEN)
    return folder


@pytest.fixture
def site(ground: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the folder."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return shutil.copytree(ground, tmp_path / "site")


def run(program: list[str], line: list[str], folder: Path) -> tuple[int, str]:
    """Run a command, or a server until it is ready; return its status and standard error."""
    with subprocess.Popen(
        [*program, *line],
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


def judge(folder: Path, line: list[str], found: tuple[int, str], expected: tuple[int, str] | None = None) -> None:
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
    places = (site, site / "models" / "counting", site / "learned")
    # The first folder has modules, the second folder has empty folders of the same names.
    assert all(plant(place, names, as_folders=as_folders != (place != site)) > 300 for place in places)
    status = run(CONSOLE, LINES["test"], site)
    assert status[0] == 0, status[1]
    judge(site, LINES["test"], status)


def test_python_m_does_not_import_from_the_current_directory(site: Path, loaded_names: set[str]) -> None:
    """Python imports some modules from the working directory before Regard starts, so these modules are left out."""
    names = loaded_names - sys.stdlib_module_names - {"regard"}
    assert plant(site, names) > 100
    found = run(MODULE, ["tasks"], site)
    judge(site, ["tasks"], found)
    assert found[0] == 0, found[1]


@pytest.fixture(scope="session")
def every_name() -> set[str]:
    """Return every module that a dependency of Regard imports or tries to import."""
    return tried_names(installed_files()) | extra_names() | sys.stdlib_module_names


@pytest.mark.slow
@pytest.mark.parametrize("command", LINES)
def test_no_command_executes_a_planted_module(
    ground: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, every_name: set[str]
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if command in ("look", "import"):
        pytest.importorskip("transformers")
        if not (ground / "gpt").exists():
            add_models(ground)
    sound, site = (shutil.copytree(ground, tmp_path / name) for name in ("sound", "site"))
    assert plant(site, every_name - {"helper_of_mine"}) > 1000
    assert plant(site / "models" / "counting", every_name - {"helper_of_mine"}, as_folders=True) > 1000
    judge(site, LINES[command], *(run(CONSOLE, LINES[command], folder) for folder in (site, sound)))


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

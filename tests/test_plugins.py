"""User code: its imports, and the isolation of other files in its folder."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.plugins import code_digest, code_files, find_plugin, import_plugin
from regard.tasks.all_tasks import find_task

NAMES = ("mine", "helper", "probing", "optional_thing", "deep", "calendar_of_mine")
OWN = """
import helper
import probing

class Mine:
    value = helper.VALUE

    def later(self):
        import late_helper
"""
PROBING = """
import importlib.util

found = importlib.util.find_spec("optional_thing")
try:
    import optional_thing
except ImportError:
    optional_thing = None
"""
RUN = "import pathlib; pathlib.Path('RAN').write_text('')\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with user code, and an installed module that tries to import it."""
    own, installed = tmp_path / "own", tmp_path / "installed"
    own.mkdir()
    installed.mkdir()
    (own / "mine.py").write_text(OWN)
    (own / "helper.py").write_text("from deep.er import VALUE\n")
    (own / "deep").mkdir()
    (own / "deep" / "er.py").write_text("import flat\nVALUE = flat.VALUE\n")
    (own / "flat.py").write_text("VALUE = 7\n")
    (own / "late_helper.py").write_text("")
    (own / "optional_thing.py").write_text(RUN)
    (installed / "probing.py").write_text(PROBING)
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", str(Path.cwd()))])
    monkeypatch.chdir(own)
    before = set(sys.modules)
    yield own
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_only_user_code_finds_modules_beside_it(here: Path) -> None:
    path, finders, known = list(sys.path), list(sys.meta_path), set(sys.path_importer_cache)
    found = import_plugin("score", "mine:Mine")
    assert isinstance(found, type) and vars(found)["value"] == 7
    probing = sys.modules["probing"]
    assert probing.found is None and probing.optional_thing is None and not (here / "RAN").exists()
    assert (sys.path, sys.meta_path) == (path, finders)
    assert str(here) not in set(sys.path_importer_cache) - known


def test_later_imports_do_not_search_the_folder() -> None:
    found = import_plugin("score", "mine:Mine")
    assert isinstance(found, type)
    with pytest.raises(ModuleNotFoundError, match="late_helper"):
        found().later()


def test_a_module_is_located_without_running_it(here: Path) -> None:
    spec = find_plugin("optional_thing")
    assert spec is not None and spec.origin == str(here / "optional_thing.py")
    assert find_plugin("no_such_module") is None and not (here / "RAN").exists()


def test_a_new_file_is_found(here: Path) -> None:
    with pytest.raises(InputError, match="there is no module 'fresh'"):
        import_plugin("score", "fresh:Mine")
    (here / "fresh.py").write_text("class Mine: pass\n")
    assert isinstance(import_plugin("score", "fresh:Mine"), type)


def test_an_installed_module_that_hides_a_file_is_named(here: Path) -> None:
    (here / "colorsys.py").write_text("class Mine: pass\n")
    with pytest.raises(InputError, match="an installed module with that name hides '.*colorsys.py'; rename your file"):
        import_plugin("score", "colorsys:Mine")


def test_only_a_task_finds_modules_beside_its_file(here: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    task = tmp_path / "elsewhere" / "odd.py"
    (tmp_path / "elsewhere" / "beside_it.py").write_text("NAME = 'odd'\n")
    (tmp_path / "elsewhere" / "optional_thing.py").write_text(RUN)
    code = "import beside_it, probing\nfrom regard.tasks.counting import Counting\n"
    code += "class Odd(Counting): name = beside_it.NAME\n"
    task.write_text(code)
    assert find_task(str(task)).name == "odd" and not (here / "RAN").exists()
    task.write_text("import helper\n" + code)
    with pytest.raises(InputError, match="No module named 'helper'"):
        find_task(str(task))


CODE = {
    "check.py": "import beside\nfrom inside.part import value\ndef later():\n    import late\n",
    "beside.py": "import importlib\nimportlib.import_module('named')\nexec(open('read.py').read())\n",
    "named.py": "",
    "read.py": "",
    "late.py": "import broken\n",
    "broken.py": "def (",
    "inside/__init__.py": "",
    "inside/part.py": "",
    "inside/unnamed.py": "",
    "plain/deep.py": "",
    "other.py": "import json, torch, pytest\n",
    "uses_plain.py": "import plain.deep\n",
    "inside/other_text.txt": "",
}
CLOSURES = {
    "check.py": {
        *("check.py", "beside.py", "named.py", "read.py", "late.py", "broken.py"),
        *("inside/__init__.py", "inside/part.py", "inside/unnamed.py"),
    },
    "inside/part.py": {"inside/__init__.py", "inside/part.py", "inside/unnamed.py"},
    "other.py": {"other.py"},
    "uses_plain.py": {"uses_plain.py", "plain/deep.py"},
}


@pytest.fixture
def code(tmp_path: Path) -> Path:
    for name, text in CODE.items():
        path = tmp_path / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "code"


@pytest.mark.parametrize("name", CLOSURES)
def test_the_digest_of_code_covers_all_that_it_can_import(code: Path, name: str) -> None:
    assert {str(path.relative_to(code)) for path in code_files(code / name)} == CLOSURES[name]
    before = code_digest(code / name)
    for other in CODE:
        (code / other).write_text(CODE[other] + "# changed\n")
        assert (code_digest(code / name) != before) == (other in CLOSURES[name]), other
        (code / other).write_text(CODE[other])
    assert code_digest(code / name) == before


def test_the_digest_of_code_needs_no_readable_helper(code: Path) -> None:
    (code / "beside.py").unlink()
    os.mkfifo(code / "beside.py")
    (code / "late.py").unlink()
    (code / "late.py").symlink_to("late.py")
    assert {path.name for path in code_files(code / "check.py")} == {"check.py", "__init__.py", "part.py", "unnamed.py"}


def test_installed_code_counts_alone() -> None:
    assert code_files(Path(pytest.__file__)) == [Path(pytest.__file__)]


def test_changed_code_is_not_imported_a_second_time(here: Path) -> None:
    import_plugin("part", "mine:Mine")
    import_plugin("part", "mine:Mine")
    (here / "flat.py").write_text("VALUE = 8\n")
    with pytest.raises(InputError, match=r"flat.py' has changed since this process imported it: start Python again"):
        import_plugin("part", "mine:Mine")

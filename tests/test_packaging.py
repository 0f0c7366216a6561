"""Contents of the wheel and the source distribution, and pinned versions of the dependencies."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from itertools import chain
from pathlib import Path, PurePath

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import regard

ROOT = Path(__file__).parent.parent
SAID = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SAID["project"]
PLAIN = ROOT / "constraints.txt"
HASHED = ROOT / "constraints-hashed.txt"
PACKED = SAID["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
TOP = {each.partition("/")[0] for each in PACKED} | {".gitignore", "PKG-INFO"}
"""Top-level names in the source distribution. Other files of the repository are excluded."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and the source distribution of this repository, and return their folder."""
    place = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, bytes]:
    """Return the files of the wheel by name."""
    with zipfile.ZipFile(built / f"regard-{regard.__version__}-py3-none-any.whl") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_wheel_contains_only_the_package(wheel: dict[str, bytes]) -> None:
    info = f"regard-{regard.__version__}.dist-info/"
    inside = {name for name in wheel if not name.startswith(info)}
    # Without compiled modules, and without the source maps of the bundled scripts, which are for contributors.
    found = (path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix not in (".pyc", ".map"))
    sources = {path.relative_to(ROOT / "src").as_posix() for path in found}
    assert inside == {name for name in sources if "/" in name}
    endings = {".py", ".pyi", ".typed", ".js", ".css", ".html"} | {".md", ".json", ".mplstyle", ".svg", ".toml", ".ts"}
    assert {PurePath(name).suffix for name in inside} == endings
    assert wheel[f"{info}licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert b"regard = regard.cli:main" in wheel[f"{info}entry_points.txt"]


def test_metadata_are_valid_and_equal_those_of_the_project(wheel: dict[str, bytes]) -> None:
    told = Metadata.from_email(wheel[f"regard-{regard.__version__}.dist-info/METADATA"], validate=True)
    assert (told.name, str(told.version), told.license_expression) == ("regard", regard.__version__, "MIT")
    assert told.license_files == ["LICENSE"]
    assert told.description and told.description_content_type == "text/markdown"
    assert told.requires_python is not None
    declared = re.findall(r":: (3\.\d+)", "\n".join(told.classifiers or []))
    assert declared and all(told.requires_python.contains(each) for each in declared)
    assert not told.requires_python.contains("3.10")
    extras = {canonicalize_name(each) for each in PROJECT["optional-dependencies"]}
    assert set(told.provides_extra or []) == extras


def test_source_distribution_contains_the_whole_repository(built: Path) -> None:
    top = f"regard-{regard.__version__}/"
    with tarfile.open(built / f"regard-{regard.__version__}.tar.gz") as archive:
        names = {each.name.removeprefix(top) for each in archive.getmembers() if each.isfile()}
    assert {each.partition("/")[0] for each in names} == TOP
    needed = {
        *("Makefile", "constraints.txt", "constraints-hashed.txt", "package.json", "package-lock.json"),
        *("LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "examples/doubles.py", "docs/dev/overview.md"),
        *("benchmarks/primer.py", "tests/conftest.py", "tests/js/matrix.test.js", "PKG-INFO"),
    }
    assert needed - names == set()
    if not (ROOT / ".git").exists():
        pytest.skip("no repository here to compare with")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    kept = {name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()}
    assert kept - names == set()


def _pins(file: Path) -> dict[str, str]:
    """Return `version ; marker` by name of the package, from a file of constraints."""
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", " ")):
            name, _, pinned = line.rstrip(" \\").partition("==")
            assert re.fullmatch(r"[a-z0-9-]+", name), f"{file.name}: {line}"
            assert name not in found, f"{file.name} pins {name} twice"
            found[name] = pinned
    return found


def test_both_files_of_constraints_pin_the_same_versions() -> None:
    assert _pins(PLAIN) == _pins(HASHED)
    assert len(_pins(PLAIN)) > 100


def test_every_pin_has_hashes_and_no_index_is_named() -> None:
    hashed = HASHED.read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=[a-z0-9])", hashed)[1:]
    assert len(blocks) == len(_pins(HASHED))
    for block in blocks:
        pin, *hashes = block.rstrip().split(" \\\n    ")
        assert hashes, pin
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), pin
    assert "://" not in hashed and "index" not in PLAIN.read_text(encoding="utf-8")


def test_every_requirement_is_pinned_within_its_range() -> None:
    pins = {name: pinned.partition(" ;")[0] for name, pinned in _pins(PLAIN).items()}
    wanted = chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for each in map(Requirement, wanted):
        assert each.specifier.contains(pins[canonicalize_name(each.name)], prereleases=True), str(each)

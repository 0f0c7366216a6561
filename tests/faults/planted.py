"""Modules that are planted in the working directory of a command and must not be executed."""

import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

RAN = "RAN-"
"""Prefix of the files that an executed module creates in the current directory."""
IMPORTS = re.compile(
    r"^\s*(?:import|from)\s+([A-Za-z_]\w*)|"
    r"(?:find_spec|import_module|__import__|is_package_available|is_available|LazyLoader)\(\s*[\"']([A-Za-z_]\w*)",
    re.MULTILINE,
)
CODE = f'open(f"{RAN}{{__name__}}", "w").close()\n'


def tried_names(files: Iterable[Path]) -> set[str]:
    """Return the top-level modules that Python files import or try to import."""
    found: set[str] = set()
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        found |= {name for match in IMPORTS.findall(text) for name in match if name}
    return found


def loaded_files() -> list[Path]:
    """Return the Python files of all loaded modules."""
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return [Path(path) for path in paths if path and path.endswith(".py") and Path(path).is_file()]


def installed_files() -> list[Path]:
    """Return the Python files of all installed dependencies of Regard, including extras."""
    seen: set[str] = set()
    files: list[Path] = []
    left = ["regard"]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        left += [re.split(r"[^\w.-]", each)[0] for each in found.requires or ()]
        files += [Path(str(found.locate_file(each))) for each in found.files or () if each.suffix == ".py"]
    return [file for file in files if file.is_file()]


def extra_names() -> set[str]:
    """Return the modules of all extras in pyproject.toml."""
    content = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    needed = [each for extra in content["project"]["optional-dependencies"].values() for each in extra]
    return {re.split(r"[^\w.-]", each)[0].replace("-", "_") for each in needed}


def plant(folder: Path, names: Iterable[str], *, as_folders: bool = False) -> int:
    """Create a module or an empty folder of each name in a folder, unless it exists; return their number."""
    count = 0
    for name in names:
        place = folder / (name if as_folders else f"{name}.py")
        if place.exists() or (folder / name).exists():
            continue
        if as_folders:
            place.mkdir()
        else:
            place.write_text(CODE)
        count += 1
    return count

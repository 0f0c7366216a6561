"""Test an installed Regard with the Python interpreter of its environment (make try-wheel). This file is not
collected by pytest.

    python -I tests/wheel.py alone     with the dependencies of the wheel only
    python -I tests/wheel.py extras    every module, with all extras installed
    python -I tests/wheel.py lowest    both, with the lowest versions of all requirements

All warnings are errors, including warnings of other packages, unless their versions are the lowest.
"""

import importlib
import os
import pkgutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import regard

COMMANDS = [
    ["--help"],
    ["train", "counting", "--steps", "50"],
    ["test", "counting", "--samples", "100"],
    ["test", "counting", "--samples", "10", "--plot", "counting.png"],
    ["train", "dates", "--steps", "2"],
    ["translate", "dates", "3. Mai 1979"],
]


def import_all(packages_only: bool) -> int:
    """Import the packages and every public name, or every module. Returns the number of imports."""
    found = [each for each in pkgutil.walk_packages(regard.__path__, "regard.") if each.ispkg or not packages_only]
    for each in found:
        importlib.import_module(each.name)
    for name in vars(regard)["NAMES"]:
        getattr(regard, name)
    return len(found)


def run_commands(warnings_are: str) -> None:
    """Run the commands as a user does, in an empty folder."""
    program = Path(sys.executable).with_name("regard")
    with tempfile.TemporaryDirectory() as place:
        for command in COMMANDS:
            done = subprocess.run(
                [program, *command],
                cwd=place,
                env=os.environ | {"PYTHONWARNINGS": warnings_are},
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, f"regard {' '.join(command)}: {done.stderr}"
        assert (Path(place) / "models/counting/model.safetensors").exists()
        assert (Path(place) / "counting.png").stat().st_size > 1000


if __name__ == "__main__":
    lowest = sys.argv[1] == "lowest"
    warnings.simplefilter("ignore" if lowest else "error")
    assert Path(regard.__file__).is_relative_to(sys.prefix), f"{regard.__file__} is not in {sys.prefix}"
    if sys.argv[1] == "alone" or lowest:
        assert import_all(packages_only=True) > 10
        run_commands("ignore" if lowest else "error")
    if sys.argv[1] == "extras" or lowest:
        assert import_all(packages_only=False) > 100

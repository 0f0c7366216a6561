"""Commands import only the modules that they need."""

import importlib.util
import json
import subprocess
import sys

import pytest

import regard

HEAVY = {
    *("babel", "ctranslate2", "datasets", "lxml", "markdown_it", "matplotlib", "PIL", "pooch", "sacrebleu"),
    *("scipy", "starlette", "sympy", "tokenizers", "transformers", "uvicorn"),
}
"""Libraries that only some commands need. PyTorch's compiler imports SymPy, which takes seconds."""
PARTS = {
    *("sweep", "regard_course", "convert.exchange", "convert.ctranslate2", "external", "server"),
    *("interpret.examination", "viz.plots"),
}
"""Packages and modules that only some commands need."""
LIGHT = {
    ("train", "counting", "--steps", "1"): set(),
    ("train", "signal2", "--steps", "1"): set(),
    ("train", "dates", "--model", "transformer", "--steps", "1"): {"babel", "scipy"},  # interval of the alignment
    ("test", "RUN", "--samples", "5"): set(),
    ("examine", "RUN", "--samples", "2"): {"interpret.examination", "scipy"},
    ("explain", "RUN"): set(),
    ("translate", "PAIRS", "3. Mai 1979"): {"babel", "convert.ctranslate2", "tokenizers"},
    ("score", "PAIRS", "--input", "pairs.tsv"): {"babel"},
    ("train", "TRANSLATION"): {"sacrebleu", "lxml", "tokenizers"},
}
"""Command lines, and the modules of the lists above that each command line may import."""
CODE = """
import json, os, sys
# Before the forks, because these imports take seconds; none of them loads a module of the lists.
import torch, tyro, regard.runs.tensor_run, regard.runs.training
from regard.cli import main
for name, words in json.loads(sys.argv[1]).items():
    if pid := os.fork():
        assert os.waitpid(pid, 0)[1] == 0, words
        continue
    try:
        status = main(words)
    except SystemExit as stop:
        status = stop.code
    with open(f"{name}.loaded", "w") as file:
        file.write(" ".join(module for module in sys.modules if sys.modules[module] is not None))
    sys.stdout.flush()
    os._exit(status or 0)
"""
"""Program that runs command lines, each in a fork, and writes the names of the loaded modules to files."""


@pytest.fixture(scope="module")
def loaded(
    trained: regard.AnswerRun, translator: regard.PairRun, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, ...], set[str]]:
    """Return the modules that each command line has loaded."""
    folder = tmp_path_factory.mktemp("startup")
    (folder / "pairs.tsv").write_text("3. Mai 1979\t1979-05-03\n")
    for side in ("source", "target"):
        (folder / side).write_text("".join(f"{side} {number % 7} {number % 3}\n" for number in range(60)))
    text = ["--train", "source", "target", "--valid", "source", "target"]
    named = {"RUN": [str(trained.folder)], "PAIRS": [str(translator.folder)]}
    named["TRANSLATION"] = ["translation", *text, "--vocab_size", "40", "--steps", "1"]
    lines = {
        str(number): [part for word in argv for part in named.get(word, [word])] for number, argv in enumerate(LIGHT)
    }
    done = subprocess.run([sys.executable, "-c", CODE, json.dumps(lines)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    files = [folder / f"{number}.loaded" for number in lines]
    return {argv: set(file.read_text().split()) for argv, file in zip(LIGHT, files, strict=True)}


@pytest.mark.parametrize("argv", LIGHT, ids=" ".join)
def test_commands_import_only_what_they_need(argv: tuple[str, ...], loaded: dict[tuple[str, ...], set[str]]) -> None:
    names = loaded[argv]
    unneeded = {name for name in HEAVY if name in names}
    for name in PARTS:  # modules of Regard, and packages of which a module is loaded
        full = _full_name(name)
        inside = [each for each in names if each.startswith(f"{full}.") and each != "regard_course.cli.learn"]
        if full in names if "." in name else inside:
            unneeded.add(name)
    assert unneeded - LIGHT[argv] == set()


def test_all_parts_exist() -> None:
    assert all(importlib.util.find_spec(_full_name(name)) for name in PARTS)


def _full_name(name: str) -> str:
    return name if name.startswith("regard") else f"regard.{name}"

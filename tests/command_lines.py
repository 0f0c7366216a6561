"""Command lines of all commands, and the folder in which they run."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.german import write

TINY = {"hidden": 8, "heads": 2, "inner": 8, "enc_layers": 1, "dec_layers": 1, "vocab_size": 60, "tokens": 200}
TEXT = "Heute läuft der kleine Hund."
FIRST = "aggregate(select(indices, constant(0)), tokens)"
LINES: dict[str, list[list[str]]] = {
    "train": [["train", "dates", "--steps", "2", "--overwrite"]],
    "test": [["test", "counting", "--samples", "3", "--plot", "page.html"], ["test", "counting", "--plot", "a.png"]],
    "show": [["show", "counting", "--no-browser", "--port", "18137"]],
    "look": [
        ["look", "gpt", "--text", "the cat", "--plot", "b.html"],
        ["look", "models/gone", "--text", "a"],
        ["look", "bert-base-uncased", "--text", "a", "--json", "c.json"],
    ],
    "examine": [["examine", "counting", "--samples", "20"]],
    "circuit": [["circuit", "induction", "--pairs", "2"]],
    "timeline": [["timeline", "counting", "--samples", "20"]],
    "generate": [["generate", "induction", "ABCAB"]],
    "explain": [["explain", "counting"]],
    "prune": [["prune", "counting", "--output", "pruned"]],
    "translate": [["translate", "translation", TEXT], ["translate", "translation", TEXT, "--engine", "regard"]],
    "align": [["align", "translation", "text.de", "text.en"]],
    "score": [["score", "translation", "--input", "pairs.txt"]],
    "compare": [["compare", "counting", "--vary", "hidden=8,9", "--seeds", "2", "--steps", "3"]],
    "card": [["card", "sink", "--steps", "1", "--seeds", "1"]],
    "bench": [["bench", "--methods", "attention", "--models", "counting", "--seeds", "1", "--quick"]],
    "average": [["average", "translation"]],
    "trust": [["trust", "translation"]],
    "learn": [["learn", "--no-browser", "--port", "18138"], ["learn", "--stubs", "stubs"]],
    "check": [["check", "learner.py"]],
    "write": [["write", "program.py", "--puzzle", "first", "--train"], ["write", "first"]],
    "tasks": [["tasks"]],
    "data": [["data", "multi30k", "--url", "http://127.0.0.1:9/"]],
    "clean": [["clean", "text.de", "text.en", "--output", "cleaned"]],
    "export": [
        ["export", "translation", "--to", "ctranslate2", "--output", "ct2"],
        ["export", "translation", "--to", "huggingface", "--output", "hf", "--license", "cc0-1.0"],
    ],
    "import": [["import", "marian", "--examples", "text.de"]],
    "plot": [["plot", "positions", "-o", "positions.png"], ["plot", "heads", "counting"]],
}
"""Command lines that need no connection to another machine, for each command."""


def make_folder(folder: Path) -> Path:
    """Create small runs, texts and programs in a folder."""
    import regard

    small: dict[str, Any] = {"steps": 4, "savepath": folder / "models", "progress": False}
    marian: dict[str, Any] = {"positions": "sinusoidal", "pre_norm": False, "joint": True, "tied": True}
    regard.train("translation", **write(folder), **TINY, **marian, **small)
    regard.train("counting", hidden=8, heads=2, batchsize=4, snapshots=4, **small)
    regard.train("induction", hidden=8, heads=2, **small)
    files = {
        "text.de": f"{TEXT}\nEin Hund.\n",
        "text.en": "The small dog runs today.\nA dog.\n",
        "pairs.txt": f"{TEXT}\tThe small dog runs today.\n",
        "learner.py": "import torch\n\ndef softmax(scores):\n    return torch.softmax(scores, -1)\n",
        "program.py": f"from regard_lab.programs.language import *\nanswer = {FIRST}\n",
    }
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def add_models(folder: Path) -> Path:
    """Add models of other programs, if these programs are installed."""
    if find_spec("transformers"):
        from tests.faults.foreign import KINDS
        from tests.marian import write_marian

        KINDS["decoders"].make(folder / "gpt")
        if find_spec("sentencepiece"):
            write_marian(folder / "marian")
    return folder

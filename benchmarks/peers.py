"""What programs that measure beside peers share: processes of their own, and JoeyNMT's."""

import argparse
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
NEEDS = ("joeynmt==2.3.0", "torch==2.13.0", "importlib_metadata", "sentencepiece==0.2.0")
"""JoeyNMT 2.3 imports the third without asking for it, and fails with newer ones of the last."""
JAX = ("jax==0.10.2", "jaxlib==0.10.2")


def peers_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser of the flags that all programs beside JoeyNMT have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each (default: all cores)")
    parser.add_argument("--joeynmt", type=Path, default=HERE.parent / ".venv" / "joeynmt")
    return parser


def run(command: list[str], threads: int) -> dict[str, Any]:
    """Run a process, without a GPU, and read the JSON of its last line."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def joeynmt_python(folder: Path) -> Path:
    """Make JoeyNMT's virtual environment where it is not there yet; returns its Python."""
    return _python(folder, "JoeyNMT", NEEDS)


def jax_python(folder: Path) -> Path:
    """Make JAX' virtual environment where it is not there yet; returns its Python."""
    return _python(folder, "JAX", JAX)


def _python(folder: Path, name: str, needs: Iterable[str]) -> Path:
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"Making a virtual environment for {name} in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *needs], check=True)
        (folder / "ready").touch()
    return python


def joeynmt_text(folder: Path, split: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Write the text of a split ("train", "dev" or "test") to where `joeynmt_config` says it is."""
    sources, targets = zip(*pairs, strict=True)
    for ending, lines in (("src", sources), ("trg", targets)):
        (folder / f"{split}.{ending}").write_text("".join(f"{line}\n" for line in lines))


def joeynmt_config(folder: Path, threads: int, side: dict[str, Any]) -> dict[str, Any]:
    """Return what all configurations have in common; `side`: how text is cut, on both sides."""
    return {
        "name": folder.name,
        "threads": threads,
        "joeynmt_version": "2.3.0",
        "model_dir": str(folder / "model"),
        "use_cuda": False,
        "random_seed": 0,
        "data": {
            **{split: str(folder / split) for split in ("train", "dev", "test")},
            "dataset_type": "plain",
            "src": {"lang": "src", **side},
            "trg": {"lang": "trg", **side},
        },
    }


def run_joeynmt(python: Path, folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Train or translate as `config` says, and return what joeynmt_peer.py tells."""
    (folder / "config.json").write_text(json.dumps(config))
    return run([str(python), str(HERE / "joeynmt_peer.py"), str(folder)], config["threads"])

"""Run programs of other libraries in separate processes, and JoeyNMT and JAX in separate environments."""

import argparse
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from flags import count

HERE = Path(__file__).parent
NEEDS = ("joeynmt==2.3.0", "torch==2.13.0", "importlib_metadata", "sentencepiece==0.2.0")
"""JoeyNMT 2.3 does not declare importlib_metadata, and fails with newer versions of sentencepiece."""
MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(2**62),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Settings of glibc, as `regard.fast.memory` sets them in Regard's own process."""
JAX = ("jax==0.10.2", "jaxlib==0.10.2")


def peers_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags of all comparisons with JoeyNMT."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--threads", type=count, default=os.cpu_count(), help="threads of each program (default: all cores)"
    )
    parser.add_argument(
        "--joeynmt",
        type=Path,
        default=HERE.parent / ".venv" / "joeynmt",
        help="environment of JoeyNMT, created if it does not exist (default: .venv/joeynmt)",
    )
    return parser


def run(command: list[str], threads: int) -> dict[str, Any]:
    """Run a process without a GPU and with the settings `MALLOC`; return the JSON value of its last line."""
    environment = {**os.environ, **MALLOC, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


def joeynmt_python(folder: Path) -> Path:
    """Return the Python executable of JoeyNMT's virtual environment; create a missing environment."""
    return _python(folder, "JoeyNMT", NEEDS)


def jax_python(folder: Path) -> Path:
    """Return the Python executable of the virtual environment for JAX; create a missing environment."""
    return _python(folder, "JAX", JAX)


def _python(folder: Path, name: str, needs: Iterable[str]) -> Path:
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"Creating a virtual environment for {name} in {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *needs], check=True)
        (folder / "ready").touch()
    return python


def joeynmt_text(folder: Path, split: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Write the text of a split ("train", "dev" or "test") to the file that `joeynmt_config` names."""
    sources, targets = zip(*pairs, strict=True)
    for ending, lines in (("src", sources), ("trg", targets)):
        (folder / f"{split}.{ending}").write_text("".join(f"{line}\n" for line in lines))


def joeynmt_config(folder: Path, threads: int, side: dict[str, Any]) -> dict[str, Any]:
    """Return the settings shared by all configurations; `side` sets the tokenization of both sides."""
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
    """Train or translate with a configuration, and return the result of joeynmt_peer.py."""
    (folder / "config.json").write_text(json.dumps(config))
    return run([str(python), str(HERE / "joeynmt_peer.py"), str(folder)], config["threads"])

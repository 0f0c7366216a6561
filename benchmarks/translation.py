"""Compare the speed of the Transformer on Multi30k with JoeyNMT, Hugging Face, CTranslate2 and a strong loop.

    python benchmarks/translation.py DATA [--parts training search] [--rounds 3] [--steps 100] [--model RUN]

DATA is the folder that `regard data multi30k` creates. All programs use the same subwords, sizes and threads. The
programs run alternately in separate processes with the same settings of the allocator, and the tables show
medians. translation_training.py and translation_search.py define the timed parts; peers.py installs JoeyNMT. The
program needs the extras peers and export.
"""

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import translation_search
import translation_training
from flags import count, existing
from multi30k import Setting, multi30k_parser
from peers import joeynmt_python, run

PARTS: dict[str, Any] = {"training": translation_training, "search": translation_search}


def measure(part: str, python: Path, setting: Setting, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Run all programs alternately; return the measurements of each program by round."""
    measurements: dict[str, list[dict[str, Any]]] = {}
    command = [sys.executable, __file__, str(setting.data), "--steps", str(setting.steps)]
    command += ["--threads", str(setting.threads), "--model", str(setting.model)]
    for _ in range(rounds):
        for name in PARTS[part].PROGRAMS:
            measured = run([*command, "--worker", part, name, str(setting.folder)], setting.threads)
            measurements.setdefault(name, []).append(measured)
        measurements.setdefault("JoeyNMT", []).append(PARTS[part].joeynmt(python, setting))
    return measurements


def main() -> None:
    """Run all measurements, and print a table for each part."""
    parser = multi30k_parser(__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="parts to time (default: both)")
    parser.add_argument("--rounds", type=count, default=3, help="rounds of measurement (default: 3)")
    parser.add_argument("--steps", type=count, default=100, help="number of timed training steps (default: 100)")
    parser.add_argument("--model", type=existing, help="run for translation (default: train a run, half an hour)")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        part, name, folder = args.worker
        if part not in PARTS or name not in PARTS[part].PROGRAMS:
            names = [f"{kind} {program!r}" for kind in PARTS for program in PARTS[kind].PROGRAMS]
            parser.error(f"--worker {part} {name!r}: choose from {', '.join(names)}")
        print(json.dumps(PARTS[part].PROGRAMS[name](setting_of(args, Path(folder)))))
        return
    if args.steps < 3 * translation_training.EVERY:
        parser.error(f"--steps: at least {3 * translation_training.EVERY}, because the first steps are not timed")
    python = joeynmt_python(args.joeynmt)
    print(f"{platform.machine()}, {args.threads} threads, medians of {args.rounds} rounds")
    with tempfile.TemporaryDirectory() as folder:
        setting = setting_of(args, Path(folder))
        for part in args.parts:
            if part == "search" and args.model is None:
                translation_search.train_model(setting)
            print(f"\n{PARTS[part].table(measure(part, python, setting, args.rounds))}")


def setting_of(args: argparse.Namespace, folder: Path) -> Setting:
    """Return the settings for the flags; the default model is in the folder."""
    model = args.model or folder / "model" / "translation"
    return Setting(data=args.data, folder=folder, threads=args.threads, steps=args.steps, model=model)


if __name__ == "__main__":
    main()

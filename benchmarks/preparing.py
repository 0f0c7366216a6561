"""How long a corpus takes to prepare, and how much memory.

    python benchmarks/preparing.py [--pairs 500000] [--cores 1 2]

Writes synthetic pairs to files (those of memory.py), and prepares them with so many cores. Then measures each
stage of a chunk.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from memory import write_pairs

PREPARING = """
import json, resource, sys, time
from pathlib import Path
from regard.data.parallel import ParallelText
from regard.data.prepare import TokenizerConfig, learn_vocabularies, prepare_corpus
text, root = ParallelText(sys.argv[1:3]), Path(sys.argv[3])
begin = time.perf_counter()
cutting = TokenizerConfig(kind="bpe", size=12000, joint=True, lowercase=False)
both = learn_vocabularies(text, cutting, root, progress=False)
learned, before = time.perf_counter(), time.process_time()
prepare_corpus(text, both, root, max_len=256, progress=False)
took, used = time.perf_counter() - learned, [resource.getrusage(who) for who in (0, resource.RUSAGE_CHILDREN)]
print(json.dumps({
    "vocabulary": learned - begin, "corpus": took,
    "cpu": time.process_time() - before, "others": used[1].ru_utime + used[1].ru_stime,
    "memory": [each.ru_maxrss / 1024 for each in used],
}))
"""
"""Prepares a text, and prints seconds, seconds of CPU for the corpus (of the process
and of those that it has started), and peaks of memory in MiB, of the process and of the largest of the others."""


def texts(folder: Path, pairs: int) -> tuple[str, str]:
    """Return synthetic text of so many pairs, written or found in a folder."""
    files = (str(folder / f"{pairs}.source"), str(folder / f"{pairs}.target"))
    return files if all(Path(each).exists() for each in files) else write_pairs(folder, pairs)


def prepare(files: tuple[str, str], root: Path, cores: int) -> dict[str, Any]:
    """Prepare in a process of its own that has so many cores; returns its figures."""
    available = sorted(os.sched_getaffinity(0))[:cores]
    path = os.pathsep.join(each for each in sys.path if each)
    done = subprocess.run(
        [sys.executable, "-c", PREPARING, *files, str(root)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path, "RAYON_NUM_THREADS": str(cores)},
        preexec_fn=lambda: os.sched_setaffinity(0, available),
    )
    return json.loads(done.stdout)


def stages(files: tuple[str, str], root: Path) -> dict[str, float]:
    """Return how long each stage of a chunk takes: seconds of CPU, the median of all chunks but the first ten, in
    which most words are new."""
    import numpy as np

    from regard.data.chunks import read_chunks
    from regard.data.corpus_builder import ChunkEncoder
    from regard.data.parallel import ParallelText
    from regard.data.prepare import TokenizerConfig, learn_vocabularies

    text, cutting = ParallelText(files), TokenizerConfig(kind="bpe", size=12000, joint=True, lowercase=False)
    encoder = ChunkEncoder(learn_vocabularies(text, cutting, root, progress=False), 256, False)
    rows, begin = [], time.process_time()
    for chunk in read_chunks(text):
        times = [begin, time.process_time()]
        chunk.read()
        times.append(time.process_time())
        encoder(chunk)
        begin = time.process_time()
        read, decode, encode = np.diff([*times, begin])
        rows.append((read, decode, encode - decode))
    medians = np.median(rows[10:], axis=0)
    return dict(zip(("read", "decode", "split into tokens"), medians.tolist(), strict=True))


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=[500_000], help="numbers of pairs")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2], help="processes to measure")
    parser.add_argument("--texts", help="folder for the texts, in which they are found again")
    parser.add_argument("--only-whole", action="store_true", help="leave out the stages")
    args = parser.parse_args()
    print("| pairs | MB | cores | vocabulary, s | corpus, s | CPU, s | of others, s | MiB | of another |")
    print("| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for pairs in args.pairs:
        with tempfile.TemporaryDirectory() as name:
            files = texts(Path(args.texts or name), pairs)
            size = sum(Path(file).stat().st_size for file in files) / 1e6
            for cores in args.cores:
                figures = prepare(files, Path(name, str(cores)), cores)
                print(
                    f"| {pairs:,} | {size:,.0f} | {cores} | {figures['vocabulary']:.1f} | "
                    f"{figures['corpus']:.1f} | {figures['cpu']:.1f} | {figures['others']:.1f} | "
                    f"{figures['memory'][0]:,.0f} | {figures['memory'][1]:,.0f} |",
                    flush=True,
                )
            if args.only_whole:
                continue
            times = stages(files, Path(name, "stages"))
            print("per chunk: " + ", ".join(f"{stage} {value * 1000:.1f} ms" for stage, value in times.items()))


if __name__ == "__main__":
    main()

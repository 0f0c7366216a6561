"""Measure time and memory of the preparation of a corpus.

    python benchmarks/corpus_preparation.py [--pairs 500000] [--cores 1 2]

The program writes synthetic pairs to files (see corpus_memory.py), and prepares them with each number of cores.
The program then measures the stages of preparing a chunk.
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

from corpus_memory import write_pairs

PREPARING = """
import json, resource, sys, time
from pathlib import Path
from regard.data.parallel import ParallelText
from regard.data.prepare import TokenizerConfig, learn_vocabularies, prepare_corpus
text, root = ParallelText(sys.argv[1:3]), Path(sys.argv[3])
begin = time.perf_counter()
tokenization = TokenizerConfig(kind="bpe", size=12000, joint=True, lowercase=False)
both = learn_vocabularies(text, tokenization, root, progress=False)
learned, before = time.perf_counter(), time.process_time()
prepare_corpus(text, both, root, max_len=256, progress=False)
took, used = time.perf_counter() - learned, [resource.getrusage(who) for who in (0, resource.RUSAGE_CHILDREN)]
print(json.dumps({
    "vocabulary": learned - begin, "corpus": took,
    "cpu": time.process_time() - before, "others": used[1].ru_utime + used[1].ru_stime,
    "memory": [usage.ru_maxrss / 1024 for usage in used],
}))
"""
"""A program that prepares a text, and prints wall-clock seconds, CPU seconds and peak memory in MiB.

CPU time is for the corpus, in this process and in its child processes. Memory is for this process and for its
largest child process.
"""


def texts(folder: Path, pairs: int) -> tuple[str, str]:
    """Return the files of a synthetic text with the given number of pairs; write missing files."""
    files = (str(folder / f"{pairs}.source"), str(folder / f"{pairs}.target"))
    return files if all(Path(file).exists() for file in files) else write_pairs(folder, pairs)


def prepare(files: tuple[str, str], root: Path, cores: int) -> dict[str, Any]:
    """Prepare a corpus in a separate process with the given number of cores; return its figures."""
    available = sorted(os.sched_getaffinity(0))[:cores]
    path = os.pathsep.join(entry for entry in sys.path if entry)
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
    """Return the median CPU time of each stage of a chunk, in seconds.

    The first ten chunks are excluded, because most of their words are new.
    """
    import numpy as np

    from regard.data.corpus import ChunkEncoder, read_chunks
    from regard.data.parallel import ParallelText
    from regard.data.prepare import TokenizerConfig, learn_vocabularies

    text, tokenization = ParallelText(files), TokenizerConfig(kind="bpe", size=12000, joint=True, lowercase=False)
    encoder = ChunkEncoder(learn_vocabularies(text, tokenization, root, progress=False), 256, False)
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
    """Run all measurements, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=[500_000], help="numbers of pairs")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2], help="numbers of cores")
    parser.add_argument("--texts", help="folder of the texts; existing texts are reused")
    parser.add_argument("--only-whole", action="store_true", help="skip the measurement of the stages")
    args = parser.parse_args()
    print("| pairs | MB | cores | vocabulary, s | corpus, s | CPU, s | children, s | MiB | largest child, MiB |")
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

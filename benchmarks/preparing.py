"""How long a corpus takes to prepare, stage by stage, and what more cores would make of it.

    python benchmarks/preparing.py [--pairs 500000] [--cores 1 2] [--before FOLDER]

Writes synthetic pairs to files (those of memory.py), and prepares them: with so many cores; killed halfway and
gone on with; and, where the source of an older version of Regard is given (`--before`), with that. Then
measures each stage by itself, and works out from these times alone, for a text of a hundred times the length,
shard by shard, how long 1 to 64 cores take.
"""

import argparse
import heapq
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from memory import write_pairs

START = 0.5
"""Seconds in which processes start."""
SIMULATED = (1, 2, 4, 8, 16, 32, 64)
PREPARING = """
import json, resource, sys, time
from pathlib import Path
from regard.data.parallel import ParallelText
from regard.data.prepare import CorpusPreparation, TokenizerConfig, learn_vocabularies
text, root = ParallelText(sys.argv[1:3]), Path(sys.argv[3])
begin = time.perf_counter()
cutting = TokenizerConfig(kind="bpe", size=12000, joint=True, lowercase=False)
both = learn_vocabularies(text, cutting, root, progress=False)
learned, before = time.perf_counter(), time.process_time()
CorpusPreparation(text, both, root, max_len=256, progress=False).corpus()
took, used = time.perf_counter() - learned, [resource.getrusage(who) for who in (0, resource.RUSAGE_CHILDREN)]
print(json.dumps({
    "vocabulary": learned - begin, "corpus": took,
    "cpu": time.process_time() - before, "others": used[1].ru_utime + used[1].ru_stime,
    "memory": [each.ru_maxrss / 1024 for each in used],
}))
"""
"""Prepares a text as any version of Regard does, and tells seconds, seconds of CPU for the corpus (of the process
and of those that it has started), and peaks of memory in MiB, of the process and of the largest of the others."""


def texts(folder: Path, pairs: int) -> tuple[str, str]:
    """Return synthetic text of so many pairs, written or found in a folder."""
    files = (str(folder / f"{pairs}.source"), str(folder / f"{pairs}.target"))
    return files if all(Path(each).exists() for each in files) else write_pairs(folder, pairs)


def prepare(files: tuple[str, str], root: Path, cores: int, source: str | None = None) -> dict[str, Any]:
    """Prepare in a process of its own that has so many cores; returns its figures."""
    available = sorted(os.sched_getaffinity(0))[:cores]
    path = source or os.pathsep.join(each for each in sys.path if each)
    done = subprocess.run(
        [sys.executable, "-c", PREPARING, *files, str(root)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path, "RAYON_NUM_THREADS": str(cores)},
        preexec_fn=lambda: os.sched_setaffinity(0, available),
    )
    return json.loads(done.stdout)


def killed(files: tuple[str, str], root: Path, seconds: float) -> tuple[int, float]:
    """Prepare, kill that so many seconds after the first shard, and go on; returns how many shards had been made,
    and how long the rest took."""
    child = subprocess.Popen(
        [sys.executable, "-c", PREPARING, *files, str(root)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    )
    while not list(root.glob("corpus-*/shard-*.bin")):
        time.sleep(0.05)
    time.sleep(seconds)
    child.send_signal(signal.SIGKILL)
    child.wait()
    time.sleep(1)  # in which those that it started end
    made = len(list(root.glob("corpus-*/shard-*.bin")))
    return made, prepare(files, root, 2)["corpus"]


def stages(files: tuple[str, str], root: Path) -> dict[str, Any]:
    """Return how long each stage of a shard takes, once words are known: seconds of CPU, so that what else the
    machine does counts for little, the median of all shards."""
    import numpy as np

    from regard.data.chunks import find_chunks, read_chunks
    from regard.data.corpus_builder import ShardBuilder, corpus_key
    from regard.data.parallel import ParallelText
    from regard.data.prepare import TokenizerConfig, learn_vocabularies
    from regard.data.word_cache import corpus_tokenizer

    text, cutting = ParallelText(files), TokenizerConfig(kind="bpe", size=12000, joint=True, lowercase=False)
    both = learn_vocabularies(text, cutting, root, progress=False)
    begin = time.process_time()
    count, spans = find_chunks(text)
    found = {"look through": [(time.process_time() - begin) / count]}
    maker, cutter = ShardBuilder(root, both, 256, False, corpus_key(text, both, 256)), corpus_tokenizer(both[0])
    for number, stretch in enumerate(read_chunks(text, ranges=spans)):
        times = [time.process_time()]
        sentences = stretch.read()
        times.append(time.process_time())
        for side in (sentences.sources, sentences.targets):
            cutter(side)
        times.append(time.process_time())
        maker((number, stretch))
        times.append(time.process_time())
        read, cut, whole = np.diff(times)
        for name, value in (("read", read), ("cut", cut), ("write", max(whole - read - cut, 0.0))):
            found.setdefault(name, []).append(value)
    return {name: float(np.median(values)) for name, values in found.items()}


def simulate(shards: int, times: dict[str, float], cores: int, start: float) -> float:
    """Return how long so many cores take for so many shards: one process goes through the text first, then each
    stretch goes to whoever is idle first; `start`: of the processes, in seconds."""
    place, work = times["look through"] * shards, times["read"] + times["cut"] + times["write"]
    idle = [place + start] * cores
    heapq.heapify(idle)
    for _ in range(shards):
        heapq.heapreplace(idle, idle[0] + work)
    return max(idle)


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, nargs="+", default=[500_000], help="numbers of pairs")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2], help="processes to measure")
    parser.add_argument("--before", help="source folder of an older version, measured beside")
    parser.add_argument("--texts", help="folder for the texts, in which they are found again")
    parser.add_argument("--only-whole", action="store_true", help="leave out the kill, the stages and the model")
    args = parser.parse_args()
    print(
        "| pairs | MB | version, cores | vocabulary, s | corpus, s | CPU, s | of others, s | MiB | of another |"
    )
    print("| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for pairs in args.pairs:
        with tempfile.TemporaryDirectory() as name:
            files = texts(Path(args.texts or name), pairs)
            size = sum(Path(file).stat().st_size for file in files) / 1e6
            contenders = [("before", args.before, max(args.cores))] if args.before else []
            for which, source, cores in [*contenders, *(("now", None, each) for each in args.cores)]:
                found = prepare(files, Path(name, f"{which}-{cores}"), cores, source)
                print(
                    f"| {pairs:,} | {size:,.0f} | {which}, {cores} | {found['vocabulary']:.1f} | "
                    f"{found['corpus']:.1f} | {found['cpu']:.1f} | {found['others']:.1f} | "
                    f"{found['memory'][0]:,.0f} | {found['memory'][1]:,.0f} |",
                    flush=True,
                )
            if args.only_whole:
                continue
            shards = -(-pairs // 100_000)
            made, rest = killed(files, Path(name, "killed"), 1.0)
            print(f"\nkilled when {made} of {shards} shards were there: the rest took {rest:.1f} s")
            times = stages(files, Path(name, "stages"))
            print("per shard of 100,000 pairs: " + ", ".join(f"{k} {v * 1000:.0f} ms" for k, v in times.items()))
            alone = simulate(shards * 100, times, 1, 0.0)
            print(
                "\n| cores | simulated, pairs/s | to one core | in the best case |\n| ---: | ---: | ---: | ---: |"
            )
            for cores in SIMULATED:
                took = simulate(shards * 100, times, cores, 0.5)
                print(f"| {cores} | {shards * 100 * 100_000 / took:,.0f} | {alone / took:.1f} | {cores} |")


if __name__ == "__main__":
    main()

"""Compare the speed and translations of Regard's engines with CTranslate2 alone.

    python benchmarks/translation_engines.py DATA --model RUN [--rounds 3]

DATA is the folder that `regard data multi30k` creates; RUN is a Transformer that was trained on this text. The
engines are the search of Regard, the engine ctranslate2 of `run.translate`, and CTranslate2 alone with the same
files. All engines translate test_2016_flickr from text to text with the same number of threads and a length
penalty of 1. The engines run alternately in one process, and the table shows medians. Ratios compare wall-clock
and processor times with those of CTranslate2 alone in the same precision. The second table compares the
log-probabilities of given pairs. The program needs the extra export.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from flags import count, existing, multi30k
from markdown_tables import markdown
from multi30k import BATCH, load_run, texts

from regard.fast.memory import keep_memory

BEAMS = (1, 5)
PENALTY = 1.0
TIE = 1e-4
"""Largest difference between the scores of two translations that count as a tie."""

HEADS = (", sentences/s", ", ratio", ", processor ms per sentence", ", ratio")
PEERS = {
    "Regard, own search": "CTranslate2 float32 alone",
    "Regard, CTranslate2 float32": "CTranslate2 float32 alone",
    "Regard, CTranslate2 int8": "CTranslate2 int8 alone",
}
"""Baseline of each engine."""
Result = TypeVar("Result")
Translate = Callable[[list[str], int], list[str]]
"""A function from sources and a beam size to translations."""


def through_regard(run: Any, **engine: str) -> Translate:
    """Translate with `run.translate`."""
    return lambda sources, beam: run.translate(sources, beam=beam, length_penalty=PENALTY, batchsize=BATCH, **engine)


def ctranslate2_alone(run: Any, precision: str, threads: int) -> Translate:
    """Translate with CTranslate2 alone and parallel batches."""
    import ctranslate2
    import tokenizers
    import torch

    [folder] = (run.folder / "engines").glob("ctranslate2-*")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "source.json"))
    translator = ctranslate2.Translator(str(folder), compute_type=precision, inter_threads=threads, intra_threads=1)
    torch.set_num_threads(threads)  # which the constructor changes

    def translate(sources: list[str], beam: int) -> list[str]:
        tokens = [encoding.tokens for encoding in tokenizer.encode_batch(sources)]
        results = translator.translate_batch(
            tokens, beam_size=beam, max_batch_size=BATCH, disable_unk=True, length_penalty=PENALTY
        )
        return ["".join(result.hypotheses[0]).replace("▁", " ").strip() for result in results]

    return translate


def engines(run: Any, threads: int) -> dict[str, Translate]:
    """Return the engines by name."""
    run.translate(["ein hund"], engine="ctranslate2")  # converts the model
    programs = {"Regard, own search": through_regard(run)}
    for precision in ("float32", "int8"):
        programs[f"Regard, CTranslate2 {precision}"] = through_regard(run, engine="ctranslate2", precision=precision)
        programs[f"CTranslate2 {precision} alone"] = ctranslate2_alone(run, precision, threads)
    return programs


class Timed(NamedTuple):
    """Mean time per sentence."""

    wall: float
    """Milliseconds of wall-clock time."""
    processor: float
    """Processor time of all threads and forks, which other programs affect less than wall-clock time."""


def timed(work: Callable[[], Result], count: int) -> tuple[Timed, Result]:
    """Return the time per sentence of `work` on `count` sentences, and its result."""
    began, busy = time.perf_counter(), sum(os.times()[:4])
    result = work()
    wall, processor = time.perf_counter() - began, sum(os.times()[:4]) - busy
    return Timed(1000 * wall / count, 1000 * processor / count), result


def cells(mine: list[Timed], peer: list[Timed] | None) -> list[str]:
    """Return median speeds and their ratios to the baseline, in wall-clock and processor time."""
    row = []
    for index, form in enumerate((lambda time: f"{1000 / time:,.0f}", lambda time: f"{time:.2f}")):
        middle = statistics.median(timing[index] for timing in mine)
        baseline = None if peer is None else statistics.median(timing[index] for timing in peer)
        row += [form(middle), "" if baseline is None else f"{baseline / middle:.2f}"]
    return row


def speeds(run: Any, sources: list[str], references: list[str], threads: int, rounds: int) -> str:
    """Return the table of speeds: medians of all rounds, after a short round to warm up."""
    from regard.evaluation.bleu import quality

    translate = engines(run, threads)
    timings: dict[tuple[str, int], list[Timed]] = {(name, beam): [] for name in translate for beam in BEAMS}
    scores = {}
    for turn in range(rounds + 1):
        for name, beam in timings:
            texts = sources if turn else sources[: 2 * BATCH]
            took, answers = timed(lambda: translate[name](texts, beam), len(texts))  # noqa: B023
            if turn:
                timings[name, beam].append(took)
                lowercase = run.task.config.lowercase
                scores[name, beam] = quality(answers, references[: len(answers)], lowercase=lowercase).main
    rows = []
    for name in translate:
        row = [name]
        for beam in BEAMS:
            peer = timings.get((PEERS.get(name, ""), beam))
            row += [*cells(timings[name, beam], peer), f"{scores[name, beam]:.1f}"]
        rows.append(row)
    heads = [f"{name}{column}" for name in ("greedy", "beam 5") for column in (*HEADS, ", BLEU")]
    return markdown(["program", *heads], rows)


def scoring(run: Any, pairs: list[tuple[str, str]], threads: int, rounds: int) -> str:
    """Return the table of the speed of computing log-probabilities of given pairs."""
    import ctranslate2
    import tokenizers

    [folder] = (run.folder / "engines").glob("ctranslate2-*")
    source, target = (tokenizers.Tokenizer.from_file(str(folder / f"{side}.json")) for side in ("source", "target"))
    peer = ctranslate2.Translator(str(folder), inter_threads=threads, intra_threads=1)

    def score_alone() -> Any:
        both = zip(*pairs, strict=True)
        cut = [
            [encoding.tokens for encoding in tokenizer.encode_batch(list(side))]
            for tokenizer, side in zip((source, target), both, strict=True)
        ]
        return peer.score_batch(*cut, max_batch_size=BATCH)

    programs: dict[str, Callable[[], Any]] = {
        "Regard, score": lambda: run.score(pairs, batchsize=BATCH),
        "CTranslate2 float32 alone": score_alone,
    }
    timings: dict[str, list[Timed]] = {name: [] for name in programs}
    for turn in range(rounds + 1):
        for name, work in programs.items():
            took, _ = timed(work, len(pairs))
            if turn:
                timings[name].append(took)
    baseline = timings["CTranslate2 float32 alone"]
    rows = [[name, *cells(times, None if times is baseline else baseline)] for name, times in timings.items()]
    return markdown(["program", *(f"scoring{column}" for column in HEADS)], rows)


def agreement(run: Any, sources: list[str]) -> str:
    """Return the table of translations that equal those of Regard's search, and of ties."""
    rows = []
    for beam in BEAMS:
        options = {"beam": beam, "length_penalty": PENALTY}
        ours = [best for best, *_ in run.search(sources, **options)]
        for precision in ("float32", "int8"):
            theirs = [best for best, *_ in run.search(sources, **options, engine="ctranslate2", precision=precision)]
            pairs = list(zip(ours, theirs, strict=True))
            different = [(own, other) for own, other in pairs if own.tokens != other.tokens]
            ties = sum(abs(own.score - other.score) < TIE for own, other in different)
            largest = max(abs(own.log_probability - other.log_probability) for own, other in pairs)
            rows.append([str(beam), precision, f"{1 - len(different) / len(pairs):.1%}", str(ties), f"{largest:.1g}"])
    return markdown(["beam", "precision", "equal translations", "ties among the others", "largest difference"], rows)


def main() -> None:
    """Run all measurements, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=multi30k, help="folder of Multi30k's files")
    parser.add_argument("--model", type=existing, required=True, help="run to translate with")
    parser.add_argument("--rounds", type=count, default=3, help="rounds of measurement (default: 3)")
    args = parser.parse_args()
    keep_memory()  # as `regard translate` does, for all programs
    import torch

    run, pairs = load_run(args.model), texts(args.data, "test")
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    threads = torch.get_num_threads()
    print(f"{platform.machine()}, {threads} threads, load {os.getloadavg()[0]:.1f}, medians of {args.rounds} rounds")
    print(f"\n{speeds(run, sources, references, threads, args.rounds)}")
    print(f"\n{scoring(run, pairs, threads, args.rounds)}\n\n{agreement(run, sources)}")


if __name__ == "__main__":
    main()

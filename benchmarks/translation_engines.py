"""How fast `regard translate`'s engines are beside CTranslate2 itself, and whether they translate alike.

    python benchmarks/translation_engines.py DATA --model RUN [--rounds 3]

DATA: the folder of `regard data multi30k`; RUN: a Transformer that was trained on it. All search
test_2016_flickr with as many threads and a length penalty of 1: our own search, the engine ctranslate2 as
`run.translate` calls it, and CTranslate2 alone on the same files, from text to text; turn by turn, in one
process, medians. The ratio is that to CTranslate2 alone in the same precision, by the clock and by processor
time. Then the log-probabilities of the pairs. Needs the extra export.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from markdown_tables import markdown
from multi30k import BATCH, load_run, texts

BEAMS = (1, 5)
PENALTY = 1.0
TIE = 1e-4
"""Difference of scores of two answers that come out in any order."""

HEADS = (", sentences/s", ", ratio", ", processor ms a sentence", ", ratio")
PEERS = {
    "Regard, own search": "CTranslate2 float32 alone",
    "Regard, CTranslate2 float32": "CTranslate2 float32 alone",
    "Regard, CTranslate2 int8": "CTranslate2 int8 alone",
}
"""Beside whom each stands."""
Found = TypeVar("Found")
Translate = Callable[[list[str], int], list[str]]
"""From sources and a number of beams to translations."""


def through_regard(run: Any, **engine: str) -> Translate:
    """Translate as `run.translate` does."""
    return lambda sources, beam: run.translate(
        sources, beam=beam, length_penalty=PENALTY, batchsize=BATCH, **engine
    )


def alone(run: Any, precision: str, threads: int) -> Translate:
    """Translate with CTranslate2 as its users do, batches side by side."""
    import ctranslate2
    import tokenizers

    [folder] = (run.folder / "engines").glob("ctranslate2-*")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "source.json"))
    translator = ctranslate2.Translator(
        str(folder), compute_type=precision, inter_threads=threads, intra_threads=1
    )

    def translate(sources: list[str], beam: int) -> list[str]:
        tokens = [each.tokens for each in tokenizer.encode_batch(sources)]
        found = translator.translate_batch(
            tokens, beam_size=beam, max_batch_size=BATCH, disable_unk=True, length_penalty=PENALTY
        )
        return ["".join(each.hypotheses[0]).replace("▁", " ").strip() for each in found]

    return translate


def contestants(run: Any, threads: int) -> dict[str, Translate]:
    """Return all that translate, by name."""
    run.translate(["ein hund"], engine="ctranslate2")  # converts the model
    found = {"Regard, own search": through_regard(run)}
    for precision in ("float32", "int8"):
        found[f"Regard, CTranslate2 {precision}"] = through_regard(run, engine="ctranslate2", precision=precision)
        found[f"CTranslate2 {precision} alone"] = alone(run, precision, threads)
    return found


class Timed(NamedTuple):
    """What each of many sentences took, a mean."""

    wall: float
    """Milliseconds by the clock."""
    processor: float
    """Of the processor, in all threads: others disturb it less."""


def timed(work: Callable[[], Found], count: int) -> tuple[Timed, Found]:
    """Return what each of `count` sentences takes, and what was found."""
    began, busy = time.perf_counter(), time.process_time()
    found = work()
    wall, processor = time.perf_counter() - began, time.process_time() - busy
    return Timed(1000 * wall / count, 1000 * processor / count), found


def cells(mine: list[Timed], peer: list[Timed] | None) -> list[str]:
    """Return medians, and how many times as fast as the peer that is, by the clock and by processor time."""
    found = []
    for index, shown in enumerate((lambda each: f"{1000 / each:,.0f}", lambda each: f"{each:.2f}")):
        middle = statistics.median(each[index] for each in mine)
        other = None if peer is None else statistics.median(each[index] for each in peer)
        found += [shown(middle), "" if other is None else f"{other / middle:.2f}"]
    return found


def speeds(run: Any, sources: list[str], references: list[str], threads: int, rounds: int) -> str:
    """Return the table of speeds, medians of all rounds after a short one that warms up."""
    from regard.evaluation import bleu

    each = contestants(run, threads)
    found: dict[tuple[str, int], list[Timed]] = {(name, beam): [] for name in each for beam in BEAMS}
    scores = {}
    for turn in range(rounds + 1):
        for name, beam in found:
            given = sources if turn else sources[: 2 * BATCH]
            took, answers = timed(lambda: each[name](given, beam), len(given))  # noqa: B023
            if turn:
                found[name, beam].append(took)
                lowercase = run.task.config.lowercase
                scores[name, beam] = bleu(answers, references[: len(answers)], lowercase=lowercase)
    rows = []
    for name in each:
        row = [name]
        for beam in BEAMS:
            peer = found.get((PEERS.get(name, ""), beam))
            row += [*cells(found[name, beam], peer), f"{scores[name, beam]:.1f}"]
        rows.append(row)
    heads = [f"{name}{what}" for name in ("greedy", "beam 5") for what in (*HEADS, ", BLEU")]
    return markdown(["program", *heads], rows)


def scoring(run: Any, pairs: list[tuple[str, str]], threads: int, rounds: int) -> str:
    """Return the table of how fast log-probabilities of given pairs are found."""
    import ctranslate2
    import tokenizers

    [folder] = (run.folder / "engines").glob("ctranslate2-*")
    source, target = (
        tokenizers.Tokenizer.from_file(str(folder / f"{each}.json")) for each in ("source", "target")
    )
    peer = ctranslate2.Translator(str(folder), inter_threads=threads, intra_threads=1)

    def alone() -> Any:
        both = zip(*pairs, strict=True)
        cut = [
            [each.tokens for each in one.encode_batch(list(texts))]
            for one, texts in zip((source, target), both, strict=True)
        ]
        return peer.score_batch(*cut, max_batch_size=BATCH)

    programs: dict[str, Callable[[], Any]] = {
        "Regard, score": lambda: run.score(pairs, batchsize=BATCH),
        "CTranslate2 float32 alone": alone,
    }
    found: dict[str, list[Timed]] = {name: [] for name in programs}
    for turn in range(rounds + 1):
        for name, work in programs.items():
            took, _ = timed(work, len(pairs))
            if turn:
                found[name].append(took)
    last = found["CTranslate2 float32 alone"]
    rows = [[name, *cells(each, None if each is last else last)] for name, each in found.items()]
    return markdown(["program", *(f"scoring{what}" for what in HEADS)], rows)


def agreement(run: Any, sources: list[str]) -> str:
    """Return the table of how many translations are those of our own search, and of the ties among the rest."""
    rows = []
    for beam in BEAMS:
        options = {"beam": beam, "length_penalty": PENALTY}
        ours = [best for best, *_ in run.search(sources, **options)]
        for precision in ("float32", "int8"):
            theirs = [
                best for best, *_ in run.search(sources, **options, engine="ctranslate2", precision=precision)
            ]
            pairs = list(zip(ours, theirs, strict=True))
            others = [(one, other) for one, other in pairs if one.tokens != other.tokens]
            ties = sum(abs(one.score - other.score) < TIE for one, other in others)
            apart = max(abs(one.log_probability - other.log_probability) for one, other in pairs)
            rows.append([str(beam), precision, f"{1 - len(others) / len(pairs):.1%}", str(ties), f"{apart:.1g}"])
    return markdown(["beam", "precision", "the same", "of the rest, ties", "log-probabilities within"], rows)


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--model", type=Path, required=True, help="run to translate with")
    parser.add_argument("--rounds", type=int, default=3, help="times each translates (default: 3)")
    args = parser.parse_args()
    import torch

    run, pairs = load_run(args.model), texts(args.data, "test")
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    threads = torch.get_num_threads()
    print(
        f"{platform.machine()}, {threads} threads, load {os.getloadavg()[0]:.1f}, medians of {args.rounds} rounds"
    )
    print(f"\n{speeds(run, sources, references, threads, args.rounds)}")
    print(f"\n{scoring(run, pairs, threads, args.rounds)}\n\n{agreement(run, sources)}")


if __name__ == "__main__":
    main()

"""Train the models of docs/dev/results/translation.md with several seeds, and write the tables.

    python benchmarks/translation_results.py DATA [--runs comparisons/translation] [--seeds 3]

DATA is the folder that `regard data multi30k` creates. The models translate in both directions and in lower
case. Models are selected on val and evaluated once on test_2016_flickr with a beam of 5. Other test sets in the
folder (test_NAME.de.gz and test_NAME.en.gz) are also reported; they were never used for selection. The program
writes the table of docs/dev/results/translation.md and the table of docs/explanation/results.md. Results are
stored in docs/dev/results/translation-results.json and not measured again; interrupted training runs continue.
The program needs the extra peers for the tokenizer of published figures.
"""

import argparse
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from markdown_tables import RESULTS, markdown, write_tables
from multi30k import best_validation, files, train
from stored_measurements import Flags, Results, key_of, measure_missing

from regard.data.parallel import ParallelText
from regard.runs.sequence_run import TranslationRun

MODELS: dict[str, Flags] = {
    "Transformer, tiny, the default": {"model": "transformer", "dropout": 0.2, "positions": "rotary"},
    "tiny Transformer with R-Drop, sinusoidal positions": {"model": "transformer", "dropout": 0.2, "r_drop": 3.0},
    "tiny Transformer with R-Drop, rotary positions": {
        "model": "transformer",
        "dropout": 0.2,
        "r_drop": 3.0,
        "positions": "rotary",
    },
    "recurrent, general score, to the output layer": {"model": "recurrent", "hidden": 256, "lr": 0.002},
}
"""Flags of each model."""
DEFAULT, TRANSFORMER, ROTARY, RECURRENT = MODELS
GERMAN_ENGLISH, ENGLISH_GERMAN = "German to English", "English to German"
DIRECTIONS = {GERMAN_ENGLISH: ("de", "en"), ENGLISH_GERMAN: ("en", "de")}
ROWS = [
    (GERMAN_ENGLISH, DEFAULT, 4000),
    (GERMAN_ENGLISH, TRANSFORMER, 7000),
    (GERMAN_ENGLISH, ROTARY, 7000),
    (GERMAN_ENGLISH, RECURRENT, 6000),
    (ENGLISH_GERMAN, DEFAULT, 4000),
    (ENGLISH_GERMAN, TRANSFORMER, 7000),
    (ENGLISH_GERMAN, TRANSFORMER, 9000),
    (ENGLISH_GERMAN, ROTARY, 7000),
    (ENGLISH_GERMAN, RECURRENT, 6000),
]
"""Direction, model and number of steps of each training run."""


def flags_of(direction: str, model: str, steps: int, seed: int) -> Flags:
    """Return the flags that identify a training run: direction, model, steps and seed."""
    return {"direction": direction, **MODELS[model], "steps": steps, "seed": seed}


def measure(data: Path, runs: Path, job: Flags) -> dict[str, Any]:
    """Train a model or continue a training run, and test the model on the test text."""
    flags = {"positions": "sinusoidal", **job} if job["model"] == "transformer" else dict(job)
    languages = DIRECTIONS[flags.pop("direction")]
    return measure_run(train(data, runs, languages, flags), files(data, languages))


def measure_run(run: TranslationRun, text: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the quality of a run on val and on the test text."""
    report = run.test(text["test"])
    scores = {name: value for name, value in vars(report.quality).items() if name != "signatures"}
    return {
        "steps": run.step,
        "val_greedy": best_validation(run),
        "val": run.test(text["valid"]).quality.bleu_lowercase,
        **scores,
        "others": {name: run.test(pair).quality.bleu_lowercase for name, pair in other_tests(text["test"]).items()},
        "bleu_tokenised": tokenised(report.translations, text["test"]),
        "signatures": report.quality.signatures,
    }


def other_tests(test: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """Return the source and target files of other test sets in the same folder, by name."""
    source, target = map(Path, test)
    tests = {}
    for path in sorted(source.parent.glob(f"test_*{''.join(source.suffixes)}")):
        name = path.name.removesuffix("".join(source.suffixes))
        pair = (path, path.with_name(name + "".join(target.suffixes)))
        if path != source and pair[1].exists():
            tests[name] = (str(pair[0]), str(pair[1]))
    return tests


def tokenised(translations: list[str], files: tuple[str, str]) -> float:
    """Return BLEU on Moses' tokens in lower case, as in papers on Multi30k; `files` are source and target."""
    from sacrebleu.metrics.bleu import BLEU
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    language = Path(files[1]).suffixes[-2].removeprefix(".")
    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    hypotheses, references = (
        [tokenizer.tokenize(normalizer.normalize(line), return_str=True, escape=False) for line in text]
        for text in (translations, [target for _, target in ParallelText(files)])
    )
    metric = BLEU(lowercase=True, tokenize="none", force=True)
    return metric.corpus_score(hypotheses, [references]).score


def table(results: Results, seeds: int) -> str:
    """Return a row for each measured entry of `ROWS`, with mean, minimum and maximum over the seeds."""
    body = []
    others = sorted({name for row in results.values() for name in row.get("others", {})})
    for row in ROWS:
        keys = [key_of(flags_of(*row, seed)) for seed in range(seeds)]
        measured = [results[key] for key in keys if key in results]
        if measured:
            direction, model, steps = row
            cells = [_cell([row[name] for row in measured]) for name in QUALITIES]
            gap = statistics.mean(row["bleu_lowercase"] - row["val"] for row in measured)
            for name in others:
                values = [row["others"][name] for row in measured if name in row.get("others", {})]
                cells.append(_cell(values) if values else "")
            body.append([direction, model, f"{steps:,}", str(len(measured)), *cells, f"{gap:+.1f}"])
    return markdown(["direction", "model", "steps", "seeds", *QUALITIES.values(), *others, "test minus val"], body)


def short_table(results: Results, seeds: int) -> str:
    """Return BLEU on the test text: one row for each model and number of steps, one column for each
    direction."""
    trainings = sorted({row[1:] for row in ROWS}, key=lambda row: (list(MODELS).index(row[0]), row[1]))
    body = []
    for model, steps in trainings:
        cells = []
        for direction in DIRECTIONS:
            keys = [key_of(flags_of(direction, model, steps, seed)) for seed in range(seeds)]
            values = [results[key]["bleu_lowercase"] for key in keys if key in results]
            cells.append(f"{statistics.mean(values):.1f}" if values else "")
        body.append([model, f"{steps:,}", *cells])
    return markdown(["model", "steps", *DIRECTIONS], body)


QUALITIES = {
    "val_greedy": "val, greedy",
    "val": "val, beam of 5",
    "bleu_lowercase": "test",
    "bleu_tokenised": "test, Moses tokens",
    "chrf": "test chrF",
}


def _cell(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> None:
    """Train the missing runs, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of Multi30k's files")
    parser.add_argument("--runs", type=Path, default=Path("comparisons/translation"), help="folder of runs")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    jobs = [flags_of(*row, seed) for row in ROWS for seed in range(args.seeds)]
    work = partial(measure, args.data, args.runs)
    results = measure_missing(RESULTS / "translation-results.json", work, jobs)
    write_tables({"translation": table(results, args.seeds), "translation in short": short_table(results, args.seeds)})


if __name__ == "__main__":
    main()

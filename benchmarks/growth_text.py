"""Growth with the size of a text, for growth.py: corpora, glossaries, lines of `regard translate`."""

import contextlib
import io
from functools import cache, partial
from pathlib import Path
from typing import Any

from corpus_memory import write_pairs
from growth import Growth, Work, spread_sizes

import regard
from regard.cli import translate
from regard.data.buckets import Buckets
from regard.data.corpus import LINES as LINES_PER_CHUNK, POOL, SEGMENT, open_corpus
from regard.data.parallel import ParallelText, parse_glossary
from regard.data.prepare import TokenizerConfig, learn_vocabularies, prepare_corpus
from regard.decoding.controls import Controls

PAIRS = spread_sizes(1000, 100_000, 5)
TERMS = spread_sizes(100, 10_000)
LINES = spread_sizes(30, 3000)
SENTENCES = 20
TOKENS = 4096


def text_growths() -> list[Growth]:
    """Return all growths with the size of a text."""
    corpus: dict[str, Any] = {"group": "text", "panel": "corpus", "size": "sentence pairs", "sizes": PAIRS}
    glossary: dict[str, Any] = {"group": "text", "panel": "glossary", "size": "terms", "sizes": TERMS}
    return [
        Growth(**corpus, name="preparation", prepare=prepare_text, demanded=float),
        Growth(**corpus, name="first batch of a training", prepare=first_batch, demanded=pool),
        Growth(**corpus, name="memory of the preparation", prepare=prepare_text, demanded=chunk, unit="MiB"),
        Growth(**corpus, name="memory of the first batch", prepare=first_batch, demanded=pool, unit="MiB"),
        Growth(**glossary, name="reading", prepare=read_terms, demanded=float),
        Growth(**glossary, name="terms of 20 sentences", prepare=find_terms, demanded=constant),
        Growth(
            group="text",
            panel="translation",
            name="regard translate",
            size="lines",
            sizes=LINES,
            prepare=translate_lines,
            demanded=float,
        ),
    ]


def constant(size: int) -> float:
    """Return the demand of a task that does not depend on the size."""
    del size
    return 1.0


def chunk(pairs: int) -> float:
    """Return the pairs in memory during a preparation."""
    return float(min(pairs, LINES_PER_CHUNK))


def pool(pairs: int) -> float:
    """Return the pairs that are read for the first batch."""
    return float(min(pairs, POOL * SEGMENT))


def prepare_text(pairs: int, folder: Path) -> Work:
    """Return the preparation of a corpus, with a vocabulary that is learned before."""
    text = ParallelText(write_pairs(folder, pairs))
    # All sizes have the same vocabulary, because the time of a sentence depends on it.
    vocabularies = learn_vocabularies(_small_text(folder), _tokenizer(), folder / "words", progress=False)
    roots = (folder / str(number) for number in range(1_000_000))

    def work() -> Any:
        return prepare_corpus(text, vocabularies, next(roots), max_len=256, progress=False)

    return work


def _small_text(folder: Path) -> ParallelText:
    (folder / "small").mkdir()
    return ParallelText(write_pairs(folder / "small", 1000))


def _tokenizer() -> TokenizerConfig:
    return TokenizerConfig(kind="bpe", size=1000, joint=True, lowercase=False)


def first_batch(pairs: int, folder: Path) -> Work:
    """Return the opening of a corpus and the draw of a batch."""
    prepare_text(pairs, folder)()
    [prepared] = (folder / "0").glob("corpus-*")
    return lambda: Buckets(open_corpus(prepared), TOKENS, seed=0).draw()


def read_terms(terms: int, folder: Path) -> Work:
    """Return the reading of a glossary."""
    del folder
    lines = [f"{source}\t{target}" for source, target in _glossary(terms).items()]
    return lambda: parse_glossary(lines, "glossary")


def find_terms(terms: int, folder: Path) -> Work:
    """Return the search for the terms of a glossary in sentences."""
    del folder
    controls = Controls(glossary=_glossary(terms))
    texts = [" ".join(f"wort{number * 37 % 5000} und" for number in range(12)) for _ in range(SENTENCES)]
    return lambda: [controls.translations(text) for text in texts]


def _glossary(terms: int) -> dict[str, str]:
    return {f"wort{number} teil{number % 7}": f"word{number}" for number in range(terms)}


@cache
def _translator() -> str:
    folder = Path(_models().name)
    regard.train("dates", steps=150, savepath=folder, progress=False)
    return str(folder / "dates")


@cache
def _models() -> Any:
    import tempfile

    return tempfile.TemporaryDirectory()


def translate_lines(lines: int, folder: Path) -> Work:
    """Return `regard translate` for a file."""
    run, file = _translator(), folder / "lines"
    file.write_text("".join(f"{number % 28 + 1}. Mai {1900 + number % 100}\n" for number in range(lines)))
    return partial(_silently, [run, "--input", str(file)])


def _silently(arguments: list[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        translate.run_translate(arguments)

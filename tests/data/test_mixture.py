"""Weighted mixtures of corpora, in Python and on the command line."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import regard
from regard.data import corpus as corpora
from regard.data.buckets import BatchPosition, Buckets
from regard.data.corpus import Corpus, Mixture, build_corpus
from regard.data.subwords import train_subwords
from regard.data.vocabulary import PAD
from regard.errors import InputError
from regard.runs.loading import load_translator
from regard.tasks.translation import TranslationTaskConfig
from tests.conftest import Command
from tests.data.pair_list import PairList
from tests.german import sentences, write

SIZES = (700, 90, 13)
WORDS = [f"{corpus}{number:04d}" for corpus, size in enumerate(SIZES) for number in range(size)]
SUBWORDS = train_subwords([" ".join(WORDS)], kind="words", size=2000)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, ...]:
    """Build corpora of `SIZES`. Each pair has a unique word, repeated 1 to 7 times."""
    folder = tmp_path_factory.mktemp("corpora")
    found = []
    for corpus, size in enumerate(SIZES):
        words = [(f"{corpus}{number:04d}", number % 7 + 1) for number in range(size)]
        pairs = [(" ".join([word] * times), word) for word, times in words]
        found.append(build_corpus(folder / str(corpus), PairList(pairs), (SUBWORDS, SUBWORDS), max_len=20))
    return tuple(found)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "SEGMENT", 20)
    monkeypatch.setattr(corpora, "POOL", 10)


def read_pool(mixture: Mixture, seed: int, pool: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return sources and targets of a pool."""
    read = [corpus.read(begin, end) for corpus, begin, end in mixture.ranges(seed, 0, pool)]
    return [each for sources, _ in read for each in sources], [each for _, targets in read for each in targets]


def named(targets: list[np.ndarray]) -> list[str]:
    """Return the word of each pair."""
    return [SUBWORDS.decode(each.tolist()) for each in targets]


@given(
    weights=st.lists(st.floats(0.01, 100.0), min_size=3, max_size=3), seed=st.integers(0, 99), pools=st.integers(1, 12)
)
def test_each_corpus_has_its_share_and_repeats_after_a_full_epoch(
    three: tuple[Corpus, ...], weights: list[float], seed: int, pools: int
) -> None:
    mixture = Mixture(three, tuple(weights))
    served = [word for pool in range(pools) for word in named(read_pool(mixture, seed, pool)[1])]
    asked = pools * mixture.pool_size
    for corpus, (size, weight) in enumerate(zip(SIZES, weights, strict=True)):
        mine = [word for word in served if word.startswith(str(corpus))]
        assert abs(len(mine) - asked * weight / sum(weights)) <= 1
        times = Counter(mine)
        assert set(times.values()) <= {len(mine) // size, -(-len(mine) // size)} and len(times) == min(size, len(mine))


def test_sources_stay_with_their_targets_and_epochs_differ(three: tuple[Corpus, ...]) -> None:
    mixture = Mixture(three[:2], (1.0, 1.0))
    pools = [read_pool(mixture, 0, pool) for pool in range(4)]
    for sources, targets in pools:
        for source, word in zip(named(sources), named(targets), strict=True):
            assert source == " ".join([word] * (int(word[1:]) % 7 + 1))
    mine = [word for _, targets in pools for word in named(targets) if word.startswith("1")]
    assert sorted(mine[:90]) == sorted(mine[90:180]) and mine[:90] != mine[90:180]
    other = [word for pool in range(4) for word in named(read_pool(mixture, 1, pool)[1]) if word[0] == "1"]
    assert sorted(other[:90]) == sorted(mine[:90]) and other[:90] != mine[:90]


def test_batches_are_mixed_and_resume_from_any_position(three: tuple[Corpus, ...]) -> None:
    mixture = Mixture(three, (1.0, 2.0, 1.0))
    whole = Buckets(mixture, 64, seed=3)
    places, drawn = [], []
    for _ in range(150):
        places.append(whole.place)
        drawn.append(whole.draw())
    assert places[-1].pool >= 5 and places[-1].epoch == 0
    for index in (0, 1, 40, 149):
        later = Buckets(mixture, 64, seed=3, place=BatchPosition(*places[index]))
        assert torch.equal(later.draw().source, drawn[index].source)
    assert not torch.equal(Buckets(mixture, 64, seed=4).draw().source, drawn[0].source)
    there = sum(int((each.source != PAD).sum()) for each in drawn)
    assert there / sum(each.source.numel() for each in drawn) > 0.9
    origins = [{word[0] for word in named(list(each.target.numpy()))} for each in drawn]
    assert sum(len(each) > 1 for each in origins) > 75


def test_the_summary_contains_the_shares(three: tuple[Corpus, ...]) -> None:
    assert Mixture(three[:2], (1.0, 3.0)).summary == "25.0% from 700 pairs, and 75.0% from 90 pairs"


FEW: dict[str, Any] = {
    "vocab_size": 60,
    "hidden": 16,
    "heads": 2,
    "inner": 16,
    "enc_layers": 1,
    "dec_layers": 1,
    "tokens": 400,
    "steps": 12,
}


@pytest.fixture
def two(tmp_path: Path) -> list[str]:
    """Two texts of different sizes, each in one file of pairs."""
    parts = {"large.tsv": sentences()[:200], "small.tsv": sentences()[200:240]}
    for name, pairs in parts.items():
        (tmp_path / name).write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return [str(tmp_path / name) for name in parts]


def test_a_resumed_mixture_has_equal_files(tmp_path: Path, two: list[str], check_resumed: Callable[..., Any]) -> None:
    asked: dict[str, Any] = {**FEW, "train": two, "weights": [1, 4], "progress": False}
    resumed, _ = check_resumed("translation", 8, **asked)
    other = regard.train("translation", **{**asked, "weights": [4, 1]}, savepath=tmp_path / "other")
    assert other.metrics[0]["loss"] != resumed.metrics[0]["loss"]


def test_the_command_line(tmp_path: Path, two: list[str], command: Command) -> None:
    words = [word for name, value in FEW.items() for word in (f"--{name}", str(value))]
    argv = ("train", "translation", *words, "--savepath", tmp_path, "--train")
    status, out, err = command(*argv, *two, "--weights", "1", "4")
    assert status == 0 and "Trained translation for 12 steps" in out
    assert "Training on 20.0% from 200 pairs, and 80.0% from 40 pairs" in err
    stored = json.loads((tmp_path / "translation" / "config.json").read_text())["options"]
    assert stored["train"] == two and stored["weights"] == [1.0, 4.0]
    run = load_translator(tmp_path / "translation")
    assert run.trained_on(1000) == sentences()[:240]
    assert command("train", "translation", "--resume", "--savepath", tmp_path)[0] == 0
    assert command("train", "translation", "--resume", "--savepath", tmp_path, "--weights", "1", "4")[0] == 0
    status, _, err = command("train", "translation", "--resume", "--savepath", tmp_path, "--weights", "1", "5")
    assert status == 2 and "weights (1.0, 5.0) differs from the run's (1.0, 4.0)" in err


def test_sources_and_targets_in_separate_files(tmp_path: Path) -> None:
    text = write(tmp_path)
    config = TranslationTaskConfig(train=(*text["train"], *text["valid"]), weights=(1.0, 2.0))
    assert config.corpora == [text["train"], text["valid"]]
    first, second = (list(each) for each in config.training_texts())
    assert (first, second) == (sentences()[:240], sentences()[240:264])
    assert list(config.training_text()) == first + second
    assert TranslationTaskConfig(train=text["train"], weights=(2.0,)).corpora == [text["train"]]


@pytest.mark.parametrize(
    ("files", "weights", "message"),
    [
        (
            2,
            ("1", "2", "3"),
            "train has 2 files for 3 weights: give one file of pairs, or a source and a target file, per weight",
        ),
        (3, ("1", "2"), "train has 3 files for 2 weights"),
        (3, (), "train has 3 files: give a source and a target, or one file of pairs; for several texts add --weights"),
        (2, ("1", "-1"), "weight -1 is out of range: choose from 0.001 to 1,000"),
        (2, ("1", "0"), "weight 0 is out of range"),
        (2, ("nan", "1"), "weight nan is out of range"),
        (2, ("inf", "1"), "weight inf is out of range"),
        (2, ("1", "much"), "weights"),
        (0, ("1", "2"), "train has 0 files for 2 weights"),
    ],
)
def test_invalid_weights_are_refused_in_one_line(
    tmp_path: Path, two: list[str], command: Command, files: int, weights: tuple[str, ...], message: str
) -> None:
    train = (*two, two[0])[:files]
    words = [*(["--train", *train] if train else []), *(["--weights", *weights] if weights else [])]
    status, out, err = command("train", "translation", *words, "--savepath", tmp_path / "models")
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1
    assert not list(tmp_path.rglob("config.json"))


def test_weights_accept_one_number_and_refuse_text(two: list[str]) -> None:
    assert regard.make_config("translation", {"train": two[0], "weights": 2}).flags()["weights"] == (2.0,)
    with pytest.raises(InputError, match="weights 'a' is of type str: give float"):
        regard.make_config("translation", {"train": two[0], "weights": "a"})

"""Cleaning a corpus: dropped pairs, their reasons, and unchanged lines."""

import gzip
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from regard.data.cleaning import CleaningRules, PairFilter, clean_corpus, common_scripts
from regard.errors import InputError

GOOD = [("Ein kleiner Hund rennt.", "A small dog runs."), ("Zwei Frauen lachen laut.", "Two women laugh loudly.")]


def write(path: Path, pairs: list[tuple[str, str]], more: bytes = b"") -> Path:
    path.write_bytes("".join(f"{source}\t{target}\n" for source, target in pairs).encode() + more)
    return path


def dropped(folder: Path) -> list[list[str]]:
    head, *lines = (folder / "dropped.tsv").read_text().splitlines()
    assert head == "line\treason\tscore\tsource\ttarget"
    return [line.split("\t") for line in lines]


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("Ein Hund.", "A dog runs after a ball that rolls away."), "lengths too different"),
        (("a" * 501, "b" * 501), "too long"),
        (("Berlin 2016", "berlin 2016"), "both sides the same"),
        (("Привет, мир, как дела", "Hello world, how are you"), "other script"),
        (("", "empty"), "with an empty side"),
    ],
)
def test_dropped_pairs_have_a_reason(tmp_path: Path, pair: tuple[str, str], reason: str) -> None:
    file = write(tmp_path / "pairs.tsv", [GOOD[0], pair, GOOD[1], GOOD[0]], b"no partner\n\xff\tx\n")
    found = clean_corpus([file], tmp_path / "clean", CleaningRules(), lenient=True, progress=False)
    assert (tmp_path / "clean" / "pairs.tsv").read_text() == "".join(f"{one}\t{other}\n" for one, other in GOOD)
    reasons = [(int(line), why) for line, why, *_ in dropped(tmp_path / "clean")]
    assert reasons == [(2, reason), (4, "duplicate"), (5, "without a partner"), (6, "not UTF-8")]
    assert found.kept == 2 and sum(found.dropped.values()) == 4 and found.scripts == ("latin", "latin")
    assert "Kept 2 of 6 pairs" in str(found) and reason in str(found)


def test_all_scripts_can_be_accepted(tmp_path: Path) -> None:
    pairs = [("Ein Hund.", "A dog."), ("Привет, мир, как дела", "Hello world, how are you")]
    rules = CleaningRules(scripts=("any", "any"))
    assert clean_corpus([write(tmp_path / "a.tsv", pairs)], tmp_path / "clean", rules, progress=False).kept == 2


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_kept_lines_are_unchanged(tmp_path: Path, ending: str) -> None:
    sides = (b"  Ein Hund.\r\nKatze\n", b"A dog.\nx\x00y " + b"z" * 80 + b"\n")
    files = [tmp_path / f"a.{side}{ending}" for side in ("de", "en")]
    for file, content in zip(files, sides, strict=True):
        file.write_bytes(gzip.compress(content) if ending else content)
    clean_corpus(files, tmp_path / "clean", CleaningRules(), lenient=True, progress=False)
    assert (tmp_path / "clean" / "a.de").read_bytes() == b"  Ein Hund.\n"
    assert (tmp_path / "clean" / "a.en").read_bytes() == b"A dog.\n"


def test_low_scores_and_nan_are_dropped(tmp_path: Path) -> None:
    pairs = [(f"Satz {word} hier", f"Sentence {word} here") for word in ("eins", "zwei", "drei", "vier")]
    scores = {"Satz eins hier": 0.9, "Satz zwei hier": 0.1, "Satz drei hier": math.nan, "Satz vier hier": None}
    found = clean_corpus(
        [write(tmp_path / "a.tsv", pairs)],
        tmp_path / "clean",
        CleaningRules(),
        scoring=lambda asked: [scores[source] for source, _ in asked],
        min_score=0.5,
        progress=False,
    )
    assert found.kept == 1 and found.dropped == {"low score": 2, "too long to be scored": 1}
    assert dropped(tmp_path / "clean")[0][1:3] == ["low score", "0.1"]


def test_existing_folders_are_refused_and_failures_leave_nothing(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", GOOD)
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="exists: choose another --savepath"):
        clean_corpus([file], tmp_path / "there", CleaningRules(), progress=False)

    def broken(asked: object) -> list[float]:
        raise InputError("broken")

    with pytest.raises(InputError, match="broken"):
        clean_corpus([file], tmp_path / "clean", CleaningRules(), scoring=broken, progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tsv", "there"]


def test_scripts_are_the_most_frequent_ones() -> None:
    assert common_scripts([("Ein Hund", "Собака"), ("Zwei", "Две Cat")]) == ("latin", "cyrillic")
    assert common_scripts([("1 2 3", "犬が走る")]) == ("any", "cjk")


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), max_size=20))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_no_pair_is_kept_twice(pairs: list[tuple[str, str]]) -> None:
    sieve = PairFilter(CleaningRules(), ("any", "any"))
    kept = [pair for pair in pairs if sieve.reason(*pair) is None]
    assert len(kept) == len(set(kept))

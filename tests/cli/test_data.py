"""`regard clean`."""

from pathlib import Path

import regard
from tests.conftest import Command
from tests.german import sentences


def test_a_corpus_is_cleaned(command: Command, german: regard.TranslationRun, tmp_path: Path) -> None:
    pairs = sentences()[:30]
    pairs[3] = (pairs[3][0], pairs[4][1])
    file, folder = tmp_path / "pairs.tsv", tmp_path / "clean"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in (*pairs, pairs[0])))
    status, out, _ = command("clean", file, "--savepath", folder)
    assert status == 0 and "Kept 30 of 31 pairs" in out and "1  duplicate" in out
    scored = ("--runs", german.folder, "--min_score", "0.6", "--savepath", tmp_path / "scored")
    status, out, _ = command("clean", file, *scored)
    assert status == 0 and "low score" in out and "Scores: 1% below" in out
    assert "4\tlow score\t" in (tmp_path / "scored" / "dropped.tsv").read_text()

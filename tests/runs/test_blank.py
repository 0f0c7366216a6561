"""The answer to a blank text is always empty, and every answer is on the line of its text."""

import io
import json
import math
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.data.parallel import PairCounts, ParallelText
from regard.data.vocabulary import is_blank
from regard.errors import InputError
from tests.german import sentences

Command = Callable[..., tuple[int, str, str]]
BLANK = ["", " ", "\t \t", "\u00a0", "\u200b\u200d", "\ufeff", "\u3000", "\x01", "\u2060 \u00ad", "\u3164", "\u2800"]
SOURCE = sentences()[0][0]


def test_blank_texts() -> None:
    assert all(map(is_blank, BLANK))
    assert not any(map(is_blank, [SOURCE, ".", " a", "\u200bä", "狗", "☃", "\ufffd", "0", "\u0301a", "\u200b!"]))


@pytest.mark.parametrize("options", [{}, {"beam": 3, "n_best": 3}, {"temperature": 1.0}], ids=str)
@pytest.mark.parametrize("engine", ["regard", "ctranslate2"])
def test_blank_text_has_the_empty_answer(german: regard.TranslationRun, engine: Any, options: dict[str, Any]) -> None:
    if engine == "ctranslate2":
        pytest.importorskip("ctranslate2")
        if "temperature" in options:
            pytest.skip("CTranslate2 draws nothing")
    texts = [each for blank in BLANK for each in (SOURCE, blank)]
    found = german.search(texts, engine=engine, **options)
    alone = german.search([SOURCE], engine=engine, **options)[0]
    for answered, empty in zip(found[::2], found[1::2], strict=True):
        assert [each.text for each in answered] == [each.text for each in alone]
        assert [(each.text, each.tokens, each.log_probability, each.finished) for each in empty] == [("", [], 0, True)]
    assert german.translate([""], engine=engine) == [""]


def test_scores_links_and_maps(german: regard.TranslationRun, translator: regard.PairRun) -> None:
    target = sentences()[0][1]
    whole, no_source, no_target, ended = german.score([(SOURCE, target), (" ", "x"), (SOURCE, "\u200b"), (SOURCE, "")])
    assert math.isnan(no_source.log_probability) and math.isnan(no_source.per_token) and no_source.tokens == 0
    assert no_target.log_probability == pytest.approx(ended.log_probability) and no_target.tokens == 1
    assert whole.log_probability > no_target.log_probability
    for pair in ((" \u200b", target), (SOURCE, "\t"), ("", "")):
        [found] = german.align([pair])
        assert found.moses == "" and len(found.source) in (0, 5) and len(found.target) in (0, 5)
    assert german.attend("  ").prediction == "" and translator.attend("\u00a0").prediction == ""
    assert translator.translate(BLANK) == [""] * len(BLANK)
    with pytest.raises(InputError, match="input is blank, so the answer is empty"):
        german.tree(" ")


def lines_of(german: regard.TranslationRun, command: Command, lines: list[str], *words: Any, **given: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        content = "".join(f"{line}\n" for line in lines).encode()
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        status, out, err = command(*words)
    assert status == 0, err
    return out.split("\n")[:-1], err


@pytest.mark.parametrize("words", [(), ("--align",), ("--n_best", "2", "--scores"), ("--tags",)], ids=str)
def test_lines_of_translate(german: regard.TranslationRun, command: Command, words: tuple[str, ...]) -> None:
    lines = [SOURCE, "", "   ", SOURCE, "\u200b", "\t", SOURCE]
    every = 2 if "--n_best" in words else 1
    for engine in ("regard", "auto"):
        out, _ = lines_of(german, command, lines, "translate", german.folder, "--engine", engine, *words)
        assert len(out) == every * len(lines)
        for number, line in enumerate(lines):
            found = out[number * every : (number + 1) * every]
            assert found == ([""] * every if is_blank(line) else out[:every])


def test_lines_of_score_and_align(german: regard.TranslationRun, command: Command, tmp_path: Path) -> None:
    pair = "\t".join(sentences()[0])
    lines = [pair, f"\u00a0\t{SOURCE}", f"{SOURCE}\t ", pair]
    out, err = lines_of(german, command, lines, "score", german.folder)
    assert out[0] == out[3] and out[1] == "nan\tnan" and not math.isnan(float(out[2].split()[0]))
    assert "line 2 has a blank source" in err and "line 3 has a blank target" in err
    out, _ = lines_of(german, command, lines, "align", german.folder, "-")
    assert out == [out[0], "", "", out[0]] and out[0]
    out, _ = lines_of(german, command, [SOURCE, " ", SOURCE], "align", german.folder, "-")
    assert out == [out[0], "", out[0]] and " ||| " in out[0]
    out, _ = lines_of(german, command, lines, "align", german.folder, "-", "--format", "json")
    assert [json.loads(line)["links"] for line in out][1:3] == [[], []]
    status, out, _ = command("translate", german.folder, "  ")
    assert (status, out) == (0, "\n")
    status, out, err = command("translate", german.folder, "  ", "--plot", tmp_path / "x.png")
    assert status == 2 and "the text is blank" in err


def test_the_explorer(german: regard.TranslationRun) -> None:
    pytest.importorskip("httpx")
    app = pytest.importorskip("regard.server.app")
    from tests.server.test_app import Client

    if find_spec("ctranslate2") is not None:
        german.translate([SOURCE], engine="ctranslate2")  # open files are not copied with the run
    client = Client(app.make_app(app.Explorer(german)))
    found = client.post("/api/attend", {"input": " \u200b"})
    assert found.status_code == 200, found.text
    assert found.json()["map"]["prediction"] == ""
    refused = client.post("/api/tree", {"input": "  "})
    assert refused.status_code in (400, 422) and "input is blank" in refused.json()["error"]


def test_blank_lines_of_a_text_are_counted_and_keep_their_places(
    german: regard.TranslationRun, command: Command, tmp_path: Path
) -> None:
    pairs = sentences()[264:270]
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    sources[1], targets[3], sources[5] = "\u200b", " ", ""
    for name, side in (("a", sources), ("b", targets)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    text = ParallelText([tmp_path / "a", tmp_path / "b"])
    assert len(list(text)) == 3 and text.counts == PairCounts(pairs=3, empty=3)
    words = ("--data", tmp_path / "a", tmp_path / "b", "--output", tmp_path / "out", "--json", tmp_path / "j")
    status, out, err = command("test", german.folder, *words)
    assert status == 0 and "3 pairs; left out: 3 with an empty side" in out, err
    found = (tmp_path / "out").read_text().split("\n")
    translated = german.translate([sources[line] for line in (0, 2, 4)])
    assert found == [translated[0], "", translated[1], "", translated[2], "", ""]
    assert json.loads((tmp_path / "j").read_text())["quality"]["tokenizer"] == "13a"

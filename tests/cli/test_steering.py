"""Judging and steering a training on text from the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.evaluation.bleu import quality
from tests.german import write

Command = Callable[..., tuple[int, str, str]]
SMALL = [
    *("--vocab_size", "400", "--hidden", "16", "--heads", "2", "--inner", "16", "--enc_layers", "1"),
    *("--dec_layers", "1", "--tokens", "400", "--validate_every", "3", "--average", "0", "--lr", "0.01"),
]
RULES = [
    "--symbols",
    "<2en>",
    "__NUM__",
    "--normalize",
    "nfkc,quotes",
    "--byte_fallback",
    "--weight_decay",
    "0.1",
]


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """Text whose sources begin with a language tag."""
    text: dict[str, Any] = write(tmp_path)
    for source, _ in text.values():
        lines = Path(source).read_text(encoding="utf-8").splitlines()
        Path(source).write_text("".join(f"<2en> {line}\n" for line in lines), encoding="utf-8")
    extra = f"other={text['test'][0]},{text['test'][1]}"
    return ["--train", *text["train"], "--valid", *text["valid"], "--extra_valid", extra, *SMALL]


def test_several_texts_and_a_criterion(tmp_path: Path, flags: list[str], command: Command) -> None:
    here = ["--savepath", str(tmp_path)]
    status, out, err = command(
        *(
            "train",
            "translation",
            *flags,
            *RULES,
            "--steps",
            "9",
            "--criterion",
            "loss/other",
            "--keep",
            "2",
            *here,
        )
    )
    assert status == 0 and "best validation loss" in out and "nats per token on other after 9 steps" in out
    assert "perplexity" in err and "; other: BLEU" in err and "Validating on 24 pairs of other" in err
    run = regard.load(tmp_path / "translation")
    assert isinstance(run, regard.TranslationRun)
    names = ("bleu", "chrf", "valid_loss", "valid_perplexity")
    assert {f"{name}{text}" for name in names for text in ("", "/other")} <= run.metrics[-1].keys()
    # The figures are those of the stored model, measured independently.
    pairs = list(run.task.config.extra_texts()["other"])
    scores = run.score(pairs)
    loss = -sum(score.log_probability for score in scores) / sum(score.tokens for score in scores)
    assert run.metrics[-1]["valid_loss/other"] == pytest.approx(loss, rel=1e-5)
    answers = run.translate([source for source, _ in pairs], beam=1)
    best = quality(answers, [target for _, target in pairs])
    assert run.metrics[-1]["chrf/other"] == pytest.approx(best.chrf)
    assert run.metrics[-1]["bleu/other"] == pytest.approx(best.main)
    status, out, _ = command("train", "translation", "--resume", "--steps", "12", "--lr", "0.001", *here)
    assert status == 0 and "Trained translation for 12 steps" in out
    status, out, _ = command("average", "translation", *here)
    assert status == 0 and "Averaged the models after 9, 12 steps" in out
    status, _, err = command("train", "translation", "--resume", "--extra_valid", "other=x,y", *here)
    assert status == 2 and err.count("\n") == 1 and "does not exist" in err


def test_rules_for_text_travel_with_the_run(tmp_path: Path, flags: list[str], command: Command) -> None:
    here = ["--savepath", str(tmp_path)]
    assert command("train", "translation", *flags, *RULES, "--steps", "3", *here)[0] == 0
    run = regard.load(tmp_path / "translation")
    assert isinstance(run, regard.TranslationRun)
    curved, straight = "<2en> „Der“ Hahn ﬁndet __NUM__ 漢", '<2en> "Der" Hahn findet __NUM__ 漢'
    source = run.task.source_vocabulary
    assert source.encode(curved) == source.encode(straight) and source.decode(source.encode(curved)) == straight
    assert run.score([(curved, "a")])[0].log_probability == run.score([(straight, "a")])[0].log_probability
    outputs = [
        command("translate", "translation", text, "--engine", "regard", *here)[1] for text in (curved, straight)
    ]
    assert outputs[0] == outputs[1]
    assert "unknown" not in command("translate", "translation", curved, "--engine", "regard", *here)[2]
    attention = run.attend("<2en> Heute singt der Hahn.")
    assert "<2en>" in str(attention)


def check_rules(tokenizer: Any, run: Any) -> None:
    for text in ("<2en> „Der“ Hahn ﬁndet __NUM__ 漢", "x__NUM__y"):
        assert tokenizer.encode(text, add_special_tokens=False).ids == run.task.source_vocabulary.encode(text)


def test_exported_tokenizer_has_the_rules(tmp_path: Path, flags: list[str], command: Command) -> None:
    pytest.importorskip("ctranslate2")
    tokenizers = pytest.importorskip("tokenizers")
    here = ["--savepath", str(tmp_path)]
    assert command("train", "translation", *flags, *RULES, "--steps", "3", *here)[0] == 0
    status, _, err = command("export", "translation", "--to", "ctranslate2", "--output", tmp_path / "out", *here)
    assert status == 0, err
    run: Any = regard.load(tmp_path / "translation")
    check_rules(tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "source.json")), run)


def test_moved_validation_texts_resume(tmp_path: Path, flags: list[str], command: Command) -> None:
    here = ["--savepath", str(tmp_path)]
    assert command("train", "translation", *flags, "--steps", "3", *here)[0] == 0
    for name in ("test.de", "test.en"):
        (tmp_path / name).rename(tmp_path / f"moved.{name}")
    moved = f"other={tmp_path / 'moved.test.de'},{tmp_path / 'moved.test.en'}"
    resume = ("train", "translation", "--resume", "--steps", "6", *here)
    status, _, err = command(*resume)
    assert status == 2 and "does not exist" in err and "give its new path" in err
    assert command(*resume, "--extra_valid", moved)[0] == 0
    (tmp_path / "moved.test.en").write_text("changed\n" * 24)
    status, _, err = command(*resume, "--extra_valid", moved)
    assert status == 2 and "extra_valid" in err and "has changed" in err


def test_criterion_without_validation_text_selects_nothing(
    tmp_path: Path, flags: list[str], command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*flags[: flags.index("--valid")], "--steps", "2", "--criterion", "chrf", "--savepath", tmp_path]
    status, _, err = command("train", "translation", *words)
    assert status == 2 and "criterion chrf has no effect without --valid: leave criterion out, or give" in err
    sizes: dict[str, Any] = {"hidden": 16, "heads": 2, "inner": 16, "enc_layers": 1, "dec_layers": 1}
    regard.train("translation", train=flags[1:3], criterion="chrf", steps=2, **sizes, savepath=tmp_path)
    assert "Without validation text, criterion chrf selects nothing" in capsys.readouterr().err

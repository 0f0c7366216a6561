"""`regard train`: spellings of flags, help, and what judges and steers a training on text."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import regard
from regard.cli.compare import _flags
from regard.cli.train import parse_config
from regard.evaluation.bleu import quality
from regard.tasks.all_tasks import TASKS
from regard.training.config import RunConfig, make_config
from regard.training.run_folder import read_tensors
from tests.conftest import Command
from tests.german import write
from tests.processes import start

FLAGS = [
    *("--steps", "--batchsize", "--lr", "--savepath", "--hidden", "--max_len", "--vocab_size", "--enc_layers"),
    *("--heads", "--multihead", "--pos_enc", "--self_att", "--score", "--recipe", "--vary_len", "--seed"),
    *("--model", "--resume", "--overwrite"),
]


def flags_of(*argv: str, task: str = "signal2") -> RunConfig:
    return parse_config(make_config(task), list(argv), task=task)[0]


@pytest.mark.parametrize(
    ("argv", "multihead", "pos_enc", "enc_layers"),
    [
        ([], True, True, 1),
        (["--multihead=False"], False, True, 1),
        (["--no-multihead", "--no_pos_enc"], False, False, 1),
        (["--pos_enc=true", "--enc_layers=6"], True, True, 6),
        (["--pos-enc", "--enc-layers", "6"], True, True, 6),
        (["--nomultihead=1"], None, None, None),
    ],
)
def test_the_primers_spellings(
    argv: list[str], multihead: bool | None, pos_enc: bool | None, enc_layers: int | None
) -> None:
    from regard.errors import InputError

    if multihead is None:
        with pytest.raises(InputError):
            flags_of(*argv)
        return
    model: Any = flags_of(*argv).model
    assert (model.multihead, model.pos_enc, model.enc_layers) == (multihead, pos_enc, enc_layers)


@pytest.mark.parametrize("task", ["TASK", "counting", "signal2"])
def test_help_explains_every_flag_with_the_tasks_defaults(command: Command, task: str) -> None:
    status, out, _ = command("train", *([] if task == "TASK" else [task]), "--help-all")
    assert status == 0
    text = " ".join(out.split())
    for flag in FLAGS:
        assert f"{flag} " in text or f"{flag}," in text, flag
    heads_on = "without this flag, each layer has one head without projections. (default: True)" in text
    assert heads_on == (task == "signal2")


def test_a_run_stores_its_config(command: Command, tmp_path: Path) -> None:
    status, _, err = command(
        "train", "counting", "--steps=3", "--vocab_size", "2", "--max-len=4", "--savepath", tmp_path
    )
    assert status == 0, err
    stored = json.loads((tmp_path / "counting/config.json").read_text())
    assert (stored["options"]["max_len"], stored["options"]["vocab_size"]) == (4, 2)
    assert stored["options"]["lr"] == pytest.approx(make_config("counting").resolved().training.lr)


def test_custom_task(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.tasks.test_find_task import OWN_TASK

    (tmp_path / "check.py").write_text(OWN_TASK)
    monkeypatch.chdir(tmp_path)
    status, out, err = command("train", "check.py", "--steps", "3", "--savepath", tmp_path)
    assert status == 0, err
    monkeypatch.chdir("/")  # the run stores the path of its task
    status, out, err = command("test", "vowels", "--savepath", tmp_path, "--samples", "5")
    assert status == 0, err
    assert "vowels, 3 of 3 steps" in out


def test_existing_run_is_kept_without_overwrite(command: Command, tmp_path: Path) -> None:
    train = ("train", "counting", "--steps=3", "--savepath", tmp_path)
    assert command(*train)[0] == 0
    before = (tmp_path / "counting/model.safetensors").read_bytes()
    status, _, err = command(*train, "--seed", "1")
    assert status == 2 and "already contains a run: continue it with --resume, replace it with" in err
    assert (tmp_path / "counting/model.safetensors").read_bytes() == before
    assert command(*train, "--seed", "1", "--overwrite")[0] == 0
    assert (tmp_path / "counting/model.safetensors").read_bytes() != before


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_flags_are_parsed_or_refused_in_one_line(data: Any, tmp_path_factory: Any) -> None:
    """Parsing arbitrary words returns flags or fails with a one-line error."""
    from regard.errors import InputError

    value = st.integers(-(2**70), 2**70).map(str) | st.floats().map(str) | st.text(max_size=6)
    argv: list[str] = []
    for _ in range(data.draw(st.integers(0, 4))):
        flag = data.draw(st.sampled_from([*FLAGS, "--self-att", "-x", "--"]))
        match data.draw(st.sampled_from(["alone", "=", "apart"])):
            case "=":
                argv.append(f"{flag}={data.draw(value)}")
            case "apart":
                argv += [flag, data.draw(value)]
            case _:
                argv.append(flag)
    try:
        flags_of(*argv)
    except InputError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("score", ["dot", "general", "concat", "additive"])
@pytest.mark.parametrize("task", ["counting", "signal2"])
def test_every_score_trains_with_one_head_and_with_several(
    command: Command, tmp_path: Path, task: str, score: str
) -> None:
    status, _, err = command("train", task, "--score", score, "--steps", "3", "--savepath", tmp_path)
    assert status == 0, err
    status, _, err = command("test", task, "--savepath", tmp_path, "--samples", "5")
    assert status == 0, err
    names = read_tensors(tmp_path / task / "model.safetensors").tensors
    assert any("cross.score" in name for name in names) == (score != "dot")


OWN_SCORE = """
import torch
from regard.attention.scores import Score

class Distance(Score):
    def forward(self, query, prepared):
        return -torch.cdist(query, prepared)
"""


def test_custom_score(tmp_path: Path) -> None:
    import subprocess
    import sys

    (tmp_path / "my_module.py").write_text(OWN_SCORE)
    regard = str(Path(sys.executable).parent / "regard")
    argv = [regard, "train", "counting", "--steps=3", "--score", "my_module:Distance"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tested = start(tmp_path / "tested", "test", "counting", folder=tmp_path)
    assert tested.wait() == 0, tested.err
    refused = start(tmp_path / "refused", "train", "signal", "--score", "my_module:Nothing", folder=tmp_path)
    assert refused.wait() == 2
    assert refused.err.startswith("regard: score 'my_module:Nothing' cannot be imported: AttributeError")


def test_resume_compares_flags_with_the_run(command: Command, tmp_path: Path) -> None:
    train = ("train", "counting", "--savepath", tmp_path)
    assert command(*train, "--hidden", "32", "--steps", "3")[0] == 0
    assert command(*train, "--resume")[0] == 0
    assert command(*train, "--resume", "--hidden", "32")[0] == 0
    status, _, err = command(*train, "--resume", "--hidden", "64")
    assert status == 2 and "hidden 64 differs from the run's 32: a resumed run keeps its flags" in err
    status, _, err = command("train", "counting", "--resume", tmp_path / "counting")
    assert status == 2 and f"name the folder of the run as in --savepath {tmp_path}" in err


@pytest.mark.parametrize("task", TASKS)
def test_help_shows_the_first_flags_with_their_ranges(command: Command, task: str) -> None:
    _, out, _ = command("train", task, "--help")
    _, everything, _ = command("train", task, "--help-all")
    flags = re.findall(r"^  (--\w+)", out, re.MULTILINE)
    assert 9 <= len(flags) <= 12 and {"--model", "--steps", "--savepath", "--resume"} <= {*flags}
    assert {*flags} < {*re.findall(r"^  (--\w+)", everything, re.MULTILINE)}
    assert "Each step trains on one batch. (1 or more; default: " in " ".join(out.split())
    count = len(re.findall("^  --", everything, re.MULTILINE))
    assert out.endswith(f"regard train {task} --help-all shows all {count} flags.\n")


@pytest.mark.parametrize(
    ("task", "model"), [("signal", "pooling"), ("recall", "query"), ("sort", "recurrent"), ("dates", "transformer")]
)
def test_every_fitting_model_trains_every_task(command: Command, tmp_path: Path, task: str, model: str) -> None:
    argv = ("train", task, "--model", model, "--steps", "2", "--hidden", "4", "--savepath", tmp_path)
    status, out, err = command(*argv)
    assert status == 0 and f"Trained {task} for 2 steps" in out, err
    assert json.loads((tmp_path / task / "config.json").read_text())["kind"] == model
    status, _, err = command(*argv, "--resume")
    assert status == 0, err
    status, out, _ = command("test", tmp_path / task, "--samples", "5")
    assert status == 0 and "Exact match" in out


def test_mechanism_replaces_options_that_are_not_given() -> None:
    assert regard.TranslationConfig(train=("x.tsv",), attention="alibi").run_config().model.positions != "rotary"
    with pytest.raises(regard.InputError, match="--key_value_heads 2 and attention part multi_query are both"):
        regard.make_config("dyck", {"attention": "multi_query", "key_value_heads": 2})
    with pytest.raises(regard.InputError, match="--positions learned and attention part alibi are both"):
        regard.make_config("dyck", {"attention": "alibi", "positions": "learned"})


def test_comparison_keeps_the_mechanism_and_the_preset() -> None:
    assert _flags("dyck", ["--attention", "alibi", "--heads", "2"]) == {
        "attention": "alibi",
        "model": "decoder",
        "heads": 2,
    }
    assert _flags("translation", ["--preset", "small"])["preset"] == "small"


SMALL = [
    *("--vocab_size", "400", "--hidden", "16", "--heads", "2", "--inner", "16", "--enc_layers", "1"),
    *("--dec_layers", "1", "--tokens", "400", "--validate_every", "3", "--average", "0", "--lr", "0.01"),
]
RULES = [*("--symbols", "<2en>", "__NUM__", "--normalize", "nfkc,quotes", "--byte_fallback", "--weight_decay"), "0.1"]


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
        *("train", "translation", *flags, *RULES, "--steps", "9", "--criterion", "loss/other", "--keep", "2", *here)
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
    outputs = [command("translate", "translation", text, "--engine", "regard", *here)[1] for text in (curved, straight)]
    assert outputs[0] == outputs[1]
    assert "unknown" not in command("translate", "translation", curved, "--engine", "regard", *here)[2]
    attention = run.attend("<2en> Heute singt der Hahn.")
    assert "<2en>" in str(attention)


def test_exported_tokenizer_has_the_rules(tmp_path: Path, flags: list[str], command: Command) -> None:
    pytest.importorskip("ctranslate2")
    tokenizers = pytest.importorskip("tokenizers")
    here = ["--savepath", str(tmp_path)]
    assert command("train", "translation", *flags, *RULES, "--steps", "3", *here)[0] == 0
    status, _, err = command("export", "translation", "--to", "ctranslate2", "--output", tmp_path / "out", *here)
    assert status == 0, err
    run: Any = regard.load(tmp_path / "translation")
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "source.json"))
    for text in ("<2en> „Der“ Hahn ﬁndet __NUM__ 漢", "x__NUM__y"):
        assert tokenizer.encode(text, add_special_tokens=False).ids == run.task.source_vocabulary.encode(text)


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
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sizes: dict[str, Any] = {"hidden": 16, "heads": 2, "inner": 16, "enc_layers": 1, "dec_layers": 1}
    regard.train("translation", train=flags[1:3], criterion="chrf", steps=2, **sizes, savepath=tmp_path)
    assert "Without validation text, criterion chrf selects nothing" in capsys.readouterr().err

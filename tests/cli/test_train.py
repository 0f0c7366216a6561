"""`regard train`: spellings of flags, help and refused flags."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from regard.cli.train import parse_config
from regard.tasks.all_tasks import TASKS
from regard.training.config import RunConfig, make_config
from tests.processes import start

Command = Callable[..., tuple[int, str, str]]

FLAGS = [
    "--steps",
    "--batchsize",
    "--lr",
    "--savepath",
    "--hidden",
    "--max_len",
    "--vocab_size",
    "--enc_layers",
    "--heads",
    "--multihead",
    "--pos_enc",
    "--self_att",
    "--score",
    "--recipe",
    "--vary_len",
    "--seed",
    "--model",
    "--resume",
    "--overwrite",
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
    text = " ".join(out.replace("│", " ").split())
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


BAD = {
    "no task": ([], "there is no name: name the task first, as in `regard train counting`"),
    "flag first": (["--steps", "3"], "flag '--steps' comes first: name the task first"),
    "unknown task": (["signals"], "task 'signals' is unknown: did you mean signal?"),
    "unknown flag": (["counting", "--stepps", "3"], "Unrecognized options: --stepps, 3; Perhaps you meant:"),
    "no number": (["counting", "--steps", "many"], "invalid literal for int() with base 10: 'many'"),
    "no value": (["counting", "--steps"], "Missing value for argument '--steps'"),
    "zero": (["counting", "--steps", "0"], "steps 0 is out of range: choose from 1 to 1000000000"),
    "heads": (["signal2", "--heads", "5"], "hidden 64 cannot be split into 5 heads: choose a multiple of 5"),
    "recipe": (["counting", "--recipe", "my"], "invalid choice 'my' for argument '--recipe'"),
    "boolean": (["counting", "--pos_enc=maybe"], "--pos_enc 'maybe' is not a boolean: give --pos_enc=True"),
    "nothing to resume": (["counting", "--resume"], "train a run first, or give its folder"),
    "one letter": (["difference", "--vocab_size=1"], "vocab_size 1 is too small: difference needs 2 letters"),
    "nan": (["counting", "--lr", "nan"], "lr nan is out of range: choose a finite number above 0"),
    "diverges": (["counting", "--lr", "1e30", "--steps", "50"], "lower --lr; the last checkpoint of the run"),
}


@pytest.mark.parametrize(("argv", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_status_2(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = command("train", *argv)
    assert status == 2
    assert message in err, err
    assert out == "" and err.startswith("regard: ") and err.count("\n") == 1
    if "lower --lr" not in message:
        assert list(tmp_path.iterdir()) == []


def test_unwritable_path_is_refused_before_training(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    status, _, err = command("train", "counting", "--savepath", file)
    assert status == 2
    assert err.startswith("regard: cannot write ") and "choose another path" in err and err.count("\n") == 1


def test_existing_run_is_kept_without_overwrite(command: Command, tmp_path: Path) -> None:
    train = ("train", "counting", "--steps=3", "--savepath", tmp_path)
    assert command(*train)[0] == 0
    before = (tmp_path / "counting/model.safetensors").read_bytes()
    status, _, err = command(*train, "--seed", "1")
    assert status == 2 and "already contains a run: continue it with --resume, replace it with" in err
    status, _, err = command(*train, "--resume", "--hidden", "32")
    assert status == 2 and "hidden 32 differs from the run's 64" in err
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
    names = " ".join(load_names(tmp_path / task))
    assert ("cross.score" in names) == (score != "dot")


def load_names(run: Path) -> list[str]:
    import safetensors

    with safetensors.safe_open(run / "model.safetensors", framework="pt") as file:
        return list(file.keys())


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


@pytest.mark.parametrize(
    ("task", "model", "shown", "hidden"),
    [
        ("counting", "pooling", "--pooling", "--pos_enc"),
        ("dates", "recurrent", "--teacher_forcing", "--pooling"),
        ("recall", "query", "--pos_enc", "--pooling"),
    ],
)
def test_help_shows_the_flags_of_the_named_model(
    command: Command, task: str, model: str, shown: str, hidden: str
) -> None:
    for argv in (("--model", model), (f"--model={model}",)):
        status, out, _ = command("train", task, *argv, "--help-all")
        assert status == 0 and shown in out and hidden not in out


@pytest.mark.parametrize("task", TASKS)
def test_help_shows_the_common_flags_with_their_ranges(command: Command, task: str) -> None:
    _, out, _ = command("train", task, "--help")
    _, everything, _ = command("train", task, "--help-all")
    flags = re.findall(r"^│ (--\w+)", out, re.MULTILINE)
    assert 15 <= len(flags) <= 25 and {"--model", "--steps", "--savepath", "--resume"} <= {*flags}
    assert {*flags} < {*re.findall(r"^│ (--\w+)", everything, re.MULTILINE)}
    text = " ".join(out.replace("│", " ").split())
    assert "Each step trains on one batch. (1 or more)" in text
    assert out.endswith(f"regard train {task} --help-all shows all {everything.count('(default: ')} flags.\n")


@pytest.mark.parametrize(
    ("task", "model"),
    [("signal", "pooling"), ("recall", "query"), ("sort", "recurrent"), ("dates", "transformer")],
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


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("dates", "--locales", "en,xx"), "locale 'xx' is unknown"),
        (("dates", "--model", "query"), "model 'query' does not fit task dates: choose recurrent or transformer"),
        (("dates", "--model"), "flag --model has no value"),
        (("recall", "--model", "recurrent"), "does not fit task recall: choose query or pooling"),
        (("reverse", "--context", "cell", "--query", "current"), "query current does not fit context cell"),
        (("recall", "--pairs", "9"), "pairs 9 is out of range: choose from 1 to 8"),
    ],
)
def test_unsupported_options_of_recurrent_models_are_refused(
    command: Command, tmp_path: Path, argv: tuple[str, ...], message: str
) -> None:
    status, out, err = command("train", *argv[:1], "--savepath", tmp_path, *argv[1:])
    assert (status, out) == (2, "") and message in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_help_names_all_presets(command: Command) -> None:
    from regard.training.config import PRESETS

    _, out, _ = command("train", "translation", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert f"Size of the Transformer: {', '.join(PRESETS)}." in text

"""Damaged external models: a tokenizer that panics, weights that are missing or not finite."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import InputError
from tests.conftest import Command
from tests.test_libraries import PANICS


@pytest.fixture
def folder(folders: Callable[[str], Path], tmp_path: Path) -> Path:
    """A decoder and its tokenizer, which tests may change."""
    return Path(shutil.copytree(folders("gpt2"), tmp_path / "model"))


def changed(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def panicking(folder: Path) -> Path:
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    changed(folder / "tokenizer.json", pre_tokenizer=split)
    return folder


def test_tokenizer_panic_is_one_line(folder: Path) -> None:
    argv = ["look", str(panicking(folder)), "--text", PANICS, "--json", str(folder / "a.json")]
    ended = subprocess.run([sys.executable, "-m", "regard", *argv], capture_output=True, text=True, check=False)
    status, err = ended.returncode, ended.stderr
    assert status == 2 and err.count("\n") == 1
    assert err.startswith(
        f"regard: tokenizer {str(folder)!r} cannot tokenize this text: tokenizers says PanicException"
    )
    assert not (folder / "a.json").exists()


def test_tokenizer_panic_fails_one_request_of_the_explorer(folder: Path) -> None:
    pytest.importorskip("httpx")
    from starlette.testclient import TestClient

    from regard.server.app import make_app
    from regard.server.explorer import Explorer

    client = TestClient(make_app(Explorer(regard.look(panicking(folder))), hosts=None))
    refused = client.post("/api/attend", json={"input": PANICS})
    assert refused.status_code == 422 and "tokenizers says PanicException" in refused.json()["error"]
    assert client.post("/api/attend", json={"input": "the cat sat"}).status_code == 200


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class Mine:\n    pass\n", "says "),
        ("class Mine:\n    from_pretrained = classmethod(lambda cls, *a, **b: cls())\n", "has no "),
        ("Mine = 7\n", "says "),
        ("import nothing_like_it\n", "nothing_like_it"),
        ("def (:\n", "SyntaxError"),
    ],
)
def test_invalid_tokenizer_class(folder: Path, command: Command, source: str, message: str) -> None:
    (folder / "mine.py").write_text(source)
    changed(folder / "tokenizer_config.json", tokenizer_class="Mine", auto_map={"AutoTokenizer": ["mine.Mine", None]})
    status, _, err = command("look", folder, "--text", "the cat", "--json", folder / "a.json", "--trust_code")
    assert status == 2 and err.count("\n") == 1 and "fault" not in err and message in err and str(folder) in err


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("tokenizer.json", {"model": {"type": "Newest", "vocab": {}}}),
        ("config.json", {"model_type": "newest9"}),
        ("config.json", {"n_head": 0}),
        ("config.json", {"n_embd": 2**40}),
        ("config.json", {"activation_function": "newest"}),
        ("config.json", {"architectures": "GPT2LMHeadModel"}),
    ],
)
def test_newer_or_damaged_folder(folder: Path, command: Command, file: str, values: dict[str, Any]) -> None:
    changed(folder / file, **values)
    status, _, err = command("look", folder, "--text", "the cat", "--json", folder / "a.json")
    assert status in (1, 2) and err.count("\n") == 1 and "fault" not in err and str(folder) in err, err


def test_missing_parameters_give_a_warning(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "model.safetensors")
    name = next(name for name in state if name.endswith("c_attn.weight"))
    state.pop(name)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.warns(UserWarning, match=f"1 parameters .* are random: {name}"):
        regard.look(folder)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), pytest.param(float("-inf"), marks=pytest.mark.slow), 1e30]
)
def test_weights_that_are_not_finite(folder: Path, command: Command, value: float) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "model.safetensors")
    name = next(name for name in state if name.endswith("c_attn.weight"))
    state[name].view(-1)[:] = value
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    for ending in ("html", "png"):
        told: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda message, into=told, **_: into.append(str(message)))
            status, out, _ = command("look", folder, "--text", "the cat sat", "--plot", folder / f"a.{ending}")
        assert status == 0
        assert "Note: weights of " in out and "not finite" in out
        assert value == 1e30 or told == [
            f"{name} of {str(folder)!r} is the first parameter with values that are not finite"
        ]
    texts = ["the cat sat on", "the dog ran on"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        model = regard.look(folder, inputs=texts)
    for result in (model.importance(), model.examine(), model.roles(), model.compare_with(model, texts)):
        str(result)
        json.dumps(result.json(), allow_nan=False)


def test_missing_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="'models/gpt' does not exist, 'models' does: .*Regard did not ask the Hub"):
        regard.look("models/gpt")

"""Commands on a run with non-finite parameters fail with a one-line error that names the first such parameter."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.training.tensor_file import pack_tensors, read_tensors


def spoiled(run: Path, folder: Path, value: float, *names: str) -> Path:
    """Copy a run, replace one number of each named parameter, and update the checksum of the model."""
    shutil.copytree(run, folder)
    found = read_tensors(folder / "model.safetensors")
    for name in names:
        found.tensors[name].view(-1)[0] = value
    (folder / "model.safetensors").write_bytes(pack_tensors(found.tensors, found.step, found.config))
    return folder


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1e30])
def test_answer_run_with_non_finite_parameters(
    trained: regard.AnswerRun, tmp_path: Path, command: Callable[..., tuple[int, str, str]], value: float
) -> None:
    first = next(iter(trained.model.state_dict()))
    later = [name for name in trained.model.state_dict() if name != first][-1]
    run = spoiled(trained.folder, tmp_path / "run", value, later, first)
    for words in (
        ["test", "--samples", "3", "--plot", tmp_path / "a.html"],
        ["explain"],
        ["examine", "--samples", "20"],
    ):
        status, out, err = command(words[0], run, *words[1:])
        assert status == 0 and "RuntimeWarning" not in err, err
        if value != 1e30:
            assert err.startswith(
                f"regard: warning: {first} of {str(run)!r} is the first parameter with values that are not finite\n"
            )
            assert words[0] != "test" or "Note:       weights of cross are not finite" in out


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("value", [float("nan"), 1e30])
def test_translation_run_with_non_finite_parameters(
    translator: regard.PairRun, tmp_path: Path, command: Callable[..., tuple[int, str, str]], value: float
) -> None:
    run = spoiled(translator.folder, tmp_path / "run", value, "target_embedding.weight")
    (tmp_path / "a").write_text("3. Mai 1979\t1979-05-03\n", encoding="utf-8")
    for words in (["translate", "3. Mai 1979", "--plot"], ["score", "--input", tmp_path / "a"], ["explain"]):
        status, _, err = command(words[0], run, *map(str, words[1:]))
        assert status == 0 and "fault" not in err and "Runtime" not in err, err
        assert value == 1e30 or "target_embedding.weight of" in err.splitlines()[0]

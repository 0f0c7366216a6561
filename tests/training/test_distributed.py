"""Training on several processes."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.data.batch import PairBatch, collate
from regard.data.vocabulary import PAD
from regard.training.distributed import DistributedContext
from tests.data.test_mixture import FEW
from tests.german import write
from tests.processes import Started, start, start_ranks
from tests.training import failing

FLAGS = {**FEW, "tokens": 200, "dropout": 0.0, "validate_every": 6, "precision": "float32"}


def words_of(folder: Path, **flags: Any) -> list[str]:
    """Return the words of a training command; `True` enables a flag."""
    words = ["train", "translation", "--savepath", str(folder)]
    for name, value in {**write(folder), **FLAGS, **flags}.items():
        values = [] if value is True else value if isinstance(value, tuple) else [value]
        words += [f"--{name}", *map(str, values)]
    return words


def launch(folder: Path, size: int, *words: str) -> tuple[int, str, str]:
    """Run a command in `size` processes, or without the variables of torchrun if 0.

    Returns the first exit status that is not 0, or 0, and the output of all processes.
    """
    output = folder / "output"
    processes = start_ranks(output, size, *words) if size else nullcontext([start(output, *words)])
    with processes as started:
        failed = [status for process in started if (status := process.wait())]
    return (
        next(iter(failed), 0),
        "".join(process.out for process in started),
        "".join(process.err for process in started),
    )


def train(folder: Path, size: int, **flags: Any) -> tuple[int, str, str]:
    return launch(folder, size, *words_of(folder, **flags))


def losses(folder: Path) -> list[tuple[int, float]]:
    lines = (folder / "translation" / "metrics.jsonl").read_text().splitlines()
    return [(line["step"], line["loss"]) for line in map(json.loads, lines)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    status, _, err = train(folder, 0)
    assert status == 0, err
    return folder


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of two processes."""
    folder = tmp_path_factory.mktemp("parallel")
    status, out, err = train(folder, 2)
    assert status == 0, err
    assert out.count("Trained translation for 12 steps") == 1
    return folder


def test_data_parallel_losses_equal_one_process(alone: Path, parallel: Path) -> None:
    found, expected = losses(parallel), losses(alone)
    assert [step for step, _ in found] == [step for step, _ in expected]
    for (_, one), (_, other) in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_sharded_losses_equal_one_process_and_resume_on_another_number(alone: Path, tmp_path: Path) -> None:
    status, _, err = train(tmp_path, 2, sharded=True)
    assert status == 0, err
    for (_, one), (_, other) in zip(losses(tmp_path), losses(alone), strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    whole = regard.load(tmp_path / "translation").model.state_dict()
    for name, value in regard.load(alone / "translation").model.state_dict().items():
        torch.testing.assert_close(whole[name], value, atol=1e-3, rtol=1e-3)
    kept = [path.suffix for path in (tmp_path / "translation" / "trainer").glob("step-*/*")]
    assert sorted(kept) == [".json"] * 2 + [".safetensors"] * 2  # no pickled data
    # Resume from the checkpoint after half of the training steps with one process.
    config = tmp_path / "translation" / "config.json"
    config.write_text(config.read_text().replace('"steps": 12', '"steps": 18'))
    resume = ["train", "translation", "--resume", "--savepath", str(tmp_path)]
    status, _, err = launch(tmp_path, 1, *resume)
    assert status != 0 and "config.json: steps is 18 in config.json, 12 in model.safe" in err
    [part, _] = sorted(tmp_path.glob("translation/trainer/step-*/*.safetensors"))
    content = part.read_bytes()
    part.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    status, _, err = launch(tmp_path, 1, *resume, "--trust-edited")
    assert "step-12: the checkpoint's files have changed since they were written; the file is used unchanged" in err
    assert status == 0, err
    assert [step for step, _ in losses(tmp_path)] == [6, 10, 12, 18]


@pytest.mark.parametrize("sharded", [pytest.param(False, marks=pytest.mark.slow), True])
def test_parameters_of_mechanisms_equal_those_of_one_process(tmp_path: Path, *, sharded: bool) -> None:
    """`cosine` has one number for the layer, `sink` one for each head, `latent` matrices."""
    flags: dict[str, Any] = {"attention": "alibi,cosine,sink,latent", "steps": 6, "validate_every": 3, "lr": 0.01}
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, processes in zip(folders, (0, 2), strict=True):
        folder.mkdir()
        more: dict[str, Any] = {"sharded": True} if sharded and processes else {}
        status, _, err = train(folder, processes, **flags, **more)
        assert status == 0, err
    expected, weights = (regard.load(folder / "translation").model.state_dict() for folder in folders)
    changed = [name for name in expected if name.endswith(("normalizer.sink", "score.gain", "sharing.down.weight"))]
    assert len(changed) == 3 * 3
    for name in changed:
        torch.testing.assert_close(weights[name], expected[name], atol=1e-4, rtol=1e-4)
    assert all((expected[name] != 0).all() for name in changed)


def test_bad_input_stops_all_processes(tmp_path: Path) -> None:
    status, _, err = train(tmp_path, 2, tokens=3)
    assert status != 0 and "tokens 3 is less than" in err
    assert not (tmp_path / "translation").exists()


def test_shares_cover_the_batch() -> None:
    batch = PairBatch(collate([[4], [5, 6], [7]]), collate([[8, 9], [9], [4, 4]]))
    shares = [DistributedContext(rank, 2).share(batch)[0] for rank in range(2)]
    assert torch.equal(torch.cat([each.source for each in shares]), batch.source[[0, 2, 1]])
    assert sum(each.tokens for each in shares) == batch.tokens
    few = [DistributedContext(rank, 4).share(batch)[0] for rank in range(4)]
    assert sum(each.tokens for each in few) == batch.tokens
    assert len(few[3].source) == 1 and (few[3].target == PAD).all()  # participates in the step without samples


def restart(folder: Path, step: int) -> Started:
    """Train with torchrun on two processes, of which one is killed at a step of the first start."""
    from torch.distributed.run import main as torchrun

    flags = ["--standalone", "--nproc-per-node=2", "--max-restarts=1", "--start-method=fork", "--run-path"]
    words = [*flags, failing.__file__, "SIGKILL", str(step), *words_of(folder, overwrite=True)]
    return start(folder / "output", *words, program=torchrun)


def test_restarted_processes_continue_at_the_last_checkpoint(parallel: Path, tmp_path: Path) -> None:
    """If a process is killed at step 9, after the checkpoint at step 6, the earlier run is still replaced."""
    assert train(tmp_path, 0, seed=1)[0] == 0
    done = restart(tmp_path, 9)
    assert done.wait() == 0, done.err
    assert losses(tmp_path) == losses(parallel)
    assert done.err.count("step 6 of 12") == 1  # before the restart
    assert done.out.count("Trained translation for 12 steps") == 1
    assert "regard: process 0 of 2 lost the connection to another process, because that process ended" in done.err
    assert "pair.cc" not in done.err


@pytest.mark.slow
def test_restarted_processes_replace_an_earlier_run_of_equal_flags(tmp_path: Path) -> None:
    """If a process is killed before the new run exists, the restarted processes do not continue the old run."""
    assert train(tmp_path, 2)[0] == 0
    old = (tmp_path / "translation").stat().st_ino
    done = restart(tmp_path, -1)
    assert done.wait() == 0, done.err
    assert (tmp_path / "translation").stat().st_ino != old
    assert done.out.count("Trained translation for 12 steps") == 1


def test_start_from_a_run_on_a_mixture_is_equal_on_two_processes(alone: Path, tmp_path: Path) -> None:
    text = write(tmp_path)
    words = ["train", "translation", "--from", str(alone / "translation"), "--train", *text["train"]]
    words += [*text["valid"], "--weights", "1", "2", "--steps", "11", "--freeze", "embedding", "encoder.0"]
    found = []
    for processes in (0, 2):
        folder = tmp_path / str(processes)
        status, _, err = launch(folder, processes, *words, "--savepath", str(folder))
        assert status == 0, err
        assert err.count("Training on 33.3% from 240 pairs, and 66.7% from 24 pairs") == 1
        found.append(losses(folder))
    for (_, one), (_, other) in zip(*found, strict=True):
        assert one == pytest.approx(other, rel=1e-4)
    one, other = (regard.load(tmp_path / each / "translation").model.state_dict() for each in ("0", "2"))
    before = regard.load(alone / "translation").model.state_dict()
    frozen = [name for name in before if name.startswith(("target_embedding.", "encoder.layers.0."))]
    assert frozen and all(torch.equal(one[name], other[name]) for name in frozen)
    assert all(torch.equal(before[name], other[name]) == (name in frozen) for name in before)

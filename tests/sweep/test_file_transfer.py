"""Transfer of runs and code between machines: the sent files, their order, and interrupted transfers."""

import shutil
from pathlib import Path

import pytest

from regard.errors import InputError
from regard.io import hold_lock
from regard.sweep import file_transfer
from regard.sweep.file_transfer import claim_run, collect_code, pack, read_last_step, unpack, write_code
from regard.sweep.job import Job, make_job, measure
from regard.training import make_config
from tests.conftest import TINY
from tests.german import write
from tests.sweep.cluster import LostError, job, lose_at, short_checkpoints

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return a training that was lost after its second checkpoint."""
    training = job(tmp_path / "there")
    short_checkpoints(monkeypatch)
    with monkeypatch.context() as patch:
        lose_at(20, patch)
        with pytest.raises(LostError):
            measure(training)
    return training


def test_a_transferred_run_resumes(tmp_path: Path, lost: Job) -> None:
    files, _ = pack(lost.folder, {})
    here = Job(lost.stored, tmp_path / "here")
    unpack(files, here)
    assert read_last_step(here.run) == 20 and here.interrupted()
    whole = job(tmp_path / "whole")
    expected, resumed = measure(whole), measure(here)
    assert resumed.seconds is None and (resumed.loss, resumed.exact_match) == (
        expected.loss,
        expected.exact_match,
    )
    assert here.run.model_file.read_bytes() == whole.run.model_file.read_bytes()
    assert here.run.metrics_file.read_bytes() == whole.run.metrics_file.read_bytes()


def test_the_receiver_prepares_the_text_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {**TINY, "steps": 30, "validate_every": 10, **write(tmp_path)}
    there, here, whole = (
        make_job(make_config("translation", flags), tmp_path / name) for name in ("there", "here", "whole")
    )
    with monkeypatch.context() as patch:
        lose_at(20, patch)
        with pytest.raises(LostError):
            measure(there)
    files, _ = pack(there.folder, {})
    assert not any("prepared" in name for name in files) and (there.folder / "prepared").is_dir()
    unpack(files, here)
    assert measure(here).loss == measure(whole).loss
    assert here.run.model_file.read_bytes() == whole.run.model_file.read_bytes()


def test_the_state_of_a_training_is_written_last(lost: Job) -> None:
    (lost.folder / "prepared").mkdir()
    (lost.folder / "prepared" / "corpus").touch()  # prepared again from the text
    (lost.folder / ".counting.lock").touch()
    names = [Path(name).name for name in pack(lost.folder, {})[0]]
    states = [name for name in names if name.startswith("step-")]
    assert names[-len(states) :] == states and "step-20.safetensors" in states
    assert {*names} - {*states} == {"config.json", "metrics.jsonl", "model.safetensors"}


def test_only_changed_files_are_sent(lost: Job) -> None:
    _, stamps = pack(lost.folder, {})
    assert pack(lost.folder, stamps)[0] == {}
    measure(lost)
    files, _ = pack(lost.folder, stamps)
    assert sorted(Path(name).name for name in files) == [
        "measured.json",
        "metrics.jsonl",
        "model.safetensors",
        "step-30.safetensors",
    ]


def test_an_interrupted_write_leaves_a_run(tmp_path: Path, lost: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Job(lost.stored, tmp_path / "here")
    first, stamps = pack(lost.folder, {})
    unpack(first, here)
    measure(lost)
    files, _ = pack(lost.folder, stamps)
    write = file_transfer.write_file
    for limit in range(len(files)):
        left = limit

        def write_some(path: Path, content: bytes) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise LostError
            write(path, content)

        with monkeypatch.context() as patch:
            patch.setattr(file_transfer, "write_file", write_some)
            with pytest.raises(LostError):
                unpack(files, here)
        assert here.interrupted() and here.read() is None
        copy = Job(here.stored, tmp_path / f"copy-{limit}")
        shutil.copytree(here.folder, copy.folder)
        measure(copy)
        assert copy.run.model_file.read_bytes() == lost.run.model_file.read_bytes()
    unpack(files, here)
    assert here.read() == lost.read() and read_last_step(here.run) == 30
    assert [path.name for path in (here.run.path / "trainer").iterdir()] == ["step-30.safetensors"]


def test_claim_run_locks_the_run(tmp_path: Path) -> None:
    here = job(tmp_path / "here")
    with claim_run(here):
        with pytest.raises(InputError, match="is being written by process"):
            with hold_lock(here.run.path):
                pass
    here.run.path.mkdir(parents=True)
    (here.run.path / "thesis.txt").touch()
    with pytest.raises(InputError, match="exists and is not a run"):
        with claim_run(here):
            pass
    assert here.read() is None


def test_sent_code_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a local training: the returned run can be resumed."""
    trusted: list[str] = []
    monkeypatch.setattr(file_transfer, "trust", lambda stored: trusted.append(stored["on"]))
    with claim_run(job(tmp_path, str(EXAMPLES / "doubles.py"))):
        assert trusted == [str(EXAMPLES / "doubles.py")]


def test_own_code_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    (mine / "mypackage").mkdir(parents=True)
    (mine / "doubles.py").write_text((EXAMPLES / "doubles.py").read_text())
    (mine / "beside.py").write_text("N = 3\n")
    (mine / "large.py").write_bytes(b"#" * (file_transfer.LARGEST + 1))
    (mine / "mypackage" / "__init__.py").touch()
    (mine / "mypackage" / "looking.py").write_text((EXAMPLES / "lookback.py").read_text())
    monkeypatch.syspath_prepend(mine)
    code = collect_code(job(tmp_path / "a", str(mine / "doubles.py")))
    assert [sorted(files) for files in code.folders] == [["beside.py", "doubles.py"]]
    copy = (str(mine / "doubles.py"), theirs / "code-0" / "doubles.py")
    assert write_code(code, theirs) == ([theirs / "code-0"], copy)
    looking = collect_code(job(tmp_path / "b", "reverse", model="mypackage.looking:LookBack"))
    [files] = looking.folders
    assert looking.task is None
    assert sorted(files) == ["beside.py", "doubles.py", "mypackage/__init__.py", "mypackage/looking.py"]


def test_installed_packages_are_not_sent(tmp_path: Path) -> None:
    assert collect_code(job(tmp_path)).folders == []
    for module in ("pytest", "regard.models", "no_such"):
        assert file_transfer._find_code(module) == []

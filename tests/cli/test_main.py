"""The command line: processes, names in errors, edited runs, and parameters that are not finite."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import regard
from docs import help_pages
from regard.cli import COMMANDS, data, help
from regard.tasks.all_tasks import list_tasks
from regard.training.run_folder import pack_tensors, read_tensors
from tests.conftest import Command
from tests.processes import Started, start

REGARD = [sys.executable, "-m", "regard"]


def shell(*argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*REGARD, *map(str, argv)], capture_output=True, text=True, cwd=cwd, timeout=120)


def test_help_names_every_command_without_loading_pytorch(tmp_path: Path) -> None:
    code = (
        "import sys, regard.cli; status = regard.cli.main(['--help']);"
        "assert 'torch' not in sys.modules and 'tyro' not in sys.modules; sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("train", "test", "tasks"))


def test_help_has_groups_of_commands(command: Command) -> None:
    _, out, _ = command("--help")
    lines = out.splitlines()
    assert len(lines) <= 40
    groups = ["train:", "look:", "explain:", "compare:", "translate:", "learn:", "exchange:"]
    assert [line for line in lines if re.fullmatch(r"[a-z]+:", line)] == groups


def test_train_test_and_plot(tmp_path: Path) -> None:
    trained = shell("train", "signal2", "--steps=30", "--hidden", "16", "--enc-layers=2", cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert "Trained signal2 for 30 steps" in trained.stdout and "models/signal2" in trained.stdout
    assert "step 30 of 30" in trained.stderr
    tested = start(tmp_path, "test", "signal2", "--input", "BCCCBAABACCCA", "--weights", "--plot", folder=tmp_path)
    assert tested.wait() == 0, tested.err
    for part in (
        "Exact match: ",
        "of 10,000 fresh samples of 10 letters",
        "Attention on relevant inputs (uniform attention: ",
        "head 3",
        "uniform attention: 33",
        "Input:      'BCCCBAABACCCA'",
        "Truth:      [2, 4, 4]",
        "Output step 1 (count C (1st))",
        "Head #2 attended mainly to Input steps: [",
        "L2-Norm of Input Positional Encoding:",
        "Saved models/signal2/attention.png",
    ):
        assert part in tested.out, part
    assert (tmp_path / "models/signal2/attention.png").read_bytes().startswith(b"\x89PNG")


def stopped(folder: Path, number: int) -> Started:
    """Train without end in `folder`, and send a signal after the first metrics."""
    process = start(folder, "train", "counting", "--steps", "1000000", folder=folder)
    deadline = time.monotonic() + 60
    while not (folder / "models/counting/metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, number)
    return process


def test_ctrl_c_saves_and_resume_continues(tmp_path: Path) -> None:
    process = stopped(tmp_path, signal.SIGINT)
    assert process.wait() == 130
    err = process.err
    assert err.splitlines()[-1] == (
        "regard: stopped and saved in models; continue with `regard train counting --resume`"
    )
    assert "Traceback" not in err
    refused = start(tmp_path, "train", "counting", "--resume", "--seed", "20", folder=tmp_path)
    assert refused.wait() == 2
    assert refused.err == (
        "regard: seed 20 differs from the run's 0: a resumed run keeps its flags; leave seed out, or train a new run\n"
    )


def test_sigterm_saves_too(tmp_path: Path) -> None:
    process = stopped(tmp_path, signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    assert process.err.splitlines()[-1].startswith("regard: stopped and saved in models; continue with")
    assert start(tmp_path, "test", "counting", "--samples", "10", folder=tmp_path).wait() == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX limits on the size of files")
def test_disk_error_is_one_line_and_status_1(tmp_path: Path) -> None:
    """Training reports a full disk in one line. A limit on file sizes simulates the full disk."""
    code = (
        "import resource, signal, sys; from regard.cli import main;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000));"
        "sys.exit(main(['train', 'counting', '--steps', '5']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("regard: cannot write ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("argv", [["--help"], ["prune", "--help"], ["tasks"]])
def test_an_output_that_cannot_be_written_is_one_line(argv: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*REGARD, *argv], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("regard: cannot write the output: No space left on device")
    assert len(done.stderr.splitlines()) == 1


def test_closed_pipe_gives_no_traceback(tmp_path: Path) -> None:
    line = f"{sys.executable} -m regard tasks | true"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""


def test_unexpected_error_is_one_line_and_a_report_file(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(argv: list[str]) -> None:
        raise ZeroDivisionError("by \udce9 zero")

    monkeypatch.setattr(data, "run_tasks", broken)
    status, out, err = command("tasks")
    assert (status, out) == (1, "") and err.count("\n") == 1 and "Traceback" not in err
    assert err.startswith("regard: internal error, ZeroDivisionError: by \\udce9 zero; the traceback is in ")
    file = Path(err.split(" is in ")[1].split(": please")[0])
    assert "ZeroDivisionError" in file.read_text() and "'tasks'" in file.read_text()
    file.unlink()
    monkeypatch.setenv("REGARD_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        command("tasks")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_too_little_memory_is_one_line(tmp_path: Path) -> None:
    for kilobytes in (120_000, 200_000):
        command = f"ulimit -v {kilobytes}; {' '.join(REGARD)} train counting --steps 1"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 1 and done.stderr.startswith("regard: out of memory: "), done.stderr
        assert done.stderr.count("\n") == 1 and not list(tmp_path.iterdir())


def test_an_empty_path_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    from tests.faults.lines import forms

    monkeypatch.chdir(tmp_path)
    found = {}  # every flag with a path value, and the words between the command and the flag
    for form in forms(["models/none"]):
        for flag in form.flags:
            if flag.hint is Path or Path in getattr(flag.hint, "__args__", ()):
                found[(form.command, flag.name)] = list(form.words)
    paths = [(name, [verb, *words]) for (verb, name), words in found.items()]
    assert {"stubs", "site", "notebooks", "json", "savepath"} <= {name for name, _ in paths} and len(paths) > 30
    for name, words in paths:
        vary = ["--vary", "lr=0.1,0.2"] if words[0] == "compare" else []
        for given in ([f"--{name}="], [f"--{name}", ""], [f"--{name.replace('_', '-')}="]):
            status, _, err = command(*words, *vary, *given)
            assert status == 2 and f"flag --{name} has an empty path" in err, (words, given, err)
    for words in (["learn", "--stubs="], ["test", ""], ["train", "", "--steps=1"], ["check", ""], ["look", ""]):
        status, _, err = command(*words)
        assert status == 2 and err.count("\n") == 1, err
    assert not list(tmp_path.iterdir())


def test_lists_every_task_with_an_example(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "480")
    status, out, _ = command("tasks")
    assert status == 0
    for example in list_tasks():
        assert example.task in out and f"'{example.input}'" in out


@pytest.mark.parametrize("library", ["matplotlib", "safetensors"])
def test_a_broken_library_is_named(tmp_path: Path, library: str) -> None:
    regard.train("counting", hidden=4, heads=1, steps=1, savepath=tmp_path / "models", progress=False)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / f"{library}.py").write_text("raise ValueError('broken')")
    path = os.pathsep.join([str(tmp_path / "broken"), *sys.path])
    command = [sys.executable, "-P", "-m", "regard", "plot", "positions", "-o", "model.png"]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert f"importing {library} fails: " in ended.stderr
    assert ended.stderr.endswith(f"; reinstall it with pip install --force-reinstall {library}\n")


# Errors name the content of a folder and both values of a conflicting flag. Help texts fit the terminal.


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    """Create a folder that looks like a Hugging Face model."""
    folder = tmp_path / "peer"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", "architectures": ["BertModel"]}))
    return folder


def _refused(command: Command, *argv: str | Path) -> str:
    status, _, err = command(*argv)
    assert status == 2 and err.count("\n") == 1
    return err


@pytest.mark.parametrize("name", ["show", "examine", "explain", "prune"])
def test_wrong_training_flags_are_reported_with_both_values(
    command: Command, trained: regard.AnswerRun, name: str
) -> None:
    assert "was trained with hidden 8, not 12: train another" in _refused(
        command, name, trained.folder, "--hidden", "12"
    )
    assert "was trained with multihead True, not False" in _refused(command, name, trained.folder, "--no_multihead")
    assert "--hidden 8 is fixed by the run: leave it out" in _refused(command, name, trained.folder, "--hidden", "8")
    assert "Unrecognized options: --foo, 3" in _refused(command, name, trained.folder, "--foo", "3")


@pytest.mark.parametrize("without", [False, True])
def test_look_explains_a_wrong_name(
    command: Command, trained: regard.AnswerRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: bool
) -> None:
    """The folder is recognized even if transformers is not installed."""
    if without:
        monkeypatch.setitem(sys.modules, "transformers", None)
    else:
        pytest.importorskip("transformers", reason="needs the extra peers")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the variable was read at import
    monkeypatch.chdir(tmp_path)
    assert "is a run of Regard: open it with `regard show" in _refused(command, "look", trained.folder)
    found = _refused(command, "look", "nofolder")
    if without:
        assert "'nofolder' is not a folder: check the path." in found
    else:
        assert "'nofolder' is not a folder here, and the Hugging Face cache has no copy" in found
    shutil.copytree(trained.folder, tmp_path / "models" / "mine")
    found = _refused(command, "look", "mine")
    assert "'mine' is not a folder here, but a run in 'models': open it with `regard show mine`" in found


@pytest.mark.parametrize("name", ["show", "test", "examine", "export", "align"])
def test_run_commands_recognize_a_model_folder(command: Command, peer: Path, name: str) -> None:
    found = _refused(command, name, peer)
    assert "is a Hugging Face model, not a run: inspect it with `regard look" in found


def test_translate_and_import_recognize_folders(command: Command, peer: Path, trained: regard.AnswerRun) -> None:
    assert "is a Hugging Face model, not a run" in _refused(command, "translate", peer, "x")
    found = _refused(command, "import", trained.folder)
    assert f"is already a run of Regard: open it with `regard show {trained.folder}`" in found


@pytest.mark.parametrize("words", ["", *COMMANDS, "train translation"])
def test_help_shows_about_ten_flags_in_80_columns(
    command: Command, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = command(*words.split(), "--help")
    assert status == 0 and max(map(len, out.splitlines())) <= 80 and "default: None" not in out
    assert len(re.findall("^  -", out, re.MULTILINE)) <= 12 and re.search(r"Flags: |all \d+ flags?\.\n$", out)


def test_stored_help_is_that_of_the_commands_and_needs_no_pytorch(tmp_path: Path) -> None:
    assert help.PAGES.read_text(encoding="utf-8") == help_pages.make_pages(), "run make build-help"
    names = [name for names in help.FIRST.values() for name in names.split()]
    assert {*names} <= {flag[1] for flag in json.loads(help.PAGES.read_text())["flags"]}
    code = "import sys; from regard.cli import main; main(sys.argv[1:]); assert not {'torch', 'numpy'} & {*sys.modules}"
    for words in ("train", "train dates --model=transformer", "train text --steps 5", "test RUN", "card"):
        subprocess.run([sys.executable, "-c", code, *words.split(), "--help"], check=True, capture_output=True)


# Every command that loads a run refuses an edited run in one line, and uses the run with --trust-edited.


PAIR = "der Hund\tthe dog\n"


@pytest.fixture(scope="module")
def edited(german: regard.TranslationRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return runs with one changed value in the config: a translator, and a run without text."""
    root = tmp_path_factory.mktemp("edited")
    shutil.copytree(german.folder, root / "translation")
    regard.train("signal2", hidden=8, heads=2, steps=2, pos_enc=True, savepath=root, progress=False)
    for run in ("translation", "signal2"):
        stored = json.loads((root / run / "config.json").read_text())
        stored["options"]["seed"] = 7
        shutil.copytree(root / run, root / "sound" / run)
        (root / run / "config.json").write_text(json.dumps(stored))
    (root / "pairs.tsv").write_text(PAIR)
    (root / "text").write_text("der Hund\n")
    return root


ON_EDITED_RUNS = {
    "test": "test signal2 --samples 5",
    "test translation": "test translation --data pairs.tsv --beam 1",
    "examine": "examine signal2 --samples 2",
    "explain": "explain signal2",
    "prune": "prune signal2 --output pruned --overwrite",
    "translate": "translate translation der --engine regard",
    "align": "align translation text text",
    "score": "score translation --input pairs.tsv",
    "plot": "plot positions signal2 -o positions.png",
    "clean": "clean pairs.tsv --runs runs/translation --savepath cleaned",
    "resume": "train signal2 --resume",
    "from": "train signal2 --from signal2 --overwrite --steps 1",
    "export": "export translation --output exported",
    "show": "show signal2 --no-browser",
    "compare_with": "show sound/signal2 --compare-with signal2 --no-browser",
    "reverse": "align sound/translation text text --reverse translation",
}
REFUSED = ("export", "show", "compare_with", "reverse")
"""Commands that take long or do not end, or that fail for another reason with --trust-edited."""


@pytest.mark.parametrize("name", ON_EDITED_RUNS)
def test_commands_refuse_an_edited_run(
    edited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, name: str
) -> None:
    shutil.copytree(edited, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    for file in ("pairs.tsv", "text"):
        (tmp_path / "runs" / file).rename(tmp_path / file)
    (tmp_path / "sound").symlink_to(tmp_path / "runs" / "sound")
    words = ON_EDITED_RUNS[name].split()
    where = () if name == "clean" else ("--savepath", "runs")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    status, out, err = command(*words, *where)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "was edited or mixed with another run: config.json: seed is 7 in config.json, " in err
    assert "restore a copy of the run" in err and "add --trust-edited" in err
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
    if name in REFUSED:
        return
    status, _, err = command(*words, *where, "--trust-edited")
    told = [line for line in err.splitlines() if "was edited" in line]
    assert status == 0 and len(told) == 1 and "the file is used unchanged (--trust-edited)" in told[0]


def test_show_refuses_an_edited_examination(edited: Path, tmp_path: Path, command: Command) -> None:
    shutil.copytree(edited / "sound" / "signal2", tmp_path / "signal2")
    assert command("examine", tmp_path / "signal2", "--samples", "2")[0] == 0
    file = tmp_path / "signal2" / "examined.json"
    file.write_text(file.read_text().replace("cross", "Cross", 1))
    status, out, err = command("show", tmp_path / "signal2", "--no-browser")
    assert (status, out, err.count("\n")) == (2, "", 1) and "examined.json: the file has changed since" in err


# Commands on a run with non-finite parameters fail with a one-line error that names the first such parameter.


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
    trained: regard.AnswerRun, tmp_path: Path, command: Command, value: float
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
    translator: regard.PairRun, tmp_path: Path, command: Command, value: float
) -> None:
    run = spoiled(translator.folder, tmp_path / "run", value, "target_embedding.weight")
    (tmp_path / "a").write_text("3. Mai 1979\t1979-05-03\n", encoding="utf-8")
    for words in (["translate", "3. Mai 1979", "--plot"], ["score", "--input", tmp_path / "a"], ["explain"]):
        status, _, err = command(words[0], run, *map(str, words[1:]))
        assert status == 0 and "fault" not in err and "Runtime" not in err, err
        assert value == 1e30 or "target_embedding.weight of" in err.splitlines()[0]

"""Samples of the campaigns; and the campaigns detect planted faults."""

import contextlib
import os
import pickle
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

import regard
import regard.io
from regard.cli import COMMANDS, main as command_line
from regard.server import app
from regard.server.app import ENDPOINTS, make_app
from regard.server.explorer import Explorer
from regard.training import run_folder
from regard.training.checkpoint import Checkpoint, TrainingState
from regard.training.run_folder import RunFolder
from tests.faults import commands, damage, files, foreign, kills, learners, links, requests, texts, together
from tests.faults.children import Ended, Streams
from tests.faults.ground import at_home, make_ground, warm_up
from tests.faults.lines import Line, forms
from tests.faults.report import Report
from tests.faults.scenes import scenes
from tests.server.running import Answer

pytestmark = pytest.mark.skipif(os.name != "posix", reason="commands are tried in forked children")
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def ground() -> Iterator[Path]:
    """Yield the site, which both campaigns copy. Its runs name their texts, so an unprivileged user must be able
    to read the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        warm_up()
        with mock.patch.dict(os.environ), mock.patch.object(tempfile, "tempdir", None):
            with at_home(Path(scratch).resolve()):
                site = make_ground(Path(scratch).resolve())
        yield site


def sound(report: Report) -> dict[str, int]:
    """Return the counts of a campaign without faults."""
    assert not report.faults, report.told()
    return report.counts


def detected(report: Report, fault: str = "") -> None:
    faults = [fault for trial in report.trials for fault in trial.faults]
    assert any(fault in each for each in faults), report.told()


def test_a_sample_of_command_lines(ground: Path) -> None:
    # Servers and commands that work for longer are stopped, as after the four seconds of a whole campaign.
    with mock.patch.object(commands, "PATIENCE", 1.5):
        counts = sound(commands.main(60, seed=0, ground=ground))
    assert counts["done (status 0)"] > 2 and counts["refused (status 2)"] > 25


def test_every_command_is_tried_with_all_its_flags(trained: regard.AnswerRun) -> None:
    every = forms([str(trained.folder)])
    assert {form.command for form in every} == set(COMMANDS)
    assert all(form.flag("steps") and form.flag("savepath") for form in every if form.command == "train")


LINE = Line(("test", "copy", "--samples", "x"), ("samples", "x"), Streams())
REFUSED: dict[str, Any] = {
    "status": 2,
    "out": "",
    "err": "regard: samples 'x' is no number\n",
    "told": (),
    "stopped": False,
    "hung": False,
    "left_alive": False,
    "seconds": 0.1,
}


@pytest.mark.parametrize(
    ("change", "changed", "left", "fault"),
    [
        ({}, (), (), None),
        ({"err": "Traceback (most recent):\nValueError: x\n"}, (), (), "traceback: ValueError: x"),
        ({"err": ""}, (), (), "0 lines for a refusal"),
        ({"err": "regard: a\nregard: b\n"}, (), (), "2 lines for a refusal"),
        ({"err": "Warning: glyph\nregard: samples 'x' is none\n"}, (), (), "somebody else's words"),
        ({"err": "regard: something is wrong\n"}, (), (), "names nothing that was given"),
        ({"status": 139}, (), (), "status 139"),
        ({"hung": True}, (), (), "hangs"),
        ({"left_alive": True}, (), (), "leaves a process"),
        ({"told": ("unpickles: pickle.loads",)}, (), (), "unpickles"),
        ({}, ("models/copy/config.json",), (), "was refused, and changed"),
        ({}, (), ("torch_1",), "leaves a temporary file"),
        ({"status": 0, "err": ""}, ("models/.copy.lock",), (), "leaves models/.copy.lock"),
    ],
)
def test_faults_of_commands_are_recognized(
    change: dict[str, Any], changed: tuple[str, ...], left: tuple[str, ...], fault: str | None
) -> None:
    found = commands.faults_of(LINE, Ended(**{**REFUSED, **change}), set(changed), set(left))
    assert not found if fault is None else any(each.startswith(fault) for each in found), found


def test_unpickling_is_detected(ground: Path) -> None:
    """Unpickling while reading a run is detected."""
    content, read = pickle.dumps([1]), RunFolder.read_config

    def unpickling(folder: RunFolder, **others: Any) -> Any:
        pickle.loads(content)
        return read(folder, **others)

    # Commands that train for longer, such as `bench`, are stopped after a second.
    with mock.patch.object(RunFolder, "read_config", unpickling), mock.patch.object(commands, "PATIENCE", 1.0):
        detected(commands.main(10, seed=0, ground=ground), "unpickles")


def test_a_sample_of_damaged_files() -> None:
    counts = sound(files.main(60, seed=0))
    assert counts["unharmed"] > 3 and counts["refused"] > 8


@slow
@pytest.mark.parametrize("name", foreign.KINDS)
def test_a_sample_of_damaged_folders(name: str) -> None:
    report = foreign.main(name, 15, seed=0)
    if not report.trials:
        pytest.skip(f"needs {', '.join(foreign.KINDS[name].needs)}")
    sound(report)


@slow
def test_a_sample_of_texts() -> None:
    pytest.importorskip("ctranslate2")
    report = texts.main(60, seed=3)
    sound(report)
    assert {trial.kind for trial in report.trials} == set(texts.KINDS)


@slow
def test_a_sample_of_learners_files() -> None:
    sound(learners.main(6, seed=0))


@pytest.mark.parametrize(
    ("status", "out", "err", "fault"),
    [
        (1, "mine.py: stopped, crashed\n", "", None),
        (0, "score: right\n", "", None),
        (1, "", "", "no line says what happened"),
        (1, "score: right\n", "", "status 1 after score: right"),
        (2, "score: right\n", "regard: internal error\n", "internal error"),
        (1, "score: wrong\n", "Traceback\n", "standard error: Traceback"),
    ],
)
def test_faults_of_checks_are_recognized(status: int, out: str, err: str, fault: str | None) -> None:
    found = list(learners.faults_of(status, out, err))
    assert found == [] if fault is None else any(fault in each for each in found)


SAMPLE = 250


def impatient() -> int:
    """Run Regard with a short time limit for the body of a request, which some requests reach."""
    app.BODY_SECONDS = 0.7
    return command_line()


def test_a_sample_of_requests(trained: regard.AnswerRun) -> None:
    counts = sound(requests.main(SAMPLE, 0, run=trained.folder, program=impatient))
    assert sum(counts.values()) == SAMPLE
    assert {f"status {each}" for each in (200, 400, 403, 404, 405, 413, 415, 422)} <= set(counts)


def test_a_request_can_be_repeated_and_every_route_is_tried(trained: regard.AnswerRun) -> None:
    request_of, routes = requests.request_of, requests.routes_of(make_app(Explorer(trained)))
    assert {path for _, path in routes} > set(ENDPOINTS) | {"/", "/view.js"}
    sent = [request_of(seed, routes) for seed in range(SAMPLE)]
    assert sent == [request_of(seed, routes) for seed in range(SAMPLE)] and len(set(sent)) > SAMPLE / 2
    for path in ENDPOINTS:
        assert any(path.encode() in each for each in sent)
    new = requests.routes_of(Starlette(routes=[Route("/new", lambda request: None)]))
    assert any(b" /new HTTP" in request_of(seed, new) for seed in range(20))


def test_faults_of_answers_are_recognized() -> None:
    judge = requests.judge

    def found(status: int, body: bytes, given: bytes = b"GET / HTTP/1.1") -> str | None:
        return judge(given, Answer(status, {}, body))

    assert found(200, b"anything") is None and found(404, b"", b"HEAD / HTTP/1.1") is None
    assert found(422, b'{"error": "seed -1 does not fit: give another"}') is None
    assert judge(b"", None) == "no answer"
    asked = b'POST /api/attend HTTP/1.1\r\n\r\n{"interventions": [{"layer": "cross"}]}'
    assert found(200, b'{"map": {"interventions": ["cross: all heads off"]}, "original": {}}', asked) is None
    hidden = found(200, b'{"map": {"interventions": []}, "original": {}}', asked)
    assert hidden == "1 interventions, of which the map names []"
    assert found(200, b"{}", b"GET / HTTP/1.1\r\norigin: http://evil.example\r\n\r\n") is not None
    for status, body in [
        (500, b'{"error": "a line that says what is wrong"}'),
        (404, b"Not Found"),
        (422, b'{"error": "a line that says\\nand says on"}'),
        (422, b'{"error": ""}'),
        (422, b'{"detail": "a line that says what is wrong"}'),
    ]:
        assert found(status, body) is not None


@slow
def test_a_sample_of_links() -> None:
    assert sum(sound(links.main(30, seed=0)).values()) == 30


@slow
def test_writing_through_a_link_is_detected() -> None:
    real = regard.io._replace

    def through(path: Path, content: bytes) -> None:
        real(Path(os.path.realpath(path)), content)

    with mock.patch.object(regard.io, "_replace", through), only_scene(links, "examine", "link"):
        detected(links.main(None, seed=0), "changes what a link led to")


def only_scene(campaign: Any, name: str, way: str) -> Any:
    """Restrict a campaign to a single scene, and to one way of interrupting it."""
    one = [scene for scene in scenes() if scene.name == name]
    return mock.patch.multiple(campaign, scenes=lambda: one, WAYS=(way,))


FEW = ("train counting", "resume translation", "overwrite", "test, to files")
"""Scenes of `make test`, because preparing all scenes takes 12 seconds."""


def test_a_sample_of_kills_and_full_disks() -> None:
    few = [scene for scene in scenes() if scene.name in FEW]
    assert len(few) == len(FEW)
    with mock.patch.object(kills, "scenes", lambda: few):
        assert sum(sound(kills.main(5, seed=0)).values()) == 5


@slow
def test_a_sample_of_signals() -> None:
    sound(kills.main_signals(20, seed=0))


@slow
def test_a_sample_of_two_commands_at_once() -> None:
    assert len(sound(together.main(20, seed=0))) == 2


@slow
def test_wrong_order_of_a_checkpoint_is_detected() -> None:
    """The training state is written before its model."""

    def save(state: TrainingState, folder: RunFolder, *_: object, use: bool = True) -> None:
        Checkpoint(step=state.step, training=state.tensors()).save(folder)
        if use:
            Checkpoint(step=state.step, weights=state.weights()).save(folder)

    with only_scene(kills, "train counting", "die"), mock.patch.object(TrainingState, "save", save):
        detected(kills.main(None, seed=0), "model.safetensors")


@slow
def test_files_written_in_place_are_detected() -> None:
    with only_scene(kills, "test, to files", "die"), mock.patch.object(regard.io, "_replace", Path.write_bytes):
        detected(kills.main(None, seed=0), "neither the old one nor the new one")


@slow
def test_missing_lock_is_detected() -> None:
    @contextlib.contextmanager
    def free(_: Path) -> Iterator[None]:
        yield

    with (
        mock.patch("regard.training.distributed.hold_lock", free),
        mock.patch("regard.runs.derived_runs.hold_lock", free),
    ):
        detected(together.main(40, seed=0))


@slow
def test_missing_checksum_is_detected() -> None:
    flips = mock.patch.object(files, "WAYS", [damage.flip])
    read = run_folder._read_values
    with flips, mock.patch.object(run_folder, "_read_values", lambda *args: (read(*args)[0], True)):
        detected(files.main(100, seed=1), "other numbers")

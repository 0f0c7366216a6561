"""Models that are trained to follow a program: interchange accuracy, stored models, and programs that resist."""

from pathlib import Path

import pytest
import torch

from regard.streams import make_generator
from regard_lab.bench import known_models
from regard_lab.bench.bench import bench
from regard_lab.bench.known_models import ResistsError, all_texts, circuit_nodes, measure_agreement, trained_in_model
from regard_lab.programs.compiler import compile_program
from regard_lab.programs.library import PROGRAMS


@pytest.mark.parametrize("name", ["previous", "reverse"])
def test_a_program_agrees_with_itself(name: str) -> None:
    compiled = compile_program(PROGRAMS[name])
    generator = make_generator(0, "test")
    agreement = measure_agreement(
        compiled, compiled.model, all_texts(compiled), circuit_nodes(compiled), 200, generator
    )
    assert agreement == (1.0, 1.0, 0.0)


@pytest.mark.slow
def test_a_trained_model_follows_its_program_and_is_stored(tmp_path: Path) -> None:
    known = trained_in_model("previous", 0, tmp_path)
    [report] = tmp_path.glob("*.json")
    written = report.stat().st_mtime_ns
    again = trained_in_model("previous", 0, tmp_path)
    assert report.stat().st_mtime_ns == written
    for name, value in known.subject.model.state_dict().items():
        assert torch.equal(again.subject.model.state_dict()[name], value)
    compiled = compile_program(PROGRAMS["previous"])
    groups, nodes = all_texts(compiled), circuit_nodes(compiled)
    agreement = measure_agreement(compiled, known.subject.model, groups, nodes, 500, make_generator(1, "test"))
    assert min(agreement.accuracy, agreement.interchange) >= 0.98 and agreement.outside <= 0.02
    assert known.circuit is not None and known.circuit.needed == compiled.circuit.needed


def test_a_program_that_resists_is_named(
    in_this_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_models, "STEPS", 2)
    with pytest.raises(ResistsError, match="after 2 steps"):
        trained_in_model("previous", 0, tmp_path / "models")
    result = bench("attention", models="trained-in/previous", seeds=1, savepath=tmp_path, progress=False)
    assert list(result.resisted) == ["previous, seed 0"] and not result.columns
    assert any("not trained in: previous, seed 0: after 2 steps" in note for note in result.notes)

"""The further measurements of lessons, on small runs."""

from pathlib import Path

import pytest

import regard
from regard_course import lesson_runs
from regard_course.lesson_runs import MEASURES, measure, run_flags
from regard_course.lessons.lesson import FIGURES, find_lesson


@pytest.mark.parametrize("lesson", MEASURES)
def test_a_lesson_reports_fractions_with_labels(lesson: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson_runs, "SAMPLES", 60)
    run = find_lesson(lesson).runs[0]
    flags = {**run.flags, "steps": 20, "validate_every": 10}
    trained = regard.train(run.task, **flags, savepath=tmp_path, progress=False)
    figures = measure(lesson, trained)
    extra = set(figures) - set(vars(trained.figures()))
    assert extra and extra <= set(FIGURES)
    for name in extra:
        value = figures[name]
        assert value is not None and 0 <= value <= 1, name


def test_the_lens_reads_the_answer_only_at_the_end_of_an_untrained_model(tmp_path: Path) -> None:
    run = regard.train("induction", layers=2, steps=1, savepath=tmp_path, progress=False)
    read = measure("lens", run)["lens_0"]
    assert read is not None and read < 0.2


def test_the_language_model_reads_sentences_of_the_standard_library(tmp_path: Path) -> None:
    [run] = find_lesson("language").runs
    flags = run_flags(run, tmp_path / "mine")
    sentences = Path(flags["text"]).read_text(encoding="utf-8").splitlines()
    assert Path(flags["text"]).parent == tmp_path / "mine" / "language"
    assert len(sentences) > 500 and all(line[0].isupper() and line.endswith(".") for line in sentences)
    assert run_flags(find_lesson("lens").runs[0], tmp_path) == find_lesson("lens").runs[0].flags

"""The further measurements of lessons, on small runs."""

from pathlib import Path

import pytest

import regard
from regard_course import lesson_runs
from regard_course.lesson_runs import MEASURES, measure
from regard_course.lessons.lesson import FIGURES, find_lesson


@pytest.mark.parametrize("lesson", MEASURES)
def test_a_lesson_reports_fractions_with_labels(lesson: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SAMPLES", "JUDGED"):
        monkeypatch.setattr(lesson_runs, name, 60)
    run = find_lesson(lesson).runs[0]
    flags = {**run.flags, "steps": 20, "validate_every": 10}
    if lesson == "doubt":
        flags |= {"hidden": 16, "inner": 16}
        flags.pop("validate_every")
    trained = regard.train(run.task, **flags, savepath=tmp_path, progress=False)
    figures = measure(lesson, trained)
    extra = set(figures) - set(vars(trained.figures()))
    assert extra <= set(FIGURES)
    assert extra or figures["exact_match"] in (0, 1)  # no doubt can order errors alone
    for name in extra:
        value = figures[name]
        assert value is not None and 0 <= value <= 1, name


def test_the_lens_reads_the_answer_only_at_the_end_of_an_untrained_model(tmp_path: Path) -> None:
    run = regard.train("induction", layers=2, steps=1, savepath=tmp_path, progress=False)
    read = measure("lens", run)["lens_0"]
    assert read is not None and read < 0.2

"""Every compiled program gives the answers of the interpreter."""

import random

import pytest
import torch

from regard_lab.programs.library import PROGRAMS
from tests.lab.programs.resampling import compiled_program, make_inputs

LENGTH, LARGEST, SAMPLES = 5, 100_000, 10_000


def _texts(name: str, length: int) -> list[str]:
    """Return all texts of a length, or a sample if there are too many."""
    program, draw = PROGRAMS[name], random.Random(length)
    if len(program.alphabet) ** length <= LARGEST:
        return program.texts(length)
    return ["".join(draw.choices(program.alphabet, k=length)) for _ in range(SAMPLES)]


@pytest.mark.parametrize("length", range(1, LENGTH + 1))
@pytest.mark.parametrize("name", PROGRAMS)
@torch.inference_mode()
def test_compiled_answers_are_those_of_the_interpreter(name: str, length: int) -> None:
    compiled = compiled_program(name)
    arguments, answers, is_answer = make_inputs(compiled, _texts(name, length))
    predicted = compiled.model(*arguments).argmax(-1)
    assert torch.equal(predicted[is_answer], answers[is_answer])
    assert is_answer.any() or name in ("induction", "lookup", "bigram", "previous", "skip")


def test_the_library_covers_all_families() -> None:
    families = [program.family for program in PROGRAMS.values()]
    assert len(families) >= 24 and families.count("encoder-decoder") >= 8
    assert set(families) == {"encoder", "decoder-only", "encoder-decoder"}

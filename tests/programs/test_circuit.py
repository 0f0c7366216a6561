"""The circuits of compiled models, checked by resampling with plain hooks."""

import random

import pytest
import torch

from regard.programs import PROGRAMS, Compiled
from tests.programs.resampling import Inputs, compiled_program, make_inputs, resampled_heads

SAMPLES = 100


def _inputs(compiled: Compiled) -> Inputs:
    program, draw = compiled.program, random.Random(0)
    texts = ["".join(draw.choices(program.alphabet, k=program.longest)) for _ in range(SAMPLES)]
    return make_inputs(compiled, texts)


@torch.inference_mode()
def changed_answers(compiled: Compiled, inputs: Inputs, heads: dict[str, list[int]]) -> float:
    """Return the share of inputs whose answers change when heads are resampled together."""
    arguments, answers, is_answer = inputs
    order = torch.randperm(len(answers), generator=torch.Generator().manual_seed(0))
    with resampled_heads(compiled.model, heads, order):
        wrong = (compiled.model(*arguments).argmax(-1) != answers) & is_answer
    return float(wrong.any(1).double().mean())


@pytest.mark.parametrize("name", PROGRAMS)
def test_needed_heads_change_answers(name: str) -> None:
    compiled = compiled_program(name)
    inputs = _inputs(compiled)
    for layer, needed in compiled.circuit.needed.items():
        for head, truth in enumerate(needed):
            assert (changed_answers(compiled, inputs, {layer: [head]}) > 0) == bool(truth), (layer, head)


@pytest.mark.parametrize("name", PROGRAMS)
def test_sufficient_heads_give_all_answers(name: str) -> None:
    compiled = compiled_program(name)
    sufficient = compiled.circuit.sufficient
    rest = {layer: [head for head, truth in enumerate(heads) if not truth] for layer, heads in sufficient.items()}
    assert changed_answers(compiled, _inputs(compiled), rest) == 0

"""Every compiled program gives the answers of the interpreter."""

import random

import pytest
import torch

from regard.attention.interventions import record_own
from regard_lab.programs.language import Aggregate
from regard_lab.programs.library import PROGRAMS
from regard_lab.programs.planner import Planner
from tests.lab.programs.resampling import compiled_program, draw_inputs, make_inputs

LENGTH, LARGEST, SAMPLES = 5, 100_000, 10_000


@pytest.mark.parametrize("length", range(1, LENGTH + 1))
@pytest.mark.parametrize("name", PROGRAMS)
@torch.inference_mode()
def test_compiled_answers_are_those_of_the_interpreter(name: str, length: int) -> None:
    compiled, program, draw = compiled_program(name), PROGRAMS[name], random.Random(length)
    if len(program.alphabet) ** length <= LARGEST:
        texts = program.texts(length)
    else:
        texts = ["".join(draw.choices(program.alphabet, k=length)) for _ in range(SAMPLES)]
    arguments, answers, is_answer = make_inputs(compiled, texts)
    predicted = compiled.model(*arguments).argmax(-1)
    assert torch.equal(predicted[is_answer], answers[is_answer])
    assert is_answer.any() or name in ("induction", "lookup", "bigram", "previous", "skip")


def test_the_library_covers_all_families() -> None:
    families = [program.family for program in PROGRAMS.values()]
    assert len(families) >= 24 and families.count("encoder-decoder") >= 8
    assert set(families) == {"encoder", "decoder-only", "encoder-decoder"}


@pytest.mark.parametrize("name", PROGRAMS)
@torch.inference_mode()
def test_weights_of_steps_that_are_not_selected_are_below_1e_6(name: str) -> None:
    compiled, planner = compiled_program(name), Planner(PROGRAMS[name])
    arguments, _, _ = draw_inputs(compiled)
    with record_own(compiled.model) as records:
        compiled.model(*arguments)
    for heads in planner.heads.values():
        for index, head in enumerate(heads):
            if isinstance(head.expression, Aggregate):
                full = next(record for layer, record in records.items() if layer.replace(".layers.", ".") == head.layer)
                weights = full.weights[:, index]
                chosen = weights > 1e-6  # several steps with the same value share the weight equally
                assert torch.allclose(
                    weights[chosen] * chosen.sum(-1, keepdim=True).expand_as(weights)[chosen],
                    torch.tensor(1.0),
                    atol=1e-5,
                )


@pytest.mark.parametrize("name", ["previous", "induction", "sorted", "reverse"])
def test_gradients_do_not_vanish_in_float32(name: str) -> None:
    compiled = compiled_program(name)
    arguments, answers, is_answer = draw_inputs(compiled, samples=5)
    compiled.model.zero_grad()
    logits = compiled.model(*arguments)
    loss = torch.nn.functional.cross_entropy(logits[is_answer], answers[is_answer])
    loss.backward()
    scale = [parameter.grad.abs().max() for parameter in compiled.model.parameters() if parameter.grad is not None]
    queries = [
        parameter.grad.abs().max()
        for parameter_name, parameter in compiled.model.named_parameters()
        if parameter_name.endswith("query.weight") and parameter.grad is not None
    ]
    assert max(scale) > 0 and max(queries) > 0

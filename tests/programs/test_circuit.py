"""The circuits of compiled models, checked by resampling with plain hooks."""

import pytest

from regard.programs import PROGRAMS
from tests.programs.resampling import changed_answers, compiled_program, draw_inputs


@pytest.mark.parametrize("name", PROGRAMS)
def test_needed_heads_change_answers(name: str) -> None:
    compiled = compiled_program(name)
    inputs = draw_inputs(compiled)
    for layer, needed in compiled.circuit.needed.items():
        for head, truth in enumerate(needed):
            assert (changed_answers(compiled, inputs, {layer: [head]}) > 0) == bool(truth), (layer, head)


@pytest.mark.parametrize("name", PROGRAMS)
def test_sufficient_heads_give_all_answers(name: str) -> None:
    compiled = compiled_program(name)
    sufficient = compiled.circuit.sufficient
    rest = {layer: [head for head, truth in enumerate(heads) if not truth] for layer, heads in sufficient.items()}
    assert changed_answers(compiled, draw_inputs(compiled), rest) == 0

"""The circuits of compiled models, checked by resampling with plain hooks."""

import pytest
import torch

from regard_lab.programs.library import PROGRAMS
from tests.lab.programs.resampling import EdgePatching, changed_answers, compiled_program, draw_inputs


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


@pytest.mark.parametrize("name", PROGRAMS)
@torch.inference_mode()
def test_edges_of_the_circuit_carry_the_answer(name: str) -> None:
    """Without one edge of the circuit, answers change; without all other edges together, none changes."""
    compiled = compiled_program(name)
    arguments, answers, is_answer = draw_inputs(compiled)
    order = torch.randperm(len(answers), generator=torch.Generator().manual_seed(0))
    patching, edges = EdgePatching(compiled.model), compiled.circuit.edges

    def changed(patched: set[tuple[str, str]]) -> bool:
        logits = patching.run(arguments, patched, order)
        return bool(((logits.argmax(-1) != answers) & is_answer).any())

    assert not changed(set())
    existing = {(sender, receiver) for receiver, senders in patching.receivers.items() for sender in senders}
    assert edges <= existing
    assert not changed(existing - edges)
    for edge in edges:
        assert changed({edge}), edge

"""The complete recurrent encoder-decoder."""

from typing import Any

import pytest
import torch

from regard.data.batch import collate
from regard.data.vocabulary import BOS
from regard.errors import InputError
from regard.models.recurrent import RecurrentConfig, RecurrentSeq2Seq

VARIANTS: list[dict[str, Any]] = [
    {"score": "none"},
    {"score": "general"},
    {"score": "dot", "query": "previous"},
    {"score": "additive", "context": "cell"},
    {"score": "concat", "context": "both", "cell": "gru"},
    {"score": "scaled_dot", "input_feeding": True},
    {"score": "additive", "context": "cell", "enc_hidden": 10, "score_width": 7},
    {"score": "concat", "context": "both", "enc_hidden": 5, "bidirectional": False, "start": "zero"},
]
each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=str)


def make(**options: Any) -> RecurrentSeq2Seq:
    torch.manual_seed(0)
    config = RecurrentConfig(hidden=6, embedding=3, **options)
    return RecurrentSeq2Seq(config, source_symbols=9, target_symbols=8).double().eval()


@each_variant
def test_unforced_steps_read_the_models_prediction(variant: dict[str, Any]) -> None:
    model = make(**variant)
    source = collate([[4, 5, 6], [7]])
    memory = model.encode(source, source != 0)
    target_in = torch.tensor([[BOS, 4, 5, 6], [BOS, 7, 7, 4]])
    forced = torch.tensor([[True, True, False, True], [False, False, False, True]])
    found = model.logits(model.read(target_in, memory, forced))
    for row in range(2):
        fed = target_in[row].clone()
        for time in range(1, 4):
            if not forced[row, time]:
                own = model.decode(
                    fed[None, :time], model.encode(source[row : row + 1], source[row : row + 1] != 0)
                )
                fed[time] = own[0, -1].argmax()
        expected = model.decode(fed[None], model.encode(source[row : row + 1], source[row : row + 1] != 0))
        torch.testing.assert_close(found[row], expected[0], atol=1e-12, rtol=0)


def test_all_forced_is_teacher_forcing() -> None:
    model = make(score="general")
    source, target_in = collate([[4, 5]]), torch.tensor([[BOS, 4, 5]])
    memory = model.encode(source, source != 0)
    forced = torch.ones(1, 3, dtype=torch.bool)
    assert torch.equal(model.logits(model.read(target_in, memory, forced)), model.decode(target_in, memory))


def test_without_attention_only_the_last_state_matters() -> None:
    """Without attention, two memories with the same last state produce equal outputs. With attention, the
    outputs differ.
    """
    for score, same in (("none", True), ("general", False)):
        model = make(score=score)
        memory = model.encode(collate([[4, 5, 6]]), torch.ones(1, 4, dtype=torch.bool))
        other = memory._replace(states=memory.states * 2, prepared=memory.prepared * 2)
        target_in = torch.tensor([[BOS, 4]])
        assert torch.equal(model.decode(target_in, memory), model.decode(target_in, other)) == same


def test_widths_and_directions_follow_the_config() -> None:
    model = make(score="additive", enc_hidden=5, bidirectional=False, start="zero", score_width=7)
    memory = model.encode(collate([[4, 5, 6]]), torch.ones(1, 4, dtype=torch.bool))
    assert memory.states.shape == (1, 4, 5) and memory.prepared.shape == (1, 4, 7)
    assert torch.equal(model.start(memory).cell[0], torch.zeros(1, 1, 6, dtype=torch.float64))
    turned = model.encode(collate([[4, 9 - 1, 8]]), torch.ones(1, 4, dtype=torch.bool))
    assert torch.equal(turned.states[:, 0], memory.states[:, 0])  # the first state depends only on the first step
    both = make(score="general", enc_hidden=10)
    assert both.encode(collate([[4]]), torch.ones(1, 2, dtype=torch.bool)).last.shape == (1, 10)
    assert not torch.equal(both.start(both.encode(collate([[4]]), torch.ones(1, 2) > 0)).cell[0], torch.zeros(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 7}, "hidden 7 is odd"),
        ({"embedding": 0}, "embedding 0 is out of range"),
        ({"enc_layers": 0}, "enc_layers 0 is out of range"),
        ({"score": "genral"}, "did you mean general"),
        ({"context": "cell", "query": "current"}, "query current does not fit context cell"),
        ({"score": "none", "input_feeding": True}, "input_feeding needs attention"),
        ({"enc_hidden": 7}, "enc_hidden 7 is odd"),
        ({"enc_hidden": 10, "score": "dot"}, "have no dot product"),
        ({"score_width": 3}, "score_width 3 does not fit: score general has no inner width"),
        ({"score_width": 0, "score": "additive"}, "score_width 0 is out of range"),
        ({"start": "nought"}, "nought"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RecurrentConfig(**options)

"""The architecture of a model, found by running it."""

import torch
from torch import Tensor, nn

from regard.attention import MultiHeadAttention
from regard.viz.blueprint import ANSWER, INPUT, blueprint_of


class Small(nn.Module):
    """A residual around attention, and a learned vector that is added at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 6)
        self.attention = MultiHeadAttention(6, 2)
        self.dropout = nn.Dropout(0.5)
        self.output = nn.Linear(6, 3)
        self.own = nn.Parameter(torch.zeros(6))

    def forward(self, inputs: Tensor) -> Tensor:
        states = self.embedding(inputs)
        mixed = states + self.dropout(self.attention(states, states, states))
        found: Tensor = self.output(mixed + self.own)
        return found


def test_parts_flows_shapes_and_parameters() -> None:
    model = Small().eval()
    found = blueprint_of(model, lambda: model(torch.zeros(1, 7, dtype=torch.int64)), "small")
    assert found.parameters == 5 * 6 + 4 * 36 + 7 * 3 + 6
    assert set(found.flows) == {
        (INPUT, "embedding"),
        ("embedding", "attention"),
        ("embedding", "output"),
        ("attention", "output"),
        ("own", "output"),
        ("output", ANSWER),
    }
    assert found.parts["attention"].attends and not found.parts["output"].attends
    assert found.parts["attention"].parameters == 4 * 36 and found.parts["own"].parameters == 6
    assert (found.parts["output"].given, found.parts["output"].gave) == ((1, 7, 6), (1, 7, 3))
    assert not model.attention._forward_hooks and not model.output._forward_pre_hooks


def test_a_recurrent_layer_is_drawn_with_the_states_of_all_its_steps() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(5, 3, batch_first=True)
            self.output = nn.Linear(3, 2)

        def forward(self, inputs: Tensor) -> Tensor:
            _, (last, _) = self.rnn(inputs)
            found: Tensor = self.output(last[-1])
            return found

    model = Reader()
    found = blueprint_of(model, lambda: model(torch.zeros(1, 7, 5)), "reader")
    assert (found.parts["rnn"].given, found.parts["rnn"].gave) == ((1, 7, 5), (1, 7, 3))
    assert ("rnn", "output") in found.flows

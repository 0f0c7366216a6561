"""Tracing the architecture of a model."""

import torch
from torch import Tensor, nn

from regard.attention import MultiHeadAttention
from regard.viz.architecture import ANSWER, INPUT, trace_graph


class Small(nn.Module):
    """A residual connection around attention, and a learned vector added at the end."""

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


def test_nodes_edges_shapes_and_parameters() -> None:
    model = Small().eval()
    graph = trace_graph(model, lambda: model(torch.zeros(1, 7, dtype=torch.int64)), "small")
    assert graph.parameters == 5 * 6 + 4 * 36 + 7 * 3 + 6
    assert set(graph.edges) == {
        (INPUT, "embedding"),
        ("embedding", "attention"),
        ("embedding", "output"),
        ("attention", "output"),
        ("own", "output"),
        ("output", ANSWER),
    }
    assert graph.nodes["attention"].is_attention and not graph.nodes["output"].is_attention
    assert graph.nodes["attention"].parameters == 4 * 36 and graph.nodes["own"].parameters == 6
    assert (graph.nodes["output"].input_shape, graph.nodes["output"].output_shape) == ((1, 7, 6), (1, 7, 3))
    assert not model.attention._forward_hooks and not model.output._forward_pre_hooks


def test_recurrent_layer_has_the_states_of_all_steps() -> None:
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
    graph = trace_graph(model, lambda: model(torch.zeros(1, 7, 5)), "reader")
    assert (graph.nodes["rnn"].input_shape, graph.nodes["rnn"].output_shape) == ((1, 7, 5), (1, 7, 3))
    assert ("rnn", "output") in graph.edges

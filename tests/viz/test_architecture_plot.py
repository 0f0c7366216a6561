"""Architecture figures: identical layers, lanes, rows and labels."""

from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

import regard
from regard.attention import EncoderLayer
from regard.viz.architecture import ANSWER, INPUT, GraphNode, ModelGraph, trace_graph
from regard.viz.architecture_layout import arrange
from regard.viz.architecture_plot import fold_layers, save_graph


class Deep(nn.Module):
    """A stack of layers with a list of feed-forward widths."""

    def __init__(self, *inner: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 8)
        self.layers = nn.ModuleList(EncoderLayer(8, 2, each, pre_norm=True) for each in inner)
        self.output = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        states = self.embedding(inputs)
        for layer in self.layers:
            states = layer(states)
        found: Tensor = self.output(states)
        return found


def deep(*inner: int) -> ModelGraph:
    model = Deep(*inner).eval()
    return trace_graph(model, lambda: model(torch.zeros(1, 7, dtype=torch.int64)), "deep")


def test_identical_layers_are_drawn_once() -> None:
    graph = deep(16, 16, 16)
    drawn, (stack,) = fold_layers(graph)
    assert (stack.name, stack.count) == ("layers", 3)
    assert stack.parameters == sum(node.parameters for name, node in graph.nodes.items() if "layers" in name)
    assert [name for name in drawn.nodes if not name.startswith("layers.0.")] == [
        INPUT,
        "embedding",
        "output",
        ANSWER,
    ]
    assert ("layers.0.feed_forward_residual", "output") in drawn.edges
    assert all(graph.edges.get(flow) == roles for flow, roles in drawn.edges.items() if flow[1] != "output")


def test_different_layers_are_all_drawn() -> None:
    graph = deep(16, 24)
    drawn, stacks = fold_layers(graph)
    assert not stacks and drawn.nodes == graph.nodes and drawn.edges == graph.edges


def test_sources_are_below_and_boxes_do_not_overlap() -> None:
    graph = ModelGraph("made", 0)
    for name in ("source", "target"):
        graph.nodes[name] = GraphNode(name, INPUT)
    for name in ("read", "keep", "write", "look", "join"):
        graph.nodes[name] = GraphNode(name, "Linear", is_attention=name == "look")
    for flow in (
        "source read",
        "source keep",
        "read look",
        "keep look",
        "target write",
        "look join",
        "write join",
    ):
        source, target = flow.split()
        graph.add_edge(source, target)
    graph.add_edge("join", "look", "query")  # in the next step
    layout = arrange(graph)
    lanes = {name: place.lane for name, place in layout.places.items()}
    assert lanes == dict.fromkeys(("source", "read", "keep"), 0) | dict.fromkeys(
        ("target", "write", "look", "join"), 1
    )
    for line in layout.lines:
        begin, end = layout.places[line.source], layout.places[line.target]
        if begin.lane == end.lane:
            assert (end.y > begin.y) != line.returns
        assert all(x == x2 or y == y2 for (x, y), (x2, y2) in pairwise(line.points))
    assert [(line.source, line.target) for line in layout.lines if line.returns] == [("join", "look")]
    assert layout.places["look"].alone
    boxes = list(layout.places.values())
    for number, box in enumerate(boxes):
        assert box.x - box.width / 2 >= 0 and box.x + box.width / 2 <= layout.width
        for other in boxes[:number]:
            separate = abs(box.x - other.x) >= (box.width + other.width) / 2
            assert separate or abs(box.y - other.y) >= (box.height + other.height) / 2


def test_roles_of_attention_inputs_are_labelled(translator: regard.PairRun, tmp_path: Path) -> None:
    picture = regard.runs.draw_model(translator, tmp_path / "model.svg").read_text(encoding="utf-8")
    assert "<!-- key, value" in picture and "<!-- query" in picture and "parameters -->" in picture


def test_weights_used_without_their_module_are_a_node() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 8)
            self.vocabulary = nn.Linear(8, 5)

        def forward(self, inputs: Tensor) -> Tensor:
            states = self.embedding(inputs)
            other = torch.nn.functional.linear(states, self.vocabulary.weight, self.vocabulary.bias)
            return states @ self.embedding.weight.T + other

    model = Tied()
    graph = trace_graph(model, lambda: model(torch.zeros(1, 7, dtype=torch.int64)), "tied")
    assert set(graph.edges) == {
        (INPUT, "embedding"),
        ("embedding", "vocabulary"),
        ("embedding", "embedding, again"),
        ("vocabulary", ANSWER),
        ("embedding, again", ANSWER),
    }
    assert (graph.nodes["vocabulary"].input_shape, graph.nodes["vocabulary"].output_shape) == (
        (1, 7, 8),
        (1, 7, 5),
    )
    assert graph.nodes["embedding, again"].parameters == 0


def test_page_lists_every_node(tmp_path: Path) -> None:
    page = save_graph(deep(16, 16), tmp_path / "model.html").read_text(encoding="utf-8")
    assert page.count("<td>layers.1.") == page.count("<td>layers.0.") > 0 and "<svg" in page

"""Blueprints as pictures: layers that are alike, lanes, rows, and what is written."""

from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

import regard
from regard.attention import EncoderLayer
from regard.viz.blueprint import ANSWER, INPUT, Blueprint, Box, blueprint_of
from regard.viz.drafting import save_blueprint
from regard.viz.folding import folded
from regard.viz.layout import layout_of


class Deep(nn.Module):
    """Layers one upon another, the last of which may be wider inside."""

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


def deep(*inner: int) -> Blueprint:
    model = Deep(*inner).eval()
    return blueprint_of(model, lambda: model(torch.zeros(1, 7, dtype=torch.int64)), "deep")


def test_layers_that_are_alike_are_drawn_once() -> None:
    found = deep(16, 16, 16)
    drawn, (stack,) = folded(found)
    assert (stack.name, stack.count) == ("layers", 3)
    assert stack.parameters == sum(part.parameters for name, part in found.parts.items() if "layers" in name)
    assert [name for name in drawn.parts if not name.startswith("layers.0.")] == [
        INPUT,
        "embedding",
        "output",
        ANSWER,
    ]
    assert ("layers.0.feed_forward_residual", "output") in drawn.flows
    assert all(found.flows.get(flow) == roles for flow, roles in drawn.flows.items() if flow[1] != "output")


def test_layers_that_differ_are_drawn_each() -> None:
    found = deep(16, 24)
    drawn, stacks = folded(found)
    assert not stacks and drawn.parts == found.parts and drawn.flows == found.flows


def test_whatever_feeds_a_part_stands_below_it_and_nothing_stands_upon_another() -> None:
    found = Blueprint("made", 0)
    for name in ("source", "target"):
        found.parts[name] = Box(name, INPUT)
    for name in ("read", "keep", "write", "look", "join"):
        found.parts[name] = Box(name, "Linear", attends=name == "look")
    for flow in (
        "source read",
        "source keep",
        "read look",
        "keep look",
        "target write",
        "look join",
        "write join",
    ):
        one, other = flow.split()
        found.flow(one, other)
    found.flow("join", "look", "query")  # in the next step
    layout = layout_of(found)
    lanes = {name: place.lane for name, place in layout.places.items()}
    assert lanes == dict.fromkeys(("source", "read", "keep"), 0) | dict.fromkeys(
        ("target", "write", "look", "join"), 1
    )
    for line in layout.lines:
        giver, taker = layout.places[line.giver], layout.places[line.taker]
        if giver.lane == taker.lane:
            assert (taker.y > giver.y) != line.returns
        assert all(x == x2 or y == y2 for (x, y), (x2, y2) in pairwise(line.points))
    assert [(line.giver, line.taker) for line in layout.lines if line.returns] == [("join", "look")]
    assert layout.places["look"].alone
    boxes = list(layout.places.values())
    for number, box in enumerate(boxes):
        assert box.x - box.width / 2 >= 0 and box.x + box.width / 2 <= layout.width
        for beside in boxes[:number]:
            apart = abs(box.x - beside.x) >= (box.width + beside.width) / 2
            assert apart or abs(box.y - beside.y) >= (box.height + beside.height) / 2


def test_what_attention_takes_things_for(translator: regard.PairRun, tmp_path: Path) -> None:
    picture = regard.runs.draw_model(translator, tmp_path / "model.svg").read_text(encoding="utf-8")
    assert "<!-- key, value" in picture and "<!-- query" in picture and "parameters -->" in picture


def test_weights_that_are_used_without_their_module_are_a_part_that_is_fed() -> None:
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
    found = blueprint_of(model, lambda: model(torch.zeros(1, 7, dtype=torch.int64)), "tied")
    assert set(found.flows) == {
        (INPUT, "embedding"),
        ("embedding", "vocabulary"),
        ("embedding", "embedding, again"),
        ("vocabulary", ANSWER),
        ("embedding, again", ANSWER),
    }
    assert (found.parts["vocabulary"].given, found.parts["vocabulary"].gave) == ((1, 7, 8), (1, 7, 5))
    assert found.parts["embedding, again"].parameters == 0


def test_a_page_has_every_part(tmp_path: Path) -> None:
    page = save_blueprint(deep(16, 16), tmp_path / "model.html").read_text(encoding="utf-8")
    assert page.count("<td>layers.1.") == page.count("<td>layers.0.") > 0 and "<svg" in page

"""Examples in the documentation of external models and tools run unchanged, also with maps from external
tensors.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.errors import InputError

DOCS = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(page: str) -> list[str]:
    found = re.findall(
        r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(found) >= 2
    return found


def test_documented_calls_next_to_other_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks("from-other-tools.md"):
        exec(block, names)
    assert {"page.html", "two-heads.pdf", "pair.html", "pattern.png", "cross.png"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert names["maps"].words().layers["layer.0"].key_labels == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    np.testing.assert_array_equal(names["maps"].layers["layer.1"].weights, names["layers"][1][0].numpy())
    assert names["pair"].layers["cross.0"].kind == "cross"
    assert (names["without"] - names["plain"]).abs().max() > 1e-4


@pytest.mark.filterwarnings("ignore")
def test_documented_calls_for_external_models(
    folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER").symlink_to(folders("llama"))
    first, own, predicting, patching = blocks("external-models.md")
    external: dict[str, Any] = {"regard": regard}
    exec(first.replace("The cat sat on the mat.", "the cat sat on the mat"), external)
    exec(predicting.replace('" mat"', "9"), external)
    exec(patching, external)
    assert (tmp_path / "parts.svg").exists()
    assert (tmp_path / "cat.html").exists() and (tmp_path / "smaller" / "model.safetensors").exists()
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(30, 8), layer)
    names = {
        "regard": regard,
        "model": model,
        "read": lambda text: torch.tensor([[ord(each) % 30 for each in text]]),
        "loss": lambda model, text: model(torch.tensor([[ord(each) % 30 for each in text]])).square().mean(),
    }
    exec(own, names)


@pytest.mark.parametrize(
    "given",
    [
        torch.full((3, 4, 4), 0.25),
        np.full((1, 3, 4, 4), 0.25),
        [torch.full((1, 3, 4, 4), 0.25)],
        torch.full((1, 1, 3, 4, 4), 0.25, dtype=torch.bfloat16, requires_grad=True),
        [torch.full((4, 4), 0.25)] * 3,
    ],
    ids=["heads", "numpy", "list", "stack", "matrices"],
)
def test_weights_from_tensors_are_unchanged(given: Any) -> None:
    [layer] = regard.view_weights(given, list("abcd")).layers.values()
    assert layer.weights.shape == (3, 4, 4) and (layer.weights == 0.25).all()
    assert layer.key_labels == list("abcd") and layer.kind == "encoder"


def test_causal_weights_have_kind_decoder() -> None:
    weights = torch.eye(3).expand(2, 3, 3)
    [layer] = regard.view_weights(weights).layers.values()
    assert layer.kind == "decoder" and layer.query_labels == ["0", "1", "2"]
    labels = regard.view_weights(weights, ["The", "Ġcat", "s"]).layers["layer.0"].key_labels
    assert labels == ["The", "▁cat", "s"]


def test_weights_of_wrong_shape_are_refused() -> None:
    with pytest.raises(InputError, match="has 4 queries but 3 tokens are given"):
        regard.view_weights(torch.zeros(2, 4, 4), list("abc"))
    with pytest.raises(InputError, match="no weights are given"):
        regard.view_weights()
    with pytest.raises(InputError, match="weights have 2 dimensions"):
        regard.view_weights(torch.zeros(4, 4))
    with pytest.raises(InputError, match="input 2 is out of range"):
        regard.view_weights(torch.zeros(2, 1, 4, 4), input=2)


def test_values_that_are_no_weights_are_refused() -> None:
    def even() -> torch.Tensor:
        return torch.full((2, 3, 4, 4), 0.25)

    with pytest.raises(InputError, match="weights have a batch of 2 inputs: give input=0 to 1"):
        regard.view_weights([even()])
    assert regard.view_weights([even()], input=1).layers
    for value, said in (
        (float("nan"), "layer.0 has nan in head 2, row 1, column 3: give finite weights"),
        (0.5, "row 1 of layer.0, head 2, sums to 1.25: give weights after the softmax"),
        (-0.25, "row 1 of layer.0, head 2, has weights below 0"),
    ):
        weights = even()[0]
        weights[2, 1, 3] = value
        with pytest.raises(InputError, match=said):
            regard.view_weights(weights)
    weights = torch.randn(2, 9, 700).softmax(-1).bfloat16()
    weights[0, 4] = 0  # a query that attends to nothing
    assert len(regard.view_weights(cross=weights).layers) == 1

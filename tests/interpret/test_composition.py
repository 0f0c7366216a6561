"""Composition scores equal the products of whole matrices."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.errors import InputError
from tests.interpret.subjects import TINY, language_run, pair_run


def matrices(layer: Any, head: int) -> tuple[Tensor, Tensor]:
    """Return W_QK and W_OV (D, D) for column vectors, as in the paper."""
    width = layer.head_width
    rows, group = slice(head * width, (head + 1) * width), head * layer.groups // layer.heads
    shared = slice(group * width, (group + 1) * width)
    return (
        layer.query.weight[rows].T @ layer.key.weight[shared],
        layer.output.weight[:, rows] @ layer.value.weight[shared],
    )


def norm(matrix: Tensor) -> float:
    return float(matrix.square().sum().sqrt())


@torch.no_grad()
def test_scores_equal_products_of_whole_matrices(tmp_path: Path) -> None:
    run = language_run(tmp_path)
    result = regard.composition(run)
    first, second = (block.self_attention for block in run.model.decoder.layers)
    assert len(result.scores) == 2 * 2 * 3
    for sender in (0, 1):
        written = matrices(first, sender)[1]
        for receiver in (0, 1):
            query_key, value = matrices(second, receiver)
            for kind, product, matrix in (
                ("query", query_key.T @ written, query_key),
                ("key", query_key @ written, query_key),
                ("value", value @ written, value),
            ):
                edge = f"decoder.0.self_attention.{sender}", f"decoder.1.self_attention.{receiver}.{kind}"
                assert result.scores[edge] == pytest.approx(norm(product) / (norm(matrix) * norm(written)), rel=1e-4)
    assert result.random["decoder.1.self_attention"] == pytest.approx(1 / math.sqrt(16), rel=0.1)
    assert "norms, biases and rotary positions" in str(result) and result.summary() in repr(result)
    assert " -> " in next(iter(result.json()["scores"]))


def test_decoder_heads_read_encoder_heads_through_keys_and_values_only(tmp_path: Path) -> None:
    scores = regard.composition(pair_run(tmp_path)).scores
    pairs = {(a.split(".")[0], b.rsplit(".", 2)[0], b.rsplit(".", 1)[1]) for a, b in scores}
    encoder = {(layer, kind) for stream, layer, kind in pairs if stream == "encoder"}
    assert encoder == {(f"decoder.{number}.cross", kind) for number in (0, 1) for kind in ("key", "value")}
    assert ("decoder", "decoder.0.cross", "query") in pairs and ("decoder", "decoder.0.cross", "key") not in pairs


def test_a_model_with_one_layer_is_refused(tmp_path: Path) -> None:
    run = regard.train("counting", savepath=tmp_path, **TINY)
    with pytest.raises(InputError, match="no head that reads from an earlier head"):
        regard.composition(run)

"""Masks of allowed keys."""

import pytest
import torch

from regard.attention.masks import as_weights_mask, causal_mask, length_mask, mask_rows
from regard.errors import InputError


def test_length_mask_is_true_before_the_end() -> None:
    assert length_mask(torch.tensor([0, 2, 3]), 3).tolist() == [
        [False, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_causal_mask_shows_the_own_step_and_those_before() -> None:
    assert causal_mask(3, 3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(2, 3).tolist() == [[True, True, False], [True, True, True]]
    assert causal_mask(1, 3).tolist() == [[True, True, True]]


@pytest.mark.parametrize(("queries", "keys"), [(3, 3), (2, 5)])
def test_rows_of_a_causal_mask_are_those_of_the_whole(queries: int, keys: int) -> None:
    """The queries are the last steps of the keys, also if only some rows are computed."""
    rows = mask_rows(None, [1, 0], queries, keys, causal=True, device=torch.device("cpu"))
    assert rows is not None and torch.equal(rows, causal_mask(queries, keys)[[1, 0]])


def test_masks_broadcast_against_weights() -> None:
    weights = torch.zeros(2, 3, 5, 7)
    for shape in [(2, 7), (5, 7), (2, 5, 7), (1, 5, 7), (2, 1, 7), (2, 1, 5, 7), (2, 3, 5, 7), (1, 1, 1, 7)]:
        mask = as_weights_mask(torch.ones(shape, dtype=torch.bool), 2, 5, 7)
        assert mask.dim() == 4 and (weights + mask).shape == weights.shape


def test_dimensions_of_a_mask_define_its_meaning() -> None:
    padding = torch.tensor([[True, True, False], [True, False, False]])
    assert as_weights_mask(padding, 2, 5, 3)[:, 0, 0].tolist() == padding.tolist()
    causal = causal_mask(2, 3)
    assert as_weights_mask(causal, 4, 2, 3)[0, 0].tolist() == causal.tolist()


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(3, 7, dtype=torch.bool), "mask (3, 7) does not fit weights of B 2, Tq 5, Tk 7: give (B, Tk)"),
        (torch.ones(2, 5, 6, dtype=torch.bool), "mask (2, 5, 6) does not fit weights of B 2, Tq 5, Tk 7"),
        (torch.ones(7, dtype=torch.bool), "mask (7,) does not fit weights"),
        (torch.ones(2, 7), "mask is of dtype torch.float32: give torch.bool, where True means may be attended"),
    ],
)
def test_masks_of_wrong_shape_are_refused(mask: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError) as raised:
        as_weights_mask(mask, 2, 5, 7)
    assert message in str(raised.value)


def test_ambiguous_mask_is_refused() -> None:
    with pytest.raises(InputError, match="could be .B, Tk. or .Tq, Tk., which are equal here: give it as"):
        as_weights_mask(torch.ones(5, 7, dtype=torch.bool), 5, 5, 7)
    as_weights_mask(torch.ones(1, 7, dtype=torch.bool), 1, 1, 7)  # symmetric

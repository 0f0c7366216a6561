"""Positional encodings: formula of the paper, interface, and invariants of rotation."""

import math

import pytest
import torch

from regard.attention.multihead import MultiHeadAttention
from regard.attention.positions import Concatenated, LearnedPositions, Rotary, Sinusoidal
from regard.errors import InputError


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoidal_positions_equal_the_papers_formula(width: int) -> None:
    waves = Sinusoidal(width)(torch.zeros(2, 5, width, dtype=torch.float64))
    for pos in range(5):
        for dim in range(width):
            angle = pos / 10_000 ** (2 * (dim // 2) / width)
            expected = math.sin(angle) if dim % 2 == 0 else math.cos(angle)
            assert waves[1, pos, dim].item() == pytest.approx(expected, abs=1e-12)


def test_sinusoidal_positions_are_exact_at_large_steps() -> None:
    waves = Sinusoidal(4).vectors(100_000, 1)
    assert waves[0, 0].item() == pytest.approx(math.sin(100_000), abs=1e-9)


def learned() -> LearnedPositions:
    positions = LearnedPositions(7, 3)
    with torch.no_grad():
        positions.weight.copy_(torch.arange(21.0).view(7, 3))
    return positions


def test_each_step_gets_its_own_vector_from_zero_on() -> None:
    assert learned()(torch.zeros(2, 5, 3))[1].tolist() == torch.arange(15.0).view(5, 3).tolist()


@pytest.mark.parametrize("positions", [Sinusoidal(3), learned(), Concatenated(Sinusoidal(3))])
def test_an_offset_continues_where_the_last_call_stopped(
    positions: "Sinusoidal | LearnedPositions | Concatenated",
) -> None:
    states = torch.randn(2, 7, 3)
    parts = torch.cat([positions(states[:, :4]), positions(states[:, 4:], offset=4)], dim=1)
    torch.testing.assert_close(parts, positions(states))


def test_a_sequence_longer_than_learned_is_refused() -> None:
    with pytest.raises(InputError, match="8 steps is too long: positions were learned for up to 7 steps"):
        LearnedPositions(7, 3)(torch.zeros(2, 8, 3))
    with pytest.raises(InputError, match="8 steps is too long: positions were learned for up to 7 steps"):
        LearnedPositions(7, 3)(torch.zeros(2, 1, 3), offset=7)


@pytest.mark.parametrize("beside", [Sinusoidal(4), LearnedPositions(7, 4)])
def test_concatenated_positions_do_not_change_the_states(beside: "Sinusoidal | LearnedPositions") -> None:
    positions = Concatenated(beside)
    states = torch.randn(2, 5, 3)
    wide = positions(states)
    assert wide.shape == (2, 5, 3 + positions.extra_width) == (2, 5, 7)
    assert torch.equal(wide[..., :3], states)
    torch.testing.assert_close(wide[1, :, 3:], beside(torch.zeros(1, 5, 4))[0])


@pytest.mark.parametrize("first", [0, 1])
def test_rotation_turns_pairs_by_their_angle(generator: torch.Generator, first: int) -> None:
    wide = torch.randn(2, 3, 5, 7, generator=generator, dtype=torch.float64)
    heads = wide[..., first : first + 6]  # a pair may start at any memory address
    turned = Rotary(6).rotate(heads, offset=2)
    for step in range(5):
        for pair in range(3):
            angle = (step + 2) / 10_000 ** (2 * pair / 6)
            sin, cos = math.sin(angle), math.cos(angle)
            expected = heads[:, :, step, 2 * pair : 2 * pair + 2] @ heads.new_tensor([[cos, sin], [-sin, cos]])
            torch.testing.assert_close(turned[:, :, step, 2 * pair : 2 * pair + 2], expected)


def test_rotated_scores_depend_on_distance_alone(generator: torch.Generator) -> None:
    query, key = torch.randn(2, 1, 1, 1, 8, generator=generator, dtype=torch.float64)
    rotary = Rotary(8)
    scores = [(rotary.rotate(query, at + 3) * rotary.rotate(key, at)).sum().item() for at in (0, 5, 50)]
    assert scores == pytest.approx([scores[0]] * 3, abs=1e-12)
    assert scores[0] != pytest.approx((query * key).sum().item(), abs=1e-6)


def test_odd_width_is_refused_by_rotary_positions() -> None:
    with pytest.raises(InputError, match="head width 5 is odd"):
        MultiHeadAttention(10, 2, rotary=True)

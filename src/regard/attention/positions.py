"""Positional encodings. Without positional encodings, attention cannot distinguish the order of steps.

| class        | operation                         | source                                      |
| ------------ | --------------------------------- | ------------------------------------------- |
| Sinusoidal   | adds fixed waves                  | Vaswani et al. 2017, section 3.5            |
| Learned      | adds learned vectors              | Gehring et al. 2017, section 3.1            |
| Concatenated | concatenates either to the states | the alternative that section 3.5 leaves out |
| Rotary       | rotates queries and keys          | Su et al. 2021, equation 34                 |
| Alibi        | adds -m |i - j| to the scores     | Press et al. 2022, section 3                |
| T5Bias       | adds learned numbers to scores    | Raffel et al. 2020                          |

The first three encodings take states (B, T, D) and return states; `extra_width` is the number of added dimensions.
`Rotary` takes the queries and keys of each head. `Alibi` and `T5Bias` return a bias for each pair of positions. A
custom encoding is a subclass of `Positions` that defines `vectors` or `forward`. Positions start at 0.
"""

import math
from functools import lru_cache
from typing import Annotated

import torch
from torch import Tensor, nn

from regard.arguments import Limits, public
from regard.attention.parts import LayerSizes, PositionBias
from regard.errors import InputError, check_range
from regard.plugins import build_plugin, plugin_class


@public
class Positions(nn.Module):
    """Base class of positional encodings for states of `width`, in sequences of at most `length` steps."""

    extra_width = 0

    def __init__(self, width: int, length: int | None = None) -> None:
        super().__init__()
        self.width, self.length = width, length

    def vectors(self, first: int, count: int, device: torch.device | None = None) -> Tensor:
        """Return the vectors added at `count` positions from `first` on: (count, D)."""
        raise NotImplementedError

    def forward(self, states: Tensor, offset: int = 0) -> Tensor:
        """Return states (B, T, D) with positions; the first step is at position `offset`."""
        return states + self.vectors(offset, states.shape[1], states.device).to(states.dtype)


@public
class NoPositions(Positions):
    """Adds no positions: only the mask distinguishes the order of steps.

    >>> NoPositions(4)(torch.ones(1, 3, 4)).shape
    torch.Size([1, 3, 4])
    """

    def forward(self, states: Tensor, offset: int = 0) -> Tensor:
        """Return the states (B, T, D) unchanged."""
        return states


BASE = 10_000.0
"""Base of the wavelengths (Vaswani et al. 2017, section 3.5)."""


@public
class Sinusoidal(Positions):
    """`PE(pos, 2i) = sin(pos / 10000^(2i/D))`, `PE(pos, 2i+1) = cos(pos / 10000^(2i/D))`, for any length.

    `base` replaces 10000.

    >>> Sinusoidal(2).vectors(0, 1)
    tensor([[0., 1.]], dtype=torch.float64)
    """

    def __init__(self, width: int, length: int | None = None, *, base: float = BASE) -> None:
        super().__init__(width, length)
        self.base = base

    def vectors(self, first: int, count: int, device: torch.device | None = None) -> Tensor:
        """Return the waves at `count` positions from `first` on: (count, D), float64."""
        return self.waves_at(torch.arange(first, first + count, device=device, dtype=torch.float64))

    def waves_at(self, steps: Tensor) -> Tensor:
        """Return the waves (N, D) at positions (N,), which may be fractional."""
        pairs = torch.arange((self.width + 1) // 2, device=steps.device, dtype=torch.float64)
        angles = steps.unsqueeze(-1) * self.base ** (-2 * pairs / self.width)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[:, : self.width]


@public
class LearnedPositions(Positions):
    """Adds a learned vector for each position to the states.

    `weight`: (length, width), zero until trained. Raises `InputError` for a sequence that is longer than `length`.

    >>> LearnedPositions(10, 4)(torch.ones(1, 3, 4)).shape
    torch.Size([1, 3, 4])
    """

    def __init__(self, length: int, width: int) -> None:
        super().__init__(width, length)
        self.weight = nn.Parameter(torch.zeros(length, width))

    def vectors(self, first: int, count: int, device: torch.device | None = None) -> Tensor:
        """Return the vectors of `count` positions from `first` on: (count, D)."""
        time, limit = first + count, len(self.weight)
        if time > limit:
            raise InputError(f"a sequence of {time} steps is too long: positions were learned for up to {limit} steps")
        return self.weight[first:time]


@public
class Concatenated(nn.Module):
    """Concatenates positions to the states: (B, T, D) becomes (B, T, D + width of positions).

    The first D dimensions are unchanged, but the next layer is wider.

    >>> Concatenated(Sinusoidal(2))(torch.ones(1, 3, 4)).shape
    torch.Size([1, 3, 6])
    """

    def __init__(self, positions: Positions) -> None:
        super().__init__()
        self.positions = positions
        self.extra_width = positions.width

    def forward(self, states: Tensor, offset: int = 0) -> Tensor:
        """Return states (B, T, D) with positions; the first step is at position `offset`."""
        vectors = self.positions.vectors(offset, states.shape[1], states.device).to(states.dtype)
        return torch.cat([states, vectors.expand(states.shape[0], -1, -1)], dim=-1)


@public
class Rotary(nn.Module):
    """Rotates pairs of dimensions of a query or key by an angle proportional to the position.

    The dot product of a rotated query and key depends only on the difference of their positions. Pair i
    consists of dimensions 2i and 2i + 1. Its angle is `pos / base^(2i/d)`. Only the first
    `fraction` of the d dimensions are rotated (an even number). Raises `InputError` for an odd width.

    >>> Rotary(2).rotate(torch.tensor([[[[1.0, 0.0]]]]), offset=0)
    tensor([[[[1., 0.]]]])
    """

    def __init__(
        self, head_width: int, base: float = BASE, fraction: Annotated[float, Limits(0, 1, "low")] = 1.0
    ) -> None:
        super().__init__()
        if head_width % 2:
            raise InputError(f"head width {head_width} is odd: rotary positions need an even width")
        self.width = max(2, 2 * round(fraction * head_width / 2))
        self.full = self.width == head_width
        self.waves = Sinusoidal(self.width, base=base)

    def rotate(self, heads: Tensor, offset: int = 0) -> Tensor:
        """Rotate states (B, H, T, d) in float32 or float64; the first step is at position `offset`."""
        # The dimensions that are not rotated carry no position (GPT-NeoX, Black et al. 2022, rotates a quarter).
        if not self.full:
            return torch.cat([self._rotate(heads[..., : self.width], offset), heads[..., self.width :]], dim=-1)
        return self._rotate(heads, offset)

    def _rotate(self, heads: Tensor, offset: int) -> Tensor:
        wide = heads.float() if heads.dtype in (torch.bfloat16, torch.float16) else heads
        pairs = wide.unflatten(-1, (-1, 2))
        if torch.compiler.is_compiling():  # the compiler generates no code for complex numbers
            waves = self.waves.vectors(offset, heads.shape[2], heads.device).to(wide.dtype)
            sin, cos = waves.unflatten(-1, (-1, 2)).unbind(-1)
            even, odd = pairs.unbind(-1)
            rotated = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
        else:
            # Multiplication of complex numbers needs a single pass over the states, which is 2.5 times faster
            # (docs/dev/benchmarks.md).
            turns = _turns(self.width, self.waves.base, offset, heads.shape[2], heads.device, wide.dtype)
            rotated = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turns)
        return rotated.flatten(-2).to(heads.dtype)


@lru_cache(maxsize=64)
def _turns(width: int, base: float, first: int, count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the rotation of each pair of dimensions as complex numbers: (count, width / 2).

    All layers of a model rotate by the same angles, so the last results are stored.
    """
    with torch.inference_mode(False), torch.no_grad():  # a stored result is also used in training
        waves = Sinusoidal(width, base=base).vectors(first, count, device).to(dtype)
        sin, cos = waves.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.complex(cos, sin)


@public
def find_positions(name: str, choices: tuple[str, ...]) -> type[Positions] | None:
    """Return the class named by `module:Class`, or None if `name` is one of the `choices`.

    Raises `InputError` for an unknown name, or for a class that cannot be imported or is not a subclass of `Positions`.

    >>> find_positions("learned", ("learned", "sinusoidal")) is None
    True
    """
    return None if name in choices else plugin_class("positions", name, Positions, choices)


@public
def make_positions(name: str, width: int, length: int) -> Positions | Concatenated | None:
    """Return the positional encoding of embeddings for states of `width` in sequences of at most `length` steps.

    `name`: learned, sinusoidal, concatenated (half of the width each), or `module:Class`. None for positions that
    act on queries and keys or on scores (rotary, bias), and for none. Raises `InputError` if a custom class is
    missing or cannot be built.

    >>> make_positions("sinusoidal", 4, 10)
    Sinusoidal()
    """
    if name in ("rotary", "bias", "none"):
        return None
    if name == "learned":
        return LearnedPositions(length, width)
    if name in ("sinusoidal", "concatenated"):
        return Sinusoidal(width) if name == "sinusoidal" else Concatenated(Sinusoidal(width // 2))
    positions, sizes = plugin_class("positions", name, Positions), f"width {width} and {length} steps"
    return build_plugin(
        "positions", name, lambda: positions(width, length), sizes, "a width and the largest number of steps"
    )


class Alibi(PositionBias):
    """`-m |i - j|`. The slopes of H heads are `2^(-8 / H)`, `2^(-16 / H)`, ..., `2^-8`.

    This is the formula of the paper for every H. The authors' code, and BLOOM, use other slopes if H is not a
    power of two. A layer that is not causal also counts the distance to later keys, which the paper leaves out.
    """

    def __init__(self, sizes: LayerSizes) -> None:
        super().__init__()
        self.heads = sizes.heads

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the biases (H, Tq, Tk), float64, because half precision rounds distances above 256."""
        heads = torch.arange(1, self.heads + 1, device=queries.device, dtype=torch.float64)
        # Slopes are not learned: the paper found that trained slopes extrapolate worse (section 3).
        slopes = 2.0 ** (heads * (-8 / self.heads))
        return -slopes.view(-1, 1, 1) * (queries - keys).abs()


class T5Bias(PositionBias):
    """A learned bias for each head and bucket of distances.

    Half of the buckets are for single distances; the other half covers distances up to `farthest` in steps that
    grow like the logarithm. Farther keys share the last bucket. In a layer that is not causal, half of the
    buckets are for later keys. T5 shares the biases between layers; here each layer has its own.
    """

    def __init__(self, sizes: LayerSizes, buckets: Annotated[int, Limits(4, 1024)] = 32, farthest: int = 128) -> None:
        super().__init__()
        check_range("farthest", farthest, buckets, 2**20)
        self.buckets, self.farthest, self.causal = buckets, farthest, sizes.kind == "causal"
        self.bias = nn.Parameter(torch.zeros(sizes.heads, buckets))

    def bucket(self, distances: Tensor) -> Tensor:
        """Return the bucket of each distance i - j, int64 of the same shape."""
        if self.causal:
            return self._bucket(distances.clamp(min=0), self.buckets)
        half = self.buckets // 2
        return self._bucket(distances.abs(), half) + (distances < 0) * half

    def _bucket(self, distances: Tensor, count: int) -> Tensor:
        single = count // 2
        scale = (count - single) / math.log(self.farthest / single)
        # `long` rounds down, as T5 does.
        far = single + (torch.log(distances.clamp(min=1) / single) * scale).long()
        return torch.where(distances < single, distances, far.clamp(max=count - 1))

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the biases (H, Tq, Tk)."""
        return self.bias[:, self.bucket(queries - keys)]

"""Multi-head attention (Vaswani et al. 2017, section 3.2.2).

    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)
    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O

Each head is `width / heads` wide, and the projections have no bias.
"""

from torch import Tensor, nn

from regard.attention.masks import as_weights_mask
from regard.attention.recording import Recordable
from regard.attention.single import attend
from regard.errors import InputError


class MultiHeadAttention(Recordable):
    """`heads` scaled dot-product attentions side by side, over inputs of `width`.

    Raises `InputError` where `heads` does not divide `width`.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise InputError(
                f"width {width} cannot be split into {heads} heads: choose a multiple of {heads}"
            )
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the context (B, Tq, D) of query (B, Tq, D) over key and value (B, Tk, D).

        `mask`: (B, Tk) or (B, Tq, Tk), True = may be attended; it holds for every head.
        """
        mask = None if mask is None else as_weights_mask(mask)
        heads = (self._split(self.query(query)), self._split(self.key(key)), self._split(self.value(value)))
        return self.output(attend(self, *heads, mask).transpose(1, 2).flatten(2))

    def _split(self, states: Tensor) -> Tensor:
        """Split the width into heads: (B, T, D) to (B, H, T, D / H)."""
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)

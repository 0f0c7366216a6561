"""When a training takes each of its batches from a corpus: for the programs that time it."""

from collections.abc import Callable
from typing import Any

from regard.data.buckets import Buckets


def on_batch(tell: Callable[[int], None]) -> None:
    """Call `tell` with the target tokens of every batch that is drawn from now on in this process."""
    draw = Buckets.draw

    def told(self: Buckets, step: int = 0) -> Any:
        batch = draw(self, step)
        tell(batch.tokens)
        return batch

    Buckets.draw = told  # type: ignore[method-assign]

"""Report each batch that training draws from a corpus, for programs that time training steps."""

from collections.abc import Callable
from typing import Any

from regard.data.buckets import Buckets


def on_batch(callback: Callable[[int], None]) -> None:
    """Call `callback` with the number of target tokens of each batch drawn in this process from now on."""
    draw = Buckets.draw

    def draw_and_report(self: Buckets, step: int = 0) -> Any:
        batch = draw(self, step)
        callback(batch.tokens)
        return batch

    Buckets.draw = draw_and_report  # type: ignore[method-assign]

"""A job for worker processes, which import it by its name."""

import os
import time
from dataclasses import dataclass

from regard.errors import InputError


@dataclass(frozen=True)
class Squares:
    """Return the square of a number and the process that computed it."""

    slow: int = -1
    refused: tuple[int, ...] = ()

    def __call__(self, number: int) -> tuple[int, int]:
        if number == self.slow:
            time.sleep(0.2)
        if number in self.refused:
            raise InputError(f"{number} is refused")
        return number * number, os.getpid()

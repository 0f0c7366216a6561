"""`regard`, but each step takes longer, most of all where one process is alone until others come; the first one
notes the steps that it takes, and on how many: `python -m tests.training.slowly SECONDS FILE WORDS...`"""

import sys
import time
from pathlib import Path
from typing import Any

from regard.cli import main
from regard.training import SingleLearner


def slowly(seconds: float, notes: Path) -> None:
    """Take so many seconds longer for a step, a process alone eight times as many."""
    learn = SingleLearner.learn

    def learning(self: SingleLearner, lr: float) -> Any:
        time.sleep(seconds if self.context.size > 1 else 8 * seconds)
        found = learn(self, lr)
        if self.context.first:
            with notes.open("a") as file:
                file.write(f"{self.step} {self.world.size}\n")
        return found

    SingleLearner.learn = learning  # type: ignore[method-assign]


if __name__ == "__main__":
    _, seconds, notes, *words = sys.argv
    slowly(float(seconds), Path(notes))
    sys.argv = ["regard", *words]
    sys.exit(main())

"""Run `regard` with a second process that fails at a step of the first start.

    torchrun FLAGS --run-path tests/training/failing.py SIGNAL STEP WORDS...

At step -1, the process fails before the run exists.
"""

import os
import signal
import sys
from typing import Any

from regard.cli import main
from regard.training.distributed import DistributedContext
from regard.training.trainer import Learner


def fail_at(step: int, number: int) -> None:
    """Make this process send a signal to itself before a training step."""
    learn = Learner.learn

    def failing(self: Learner, lr: float) -> Any:
        if self.step == step:
            os.kill(os.getpid(), number)
        return learn(self, lr)

    Learner.learn = failing  # type: ignore[method-assign]
    if step < 0:
        DistributedContext.lock = lambda *_: os.kill(os.getpid(), number)  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _, name, step, *words = sys.argv
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        fail_at(int(step), getattr(signal, name))
    # torchrun ends the other process when it notices the failure, maybe before that process has reported it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.argv = ["regard", *words]
    sys.exit(main())

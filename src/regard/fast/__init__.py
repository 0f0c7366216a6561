"""Fast paths: code that computes the same results as the plain modules in less time.

The plain code is complete and easier to read: the modules of `attention` and `models`, autograd, PyTorch's
optimizer, and searches that call `Seq2Seq.step`. The docstring of each file in this package names the code that
the file replaces, the gain with the source of the figure, and the conditions under which the file is not used.

The environment variable `REGARD_REFERENCE=1` disables all fast paths. This package imports no other package of Regard.
Its functions receive tensors and modules as arguments. Only this package calls private functions of PyTorch.
"""

import os


def enabled() -> bool:
    return os.environ.get("REGARD_REFERENCE", "") in ("", "0")

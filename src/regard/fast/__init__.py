"""Fast paths: code that computes the same results as the plain modules in less time.

The plain code is complete and easier to read: the modules of `attention` and `models`, autograd, PyTorch's
optimizer, and searches that call `Seq2Seq.step`. The docstring of each file in this package names the code that
the file replaces, the gain with the source of the figure, and the conditions under which the file is not used.

The environment variable `REGARD_REFERENCE=1` disables all fast paths. This package imports no other package of Regard.
Its functions receive tensors and modules as arguments. Only this package calls private functions of PyTorch.

| file | replaces |
|---|---|
| `query_gradient` | autograd in a training step of `QueryModel` |
| `fused_rnn_attention` | the loop over the steps of `RecurrentDecoder` |
| `fast_transformer` | `Transformer.encode` and `Transformer.step` in a search |
| `joint_projection` | separate products of the same states in a training step |
| `additive` | the tensor of all pairs in additive scores |
| `compiled_relu` | `torch.relu` in compiled layers |
| `onednn` | large float32 matrix products by MKL |
| `softmax` | softmax over rows of fewer than 16 numbers |
| `token_screen` | exact logits over a whole vocabulary |
| `adam` | `torch.optim.Adam` and `torch.lerp` |
| `memory`, `threads` | settings of the C library and of PyTorch, threads that search batches in parallel |
"""

import os


def enabled() -> bool:
    return os.environ.get("REGARD_REFERENCE", "") in ("", "0")

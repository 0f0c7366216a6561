"""A training step never waits for its device, and starts few operations.

The device "meta" stands for a GPU: its tensors have no values, so reading one on the host raises an error.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import regard
from regard.attention.layer import disable_compile
from regard.errors import InputError
from regard.training.checkpoint import Adam
from regard.training.trainer import Learner

META = torch.device("meta")
SIZES: dict[str, Any] = {"hidden": 16, "heads": 2, "inner": 32, "steps": 2, "savepath": "run"}
PAIRS = SIZES | {
    "enc_layers": 4,
    "dec_layers": 4,
    "dropout": 0.1,
    "tokenizer": "words",
    "vocab_size": 60,
    "positions": "learned",
}
TEXT = SIZES | {"layers": 8, "max_len": 16, "validate_every": 0, "vocab_size": 60, "text": "text.txt"}
TASKS: dict[str, dict[str, Any]] = {
    "translation": PAIRS | {"train": "pairs.tsv"},
    "text": TEXT,
    "induction": {**SIZES, "layers": 1},
    "counting": {"steps": 2, "savepath": "run"},
    "dates": {"steps": 2, "savepath": "run"},
}


@pytest.fixture(autouse=True)
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"w{number}" for number in range(20)]
    lines = [" ".join(words[(row * 7 + step) % 20] for step in range(2 + row % 9)) for row in range(300)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines))
    (tmp_path / "text.txt").write_text("".join(f"{line}.\n" for line in lines))
    monkeypatch.chdir(tmp_path)


class Kernels(TorchDispatchMode):
    """Counts operations that start a kernel: no views, no allocation, and nothing of the host's batches."""

    FREE = ("aten.empty", "aten.detach", "aten._unsafe_view", "aten.lift_fresh", "prim.", "aten.promote_types")

    def __init__(self) -> None:
        super().__init__()
        self.started = Counter[str]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count and call a function."""
        result = function(*args, **(kwargs or {}))
        on_device = isinstance(result, Tensor) and result.device == META
        if not function.is_view and not str(function).startswith(self.FREE) and (on_device or result is None):
            self.started[str(function)] += 1
        return result


class FusedKernel(torch.autograd.Function):
    """Stands for the fused kernel of attention, which "meta" divides into many operations."""

    @staticmethod
    def forward(ctx: Any, *states: Tensor) -> Tensor:
        ctx.states = states
        return torch.empty_like(states[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return tuple(map(torch.empty_like, ctx.states))


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a function of a learner on "meta" replace the training loop of `regard.train`."""
    is_enabled, autocast = torch.is_autocast_enabled, torch.autocast
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind="cpu": kind != "meta" and is_enabled(kind))
    monkeypatch.setattr(
        torch,
        "autocast",
        lambda kind, *dtype, **options: nullcontext() if kind == "meta" else autocast(kind, *dtype, **options),
    )

    def train(task: str, work: Callable[[Learner], object]) -> None:
        def work_instead(learner: Learner, *_: Any, **__: Any) -> None:
            state = learner.state
            learner.context = replace(learner.context, device=META)
            state.objective.to(META).fast_gradient = None  # computes with NumPy
            parameters, old = dict(state.model.named_parameters()), state.optimizer
            state.optimizer = Adam(parameters, betas=old.betas, lr_factors=old.lr_factors)
            state.average = {name: torch.empty_like(parameters[name]) for name in state.average}
            work(learner)

        monkeypatch.setattr(Learner, "train", work_instead)
        regard.train(task, **TASKS[task], overwrite=True, progress=False)

    return train


@pytest.mark.parametrize("task", TASKS)
def test_no_step_waits_for_its_device(task: str, on_device: Callable[..., None]) -> None:
    done = []

    def learn(learner: Learner) -> None:
        for _ in range(2):
            loss, correct = learner.learn(1e-3)
            done.append((loss.device.type, correct.device.type, loss.shape))

    on_device(task, learn)
    assert done == [("meta", "meta", torch.Size([]))] * 2


@pytest.mark.parametrize("task", ["translation", "text"])
def test_a_step_starts_few_more_operations_than_a_plain_loop(
    task: str, on_device: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", lambda parameters, clip: None)  # many operations on "meta" only
    kernel: Any = FusedKernel.apply
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *states, **_: kernel(*states))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from strong_loop import PlainDecoderOnly, PlainTransformer, Sizes

    def compare(learner: Learner) -> None:
        flags = {"layers": 4, "dropout": 0.0, **TASKS[task]}
        sizes = Sizes(
            symbols=60, width=16, heads=2, inner=32, longest=16, layers=flags["layers"], dropout=flags["dropout"]
        )
        plain: Any = (PlainTransformer if task == "translation" else PlainDecoderOnly)(sizes).to(META)
        host: Any = learner.batches.draw(0)
        with Kernels() as ours:
            learner.learn(1e-3)
        with Kernels() as theirs:
            plain.loss(host.to(META), host.outputs.to(META)).backward()
        optimizer = {"aten._fused_adamw_.default": 1, "aten._foreach_lerp_.Scalar": 1}
        assert {name: ours.started.pop(name, 1) for name in optimizer} == optimizer
        # The cross-entropy has 20 operations more, which read the logits half as often.
        assert ours.started.total() <= 1.25 * theirs.started.total()

    on_device(task, compare)


@pytest.mark.filterwarnings("ignore")  # of PyTorch's compiler
def test_batches_of_all_shapes_share_few_compiled_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.compiler.reset()
    blocks = disable_compile(), disable_compile()  # recordings of two threads end in any order
    [block.__enter__() for block in blocks]
    [block.__exit__(None, None, None) for block in blocks]
    graphs, compile_module = list[object](), nn.Module.compile

    def note(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(nn.Module, "compile", lambda module, **options: compile_module(module, backend=note, **options))
    regard.train("translation", **{**TASKS["translation"], "steps": 60, "tokens": 120, "compile": True}, progress=False)
    assert 1 <= len(graphs) <= 4


def test_losses_on_a_device_are_read_every_ten_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device "cpu:0" stands for a GPU, whose losses can be read. All losses are those of a CPU."""
    read, reads = list[int](), Learner._read
    make, flags = Learner.__init__, {"steps": 25, "progress": False, "snapshots": 0}

    def note(learner: Learner, loss: Tensor, lr: float) -> float:
        read.append(learner.step)
        return reads(learner, loss, lr)

    def move(learner: Learner, *arguments: Any, context: Any, **options: Any) -> None:
        make(learner, *arguments, context=replace(context, device=torch.device("cpu", 0)), **options)

    monkeypatch.setattr(Learner, "_read", note)
    plain = regard.train("counting", savepath=tmp_path / "plain", **flags)
    assert read == list(range(1, 26))
    read.clear()
    monkeypatch.setattr(Learner, "__init__", move)
    moved = regard.train("counting", savepath=tmp_path / "moved", **flags)
    assert read == [10, 20, 25]
    assert moved.files.read_metrics() == plain.files.read_metrics()
    with pytest.raises(InputError, match="at step 10, with a learning rate"):
        regard.train("counting", savepath=tmp_path / "high", **flags | {"lr": 1e30})

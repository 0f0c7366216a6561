"""Training loop: steps, metrics, validations, checkpoints; kept models; the dtype of matrix products."""

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.attention.blocks import Block
from regard.data.batch import PairBatch
from regard.errors import InputError, MachineError, shorten
from regard.fast import onednn
from regard.io import list_steps, refuse_links, remove_quietly
from regard.machine import choose
from regard.streams import derive_seed
from regard.tasks.batch import Batch, BatchSource, TokenBatch
from regard.training.checkpoint import Checkpoint, TrainingState
from regard.training.config import Criterion, Precision, TrainingConfig
from regard.training.distributed import CPU, SINGLE_PROCESS, DistributedContext
from regard.training.objective import Objective
from regard.training.run_folder import RunFolder

# Kept models of a training run: `kept/step-N.safetensors`, the weights for use after N training steps.


def keep_weights(folder: RunFolder, checkpoint: Checkpoint, most: int, criterion: Criterion | None) -> None:
    """Write the weights of a checkpoint to the kept models of a run, and remove all but the `most` best models.

    The best models are those with the best criterion in metrics.jsonl; of equally good models, and without a criterion,
    the latest. Models without metrics are removed first. Raises `MachineError` if a file cannot be written.
    """
    checkpoint.save_weights(folder, "kept")
    refuse_links(folder.kept_folder)
    values = {}
    if criterion is not None:
        lines = folder.read_metrics()
        values = {line["step"]: criterion.value(line) for line in lines if criterion.metric in line}
    steps = [int(path.stem.removeprefix("step-")) for path in list_steps(folder.kept_folder)]
    best = sorted(steps, key=lambda step: (values.get(step, float("-inf")), step))
    for step in best[:-most]:
        remove_quietly(folder.kept_folder / f"step-{step}.safetensors")


# Dtype of matrix products in training.

PRECISION = "precision"  # Name of the measured choice between float32 and bfloat16


def measure_choices(precision: Precision, context: DistributedContext = SINGLE_PROCESS) -> dict[str, str]:
    """Return the measured choices that affect losses, by name. All processes use those of the first.

    The run stores them, so that a resumed run has the same losses, even if the machine's choices have changed.
    """
    by_onednn = bool(context.agree(context.first and onednn.available()))
    dtype = str(product_type(precision, context)).removeprefix("torch.")
    return {onednn.PRODUCTS: "oneDNN" if by_onednn else "MKL", PRECISION: dtype}


def product_type(precision: Precision, context: DistributedContext = SINGLE_PROCESS) -> torch.dtype:
    """Return the dtype of matrix products. "auto" selects bfloat16 if the device computes it faster.

    Without its instructions, bfloat16 is emulated and slower. With them, a measurement on a CPU decides.
    """
    if precision != "auto":
        dtype: torch.dtype = getattr(torch, precision)
        return dtype
    if context.device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    capabilities = torch.cpu.get_capabilities()
    native = any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    # Every process takes part, because the processors of several machines may differ.
    faster = context.agree(context.first and native and _faster_in_bfloat16())
    return torch.bfloat16 if faster else torch.float32


def _faster_in_bfloat16() -> bool:
    return choose(PRECISION, _products, version=f"torch {torch.__version__}") == "bfloat16"


def _products() -> dict[str, Callable[[], object]]:
    states, weight, grads = torch.ones(2048, 128), torch.ones(512, 128), torch.ones(2048, 512)

    def multiply(dtype: torch.dtype) -> None:
        left, right, back = states.to(dtype), weight.to(dtype), grads.to(dtype)
        left @ right.T, back @ right, back.T @ left

    return {name: partial(multiply, getattr(torch, name)) for name in ("float32", "bfloat16")}


Metrics = dict[str, float]
METRICS_EVERY = 10  # Number of steps between two lines of metrics; other losses stay on a GPU, which does not wait
CHECKPOINT_EVERY = 500
"""Number of training steps between two checkpoints. A killed process loses at most this number of steps."""


class Validate(Protocol):
    """Measurement of a model on held-out data."""

    @property
    def criterion(self) -> Criterion | None:
        """Metric that selects the model that is saved for use; None: the last model is saved."""

    def __call__(self, model: nn.Module) -> Metrics:
        """Return the metrics of a model."""


Tick = Callable[[Batch | PairBatch | TokenBatch, int, Tensor | None], None]
"""What runs before the first step and after each step: receives a batch, the number of steps, and their last loss."""


class Learner:
    """One model, trained by all processes of a training run. `drops`: whether the model has dropout."""

    def __init__(
        self,
        state: TrainingState,
        settings: TrainingConfig,
        batches: BatchSource,
        folder: RunFolder,
        *,
        context: DistributedContext = SINGLE_PROCESS,
        drops: bool = False,
        tick: Tick | None = None,
    ) -> None:
        self.tick = tick
        self.state, self.settings, self.batches, self.context = state, settings, batches, context
        self.folder, self.tokens, self.drops = folder, 0, drops
        self.module = _distribute(state.objective, settings, context)
        dtype = product_type(settings.precision, context)
        self._autocast = nullcontext() if dtype == torch.float32 else torch.autocast(context.device.type, dtype)
        """Context for matrix products with the dtype of `precision`."""
        state.model.train()

    @property
    def step(self) -> int:
        return self.state.step

    def train(
        self,
        on_metrics: Callable[[Metrics], None] = lambda metrics: None,
        *,
        validate: Validate | None = None,
        first: int = 0,
    ) -> None:
        """Train to the last step, and write metrics and checkpoints to the folder.

        `validate` returns metrics of a model. If it has a criterion, the weights that are best by the criterion
        are saved for use; of equally good weights, the latest. Otherwise the last weights are saved. `on_metrics`
        is called with the metrics. `first`: step at which the schedule begins. SIGINT, SIGTERM and SIGHUP end the
        process after the current training step and a checkpoint. A second signal ends the process immediately.
        Raises `InputError` for a loss that is not finite, and `MachineError` if a file cannot be written. The
        last checkpoint is then intact.
        """
        state, settings, context, folder = self.state, self.settings, self.context, self.folder
        progress, criterion = state.progress, None if validate is None else validate.criterion
        # A resumed training run may already be complete.
        last = state.step >= settings.steps or progress.out_of_patience(settings.patience)
        snapshot_steps = frozenset(settings.snapshot_steps)
        with delay_signals() as signals, torch.random.fork_rng(devices=[]):
            if state.step == 0 and snapshot_steps and context.first:
                self._weights().save_weights(folder, "snapshots")
            while not last:
                lr = settings.schedule_at(state.step, first)
                loss, correct = self.learn(lr)
                last, validation = state.step == settings.steps, Metrics()
                due = bool(settings.validate_every) and state.step % settings.validate_every == 0
                reads = state.step % METRICS_EVERY == 0 or state.step in snapshot_steps or context.device == CPU
                if not (last or due or reads):
                    continue
                value = self._read(loss, lr)
                if state.step in snapshot_steps and context.first:
                    self._weights().save_weights(folder, "snapshots")
                if validate is not None and (due or last):
                    validation = self._validated(validate)
                selected = bool(validation) and criterion is not None
                better = criterion is None
                if criterion is not None and selected:
                    better = progress.note(criterion.value(validation))
                last = last or (selected and progress.out_of_patience(settings.patience))
                if (state.step % METRICS_EVERY == 0 or last or validation) and context.first:
                    metrics = {"step": state.step, "loss": value, **validation}
                    metrics |= {"exact_match": correct.float().mean().item(), "lr": lr}
                    folder.append_metrics(metrics)
                    on_metrics({**metrics, "tokens": self.tokens})
                interrupted = bool(context.agree(bool(signals)))
                if state.step % CHECKPOINT_EVERY == 0 or last or selected or interrupted:
                    state.save(folder, context, use=better)
                if settings.keep and (due or last) and context.first:
                    keep_weights(folder, self._weights(), settings.keep, criterion)
                if interrupted and not last:
                    context.wait()  # so that no process ends while another process writes
                    exit_by_signal(signals[0] if signals else 0)

    def learn(self, lr: float) -> tuple[Tensor, Tensor]:
        """Run a training step on one or several batches. Return the mean loss over the outputs in nats, and
        whether all outputs of a sample of this process are correct, (B,) bool, both before the update and on the
        device, which no step waits for. Raises `MachineError` if the layers cannot be compiled.
        """
        state, settings, scaler = self.state, self.settings, self.state.scaler
        if self.drops:  # dropout depends only on seed and step, so that resuming is exact
            torch.manual_seed(derive_seed(settings.seed, f"dropout/{state.step}/{self.context.rank}"))
        parts = [self.batches.draw(state.step) for _ in range(settings.accumulate)]
        tokens = sum(part.tokens for part in parts)
        if self.tick is not None and not self.tokens:
            self.tick(parts[0], state.step, None)
        self.tokens += tokens
        state.optimizer.zero_grad()
        shares = [self.context.share(part) for part in parts]
        losses, corrects = zip(*[self._add_gradients(*share, tokens) for share in shares], strict=True)
        loss = self.context.total(sum(losses[1:], losses[0]))
        optimizer: Any = state.optimizer
        if scaler is not None:
            scaler.unscale_(optimizer)
        if (clip := settings.optimization.clip) is not None:
            torch.nn.utils.clip_grad_norm_(state.model.parameters(), clip)
        if scaler is None:
            optimizer.step(lr)
        else:  # leaves the step out and lowers the scale if a gradient is not finite
            scaler.step(optimizer, lr)
            scaler.update()
        state.step += 1
        if settings.average:
            state.update_average(settings.average)
        state.progress.place = self.batches.place
        if self.tick is not None:
            self.tick(parts[0], state.step, loss)
        return loss, torch.cat(corrects) if len(corrects) > 1 else corrects[0]

    def _read(self, loss: Tensor, lr: float) -> float:
        """Return a loss, which waits for a GPU; raises `InputError` if it is not finite."""
        if math.isfinite(value := loss.item()):
            return value
        raise InputError(
            f"loss is {value} at step {self.step}, with a learning rate of {lr:g}: lower --lr; the last checkpoint of "
            f"the run is intact"
        )

    def _add_gradients(self, batch: Any, outputs: Tensor | None, tokens: int) -> tuple[Tensor, Tensor]:
        """Add the gradients of a batch. Returns the loss, and whether each sample is correct: (B,) bool."""
        size, scaler = self.context.size, self.state.scaler
        with _compiling() if self.settings.compile else nullcontext():
            with self._autocast:
                loss, correct = self.module(batch, self.state.step, tokens, outputs)
            if loss.requires_grad:  # if not, the fast path has set the gradients
                # DDP averages gradients, but the loss of a process is a part of the sum.
                total = loss * size if size > 1 else loss
                # Scaled for float16, so that small gradients do not become 0.
                (total if scaler is None else scaler.scale(total)).backward()
        return loss.detach(), correct

    def _validated(self, validate: Validate) -> Metrics:
        """Return the metrics of the averaged model, computed by the first process."""
        metrics: Metrics = {}
        # Each decoding step of a search has different shapes, for which compiled layers would be recompiled.
        # Accessing torch.compiler takes seconds, so it is only accessed with compiled layers.
        eager = torch.compiler.set_stance("force_eager") if self.settings.compile else nullcontext()
        with self.state.averaged() as model, eager:
            if self.context.first:
                metrics = validate(model)
        if (criterion := validate.criterion) is not None:
            metrics[criterion.metric] = self.context.agree(metrics.get(criterion.metric, 0.0))
        return metrics

    def _weights(self) -> Checkpoint:
        return Checkpoint(step=self.step, weights=self.state.weights())


@contextmanager
def _compiling() -> Iterator[None]:
    """Convert an error of the compilation, such as a missing C compiler, to a one-line error."""
    from torch._dynamo.exc import TorchDynamoException  # importing this module takes seconds

    try:
        yield
    except TorchDynamoException as error:
        reason = " ".join(str(error).split())
        raise MachineError(f"cannot compile: {shorten(reason, 200)}; train with --no_compile") from error


def _distribute(objective: Objective[Any, Any], settings: TrainingConfig, context: DistributedContext) -> nn.Module:
    """Return the objective with optionally compiled layers, wrapped in DDP for several processes.

    Only the layers are compiled, because one compilation is then valid for all layers and for batches of any shape.
    """
    if settings.compile:
        for module in objective.modules():
            if isinstance(module, Block):
                module.compile(dynamic=True)
    if context.size > 1 and not settings.sharded:
        objective.fast_gradient = None  # DDP sums only gradients that come from autograd
        return nn.parallel.DistributedDataParallel(objective)
    return objective


# Signals during training: Ctrl-C, SIGTERM and SIGHUP take effect after the current training step.


DEBOUNCE = 2.0
"""Time in seconds during which repeated signals are treated as one signal. A process often receives a signal
twice, because the terminal sends Ctrl-C to all processes, and torchrun sends it again."""
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted(KeyboardInterrupt):
    """Raised by Ctrl-C during training, after the current step has been finished and saved."""


class Terminated(SystemExit):
    """Another signal than Ctrl-C stopped a training run, which is saved; the exit status is 128 + its number."""


@contextmanager
def delay_signals() -> Iterator[list[int]]:
    """Yield a list that receives the first of `SIGNALS` instead of ending the process.

    A signal that arrives more than `DEBOUNCE` seconds later has its usual effect. Only the main thread can
    handle signals. In other threads, the list is always empty.
    """
    received: list[int] = []
    handlers: dict[int, object] = {}
    first = math.inf  # unknown: a second signal may arrive while the first signal is handled

    def receive(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not received:
            received.append(number)
            first = time.monotonic()
        elif time.monotonic() > first + DEBOUNCE:
            restore()
            signal.raise_signal(number)

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    try:
        for number in SIGNALS:
            if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
                handlers[number] = signal.signal(number, receive)
    except ValueError:  # not the main thread
        handlers.clear()
    try:
        yield received
    finally:
        restore()


def exit_by_signal(number: int) -> None:
    if number == signal.SIGINT:
        raise Interrupted
    raise Terminated(128 + number)

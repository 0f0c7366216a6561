"""Training loop: steps, metrics, validations, checkpoints.

`train_steps` trains a `Learner`: one model on one or several processes.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.attention.blocks import Block
from regard.data.batch import PairBatch
from regard.errors import InputError, MachineError, shorten
from regard.io.reading import list_steps
from regard.io.writing import refuse_links, remove_quietly
from regard.streams import derive_seed
from regard.tasks.batch import Batch, BatchSource, TokenBatch
from regard.training.checkpoint import Checkpoint, Progress, TrainingState
from regard.training.distributed import SINGLE_PROCESS, DistributedContext
from regard.training.objective import Objective
from regard.training.precision import product_type
from regard.training.run_folder import RunFolder
from regard.training.settings import Criterion, TrainingConfig
from regard.training.signals import delay_signals, exit_by_signal

# Kept models of a training run: `kept/step-N.safetensors`, the weights for use after N training steps.


def keep_weights(folder: RunFolder, checkpoint: Checkpoint, most: int, criterion: Criterion | None) -> None:
    """Write the weights of a checkpoint to the kept models of a run, and remove all but the `most` best models.

    The best models are those with the best criterion in metrics.jsonl; of equally good models, and without a
    criterion, the latest. Models without metrics are removed first. Raises `MachineError` if a file cannot be
    written.
    """
    checkpoint.save_kept(folder)
    refuse_links(folder.kept_folder)
    values = {}
    if criterion is not None:
        lines = folder.read_metrics()
        values = {line["step"]: criterion.value(line) for line in lines if criterion.metric in line}
    steps = [int(path.stem.removeprefix("step-")) for path in list_steps(folder.kept_folder)]
    best = sorted(steps, key=lambda step: (values.get(step, float("-inf")), step))
    for step in best[:-most]:
        remove_quietly(folder.kept_folder / f"step-{step}.safetensors")


Metrics = dict[str, float]
METRICS_EVERY = 10
"""Number of training steps between two lines of metrics."""
CHECKPOINT_EVERY = 500
"""Number of training steps between two checkpoints. A killed process loses at most this number of steps."""


class Outcome(NamedTuple):
    """Loss and accuracy of a training step, computed before the update of the parameters."""

    loss: float
    """Mean loss over the outputs in nats."""
    correct: Tensor
    """(B,) bool: whether all outputs of a sample are correct, for the samples of this process."""


class Validate(Protocol):
    """Measurement of a model on held-out data."""

    @property
    def criterion(self) -> Criterion | None:
        """Metric that selects the model that is saved for use; None: the last model is saved."""

    def __call__(self, model: nn.Module) -> Metrics:
        """Return the metrics of a model."""


def train_steps(
    learner: "Learner",
    settings: TrainingConfig,
    on_metrics: Callable[[Metrics], None] = lambda metrics: None,
    *,
    validate: Validate | None = None,
    first: int = 0,
) -> None:
    """Train to the last step, and write metrics and checkpoints to the folder of the learner.

    `validate` returns metrics of a model. If it has a criterion, the weights that are best by the criterion are
    saved for use; of equally good weights, the latest. Otherwise the last weights are saved. `on_metrics` is
    called with the metrics. `first`: step at which the schedule begins. SIGINT, SIGTERM and
    SIGHUP end the process after the current training step and a checkpoint. A second signal ends the process
    immediately. Raises `InputError` for a loss that is not finite, and `MachineError` if a file cannot be
    written. The last checkpoint is then intact.
    """
    progress, criterion = learner.progress, None if validate is None else validate.criterion
    # A resumed training run may already be complete.
    last = learner.step >= settings.steps or progress.out_of_patience(settings.patience)
    with delay_signals() as signals, torch.random.fork_rng(devices=[]):
        snapshot_steps = frozenset(settings.snapshot_steps)
        if learner.step == 0 and snapshot_steps:
            learner.snapshot()
        while not last:
            lr = settings.schedule_at(learner.step, first)
            outcome = learner.learn(lr)
            if learner.step in snapshot_steps:
                learner.snapshot()
            last, validation = learner.step == settings.steps, Metrics()
            due = bool(settings.validate_every) and learner.step % settings.validate_every == 0
            if validate is not None and (due or last):
                validation = learner.validated(validate)
            selected = bool(validation) and criterion is not None
            better = criterion is None
            if criterion is not None and selected:
                better = progress.note(criterion.value(validation))
            last = last or (selected and progress.out_of_patience(settings.patience))
            if (learner.step % METRICS_EVERY == 0 or last or validation) and learner.context.first:
                metrics = {"step": learner.step, "loss": outcome.loss, **validation}
                metrics |= {"exact_match": outcome.correct.float().mean().item(), "lr": lr}
                learner.folder.append_metrics(metrics)
                on_metrics({**metrics, "tokens": learner.tokens})
            interrupted = learner.agree(bool(signals))
            if learner.step % CHECKPOINT_EVERY == 0 or last or selected or interrupted:
                learner.save(use=better)
            if settings.keep and (due or last):
                learner.keep(settings.keep, criterion)
            if interrupted and not last:
                learner.wait()
                exit_by_signal(signals[0] if signals else 0)


class Learner:
    """One model, trained by all processes of a training run."""

    def __init__(
        self,
        state: TrainingState,
        settings: TrainingConfig,
        batches: BatchSource,
        folder: RunFolder,
        *,
        context: DistributedContext = SINGLE_PROCESS,
        drops: bool = False,
    ) -> None:
        self.state, self.settings, self.batches, self.context = state, settings, batches, context
        self.folder, self.tokens = folder, 0
        self.drops = drops
        """Whether the model has dropout."""
        self.module = _distribute(state.objective, settings, context)
        dtype = product_type(settings.precision, context)
        self._scaler = state.scaler
        """Scales the loss for float16, so that small gradients do not become 0; None for other dtypes."""
        self._autocast = nullcontext() if dtype == torch.float32 else torch.autocast(context.device.type, dtype)
        """Context for matrix products with the dtype of `precision`."""
        state.model.train()

    @property
    def step(self) -> int:
        return self.state.step

    @property
    def progress(self) -> Progress:
        return self.state.progress

    def learn(self, lr: float) -> Outcome:
        """Run a training step on one or several batches.

        Raises `InputError` for a loss that is not finite, and `MachineError` if the layers cannot be compiled.
        """
        state, settings = self.state, self.settings
        if self.drops:  # dropout depends only on seed and step, so that resuming is exact
            torch.manual_seed(derive_seed(settings.seed, f"dropout/{state.step}/{self.context.rank}"))
        parts = [self.batches.draw(state.step) for _ in range(settings.accumulate)]
        tokens = sum(part.tokens for part in parts)
        self.tokens += tokens
        state.optimizer.zero_grad()
        shares = [self.context.share(part) for part in parts]
        losses, corrects = zip(*[self._add_gradients(share, tokens) for share in shares], strict=True)
        loss = self.context.total(sum(losses[1:], losses[0]))
        if self._scaler is not None:
            scaled: Any = state.optimizer
            self._scaler.unscale_(scaled)
        if (clip := settings.optimization.clip) is not None:
            torch.nn.utils.clip_grad_norm_(state.model.parameters(), clip)
        if self._scaler is None:
            state.optimizer.step(lr)
        else:  # leaves the step out and lowers the scale if a gradient is not finite
            optimizer: Any = state.optimizer
            self._scaler.step(optimizer, lr)
            self._scaler.update()
        value = loss.item()  # waits for a GPU, which therefore receives the operations of the update first
        check_finite(value, state.step + 1, lr)
        state.step += 1
        if settings.average:
            state.update_average(settings.average)
        state.progress.place = self.batches.place
        return Outcome(value, torch.cat(corrects) if len(corrects) > 1 else corrects[0])

    def _add_gradients(self, batch: Batch | PairBatch | TokenBatch, tokens: int) -> tuple[Tensor, Tensor]:
        """Add the gradients of a batch. Returns the loss, and whether each sample is correct: (B,) bool."""
        size = self.context.size
        with self._compiling() if self.settings.compile else nullcontext():
            with self._autocast:
                loss, correct = self.module(batch, self.state.step, tokens)
            if loss.requires_grad:  # if not, the fast path has set the gradients
                # DDP averages gradients, but the loss of a process is a part of the sum.
                total = loss * size if size > 1 else loss
                (total if self._scaler is None else self._scaler.scale(total)).backward()
        return loss.detach(), correct

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        """Convert an error of the compilation, such as a missing C compiler, to a one-line error."""
        from torch._dynamo.exc import TorchDynamoException  # importing this module takes seconds

        try:
            yield
        except TorchDynamoException as error:
            reason = " ".join(str(error).split())
            raise MachineError(f"cannot compile: {shorten(reason, 200)}; train with --no_compile") from error

    def validated(self, validate: Validate) -> Metrics:
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

    def snapshot(self) -> None:
        """Write a snapshot of the weights in the first process."""
        if self.context.first:
            Checkpoint(step=self.step, weights=self.state.weights()).save_snapshot(self.folder)

    def save(self, *, use: bool) -> None:
        """Write a checkpoint. `use`: also replace the weights for use."""
        self.state.save(self.folder, self.context, use=use)

    def keep(self, most: int, criterion: Criterion | None) -> None:
        """Keep the weights in the first process, and at most `most` of all kept weights."""
        if self.context.first:
            keep_weights(self.folder, Checkpoint(step=self.step, weights=self.state.weights()), most, criterion)

    def agree(self, stopped: bool) -> bool:
        """Return the value of `stopped` in the first process."""
        return bool(self.context.agree(stopped))

    def wait(self) -> None:
        """Wait for all processes, so that no process ends while another process writes."""
        self.context.wait()


def check_finite(loss: float, step: int, lr: float) -> None:
    """Raise `InputError` for a loss that is NaN or infinite."""
    if not math.isfinite(loss):
        raise InputError(
            f"loss is {loss} at step {step}, with a learning rate of {lr:g}: lower --lr; the last checkpoint "
            f"of the run is intact"
        )


def _distribute(
    objective: Objective[Any, Any], settings: TrainingConfig, context: DistributedContext
) -> nn.Module:
    """Return the objective with optionally compiled layers, wrapped in DDP for several processes.

    Only the layers are compiled, because one compilation is then valid for all layers and for batches of any
    shape.
    """
    if settings.compile:
        for module in objective.modules():
            if isinstance(module, Block):
                module.compile(dynamic=True)
    if context.size > 1 and not settings.sharded:
        objective.fast_gradient = None  # DDP sums only gradients that come from autograd
        return nn.parallel.DistributedDataParallel(objective)
    return objective

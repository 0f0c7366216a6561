"""Regard from Python: what the commands do, as calls with the same names and defaults.

    run = regard.train("signal2", heads=8)
    run.test()
    run.attend("BCCCBAABACCCA")

The command line calls these, so whatever it can do, a notebook can.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.attention import Sinusoidal
from regard.errors import InputError, check_range
from regard.evaluation import exact_match, fresh_batches
from regard.inspection import AttentionMap, RelevanceShare, attend, relevance_share
from regard.models import QueryModel
from regard.progress import progress_bar
from regard.tasks import Task
from regard.training import (
    RunConfig,
    RunFolder,
    build_model,
    find_run,
    generator_of,
    load_parameters,
    make_config,
    new_run,
    restore,
    start,
    train_steps,
)

SAVEPATH = "models"


@dataclass(frozen=True, kw_only=True)
class TestReport:
    """What a test over fresh samples found."""

    samples: int
    sample_len: int | None
    """Letters in each sample; None: every length from 1 to max_len, as in training with vary_len."""
    max_len: int
    exact_match: float
    """Share of samples (0 to 1) of which all outputs are right."""
    relevance: RelevanceShare

    def __str__(self) -> str:
        lengths = f"1 to {self.max_len}" if self.sample_len is None else self.sample_len
        heads = "   ".join(f"head {head} {share:.1%}" for head, share in enumerate(self.relevance.heads))
        return (
            f"Exact match: {self.exact_match:.2%} of {self.samples:,} fresh samples of {lengths} letters\n"
            f"Attention on relevant inputs: {heads}   (uniform attention: {self.relevance.uniform:.1%})"
        )


@dataclass(frozen=True)
class Run:
    """A trained run: its configuration, its task and its model."""

    folder: Path
    config: RunConfig
    task: Task
    model: QueryModel
    step: int
    """Training steps behind the model."""

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """Loss and exact match of the training batch, every 10 steps, as in metrics.jsonl."""
        return RunFolder(self.folder).read_metrics()

    def test(
        self,
        *,
        samples: int = 10_000,
        sample_len: int | None = None,
        signal: str | None = None,
        seed: int = 0,
    ) -> TestReport:
        """Test on fresh samples: exact match, and the share of attention on relevant inputs.

        `sample_len` letters each (default: as in training), signals fixed by `signal`; `seed` chooses the
        samples, which are drawn apart from those of training. Raises `InputError` where a value does not fit.
        """
        check_range("samples", samples, 1, 10**8)
        check_range("seed", seed, 0, 2**32 - 1)
        vary_len = self.config.training.vary_len and sample_len is None

        def batches() -> Iterator[Any]:
            generator = generator_of(seed, "test")
            return fresh_batches(
                self.task, samples, generator, sample_len=sample_len, vary_len=vary_len, signal=signal
            )

        return TestReport(
            samples=samples,
            sample_len=None if vary_len else sample_len or self.config.size.max_len,
            max_len=self.config.size.max_len,
            exact_match=exact_match(self.model, batches()),
            relevance=relevance_share(self.model, self.task, batches()),
        )

    def attend(
        self,
        input: str | None = None,
        *,
        sample_len: int | None = None,
        signal: str | None = None,
        seed: int = 0,
    ) -> AttentionMap:
        """Answer one input, such as `"BCCCBAABACCCA"`, and keep what each layer attended to.

        Without `input`, draw one with `sample_len` letters, signals fixed by `signal`, by `seed`. Raises
        `InputError` where the input does not fit the task.
        """
        if input is None:
            inputs: Tensor = self.task.sample(
                1, generator_of(seed, "sample"), sample_len=sample_len, signal=signal
            ).inputs
        elif sample_len is not None or signal is not None:
            raise InputError("input is given: leave out sample_len and signal, which are for drawn samples")
        else:
            inputs = self.task.parse(input)
        return attend(self.model, self.task, inputs)


def train(
    task: str,
    *,
    savepath: str | Path = SAVEPATH,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    **flags: Any,
) -> Run:
    """Train a model on a task and return the run, saved in a folder named for the task under `savepath`.

    `task`: a name (`counting`, `difference`, `signal`, `signal2`) or the path of a Python file with a task of
    your own. `flags`: those of `regard train --help`, with the task's defaults: max_len, vocab_size, hidden,
    enc_layers, multihead, heads, pos_enc, score, self_att, steps, batchsize, lr, recipe, vary_len, seed.
    `resume` continues the run that is there, exactly as if it had not stopped; `overwrite` replaces it.
    Raises `InputError` for what cannot be asked, `MachineError` where the disk refuses.
    """
    config = make_config(task, flags).resolved()
    built = config.build_task()
    folder = RunFolder(Path(savepath) / built.name)
    if resume:
        config = _unchanged(folder.read_config(), flags)
        built = config.build_task()
        state = restore(folder, config, built)
        folder.cut_metrics(state.step)
    else:
        state = start(config, built)
        with new_run(folder.path, config, overwrite=overwrite) as building:
            state.save(building)
    with progress_bar(built.name, state.step, config.training.steps, show=progress) as on_metrics:
        train_steps(state, config, built, folder, on_metrics)
    return Run(folder.path, config, built, state.model.eval(), state.step)


def load(run: str | Path, *, savepath: str | Path = SAVEPATH) -> Run:
    """Load a run by its folder, or by its task's name under `savepath`.

    Raises `InputError` where it is missing, damaged or not a run of Regard's. Nothing is unpickled; but a run
    on a task of one's own runs the Python file of that task, so load only those whose file you know.
    """
    folder = find_run(run, Path(savepath))
    config = folder.read_config()
    task = config.build_task()
    model = build_model(config, task)
    step = load_parameters(model, folder)
    return Run(folder.path, config, task, model.eval(), step)


def plot_positions(
    path: str | Path = "positions.png",
    *,
    run: str | Path | None = None,
    width: int = 64,
    length: int = 100,
    savepath: str | Path = SAVEPATH,
) -> Path:
    """Draw the paper's sinusoidal positions, or those that `run` has learned, into a picture at `path`.

    `width` and `length` are of the sinusoidal ones. Raises `InputError` where these do not fit, or where the
    run has no positions.
    """
    from regard.inspection import waves  # brings matplotlib, which nothing else here needs

    if run is None:
        check_range("width", width, 1, 65_536)
        check_range("length", length, 1, 10_000)
        vectors, title = Sinusoidal(width).vectors(0, length), "Sinusoidal positions"
    else:
        loaded = load(run, savepath=savepath)
        if loaded.model.positions is None:
            raise InputError(f"run {str(loaded.folder)!r} has no positions: train it with --pos_enc")
        vectors, title = loaded.model.positions.weight.detach(), f"Positions learned by {loaded.task.name}"
    return waves.plot_positions(vectors.numpy(), path, title)


def _unchanged(stored: RunConfig, flags: dict[str, Any]) -> RunConfig:
    """Return a stored config; raises `InputError` where a flag asks the run to be another one."""
    for name, value in flags.items():
        if value != stored.flags()[name]:
            raise InputError(
                f"{name} {value} differs from the run's {stored.flags()[name]}: a run goes on as it began; "
                f"leave {name} out, or train a new run"
            )
    return stored

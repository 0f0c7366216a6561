"""Compare a character model of Regard with plain PyTorch loops with the same settings.

    python benchmarks/language_model.py [--seeds 3] [--steps 2000]

The loops are `character_loop.py` and `strong_loop.py`, the second one also under bfloat16 autocast.

The text is `pydoc_data/topics.py` of Python's standard library (Debian: libpython3-stdlib; 465,000 characters in
Python 3.11). All programs train alternately on one thread with the same settings of the allocator, and are
validated on the same windows. Prints the validation loss in nats and processor time per training step, including
preparation.
"""

import argparse
import resource
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics

import character_loop as plain
import torch
from flags import count
from markdown_tables import markdown
from strong_loop import PlainDecoderOnly, Sizes, StrongTraining
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard.fast.memory import keep_memory
from regard.tasks.text import Text


class WithLogits(nn.Module):
    """A model of Regard, called as the plain model is: logits of tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, V) of tokens (B, T)."""
        logits: Tensor = self.model(tokens, None)
        return logits


def train_plain(text: Tensor, symbols: int, seed: int) -> plain.PlainTraining:
    """Train the plain model."""
    training = plain.PlainTraining(text, symbols, seed)
    for _ in range(plain.STEPS):
        training.step()
    return training


@dataclass
class Windows:
    """A batch of windows of text: inputs and targets (B, T)."""

    inputs: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> "Windows":
        """Return the batch on a device."""
        return Windows(self.inputs.to(device), self.targets.to(device))


class StrongLogits(nn.Module):
    """The model of strong_loop.py, called as the plain model is: logits of tokens."""

    def __init__(self, model: PlainDecoderOnly) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, V) of tokens (B, T)."""
        return F.linear(self.model(tokens), self.model.tokens.weight)


def train_strong(text: Tensor, symbols: int, seed: int, dtype: torch.dtype) -> plain.PlainTraining:
    """Train the model of strong_loop.py with the same learning rates; returns it for validation."""
    training = plain.PlainTraining(text, symbols, seed)  # draws and validates
    sizes = Sizes(
        symbols=symbols,
        width=plain.WIDTH,
        heads=plain.HEADS,
        inner=4 * plain.WIDTH,
        layers=plain.LAYERS,
        longest=plain.CONTEXT,
    )
    torch.manual_seed(seed)
    model = PlainDecoderOnly(sizes)

    def draw() -> Windows:
        starts = torch.randint(len(text) - plain.CONTEXT, (plain.BATCH, 1), generator=training.generator)
        windows = text[starts + torch.arange(plain.CONTEXT + 1)]
        return Windows(windows[:, :-1], windows[:, 1:])

    strong = StrongTraining(model, draw, torch.device("cpu"), dtype, compiled=False)
    for step in range(plain.STEPS):
        for group in strong.optimizer.param_groups:
            group["lr"] = plain.learning_rate(step)
        strong.step()
    training.model = StrongLogits(model)  # type: ignore[assignment]
    return training


def train_regard(file: Path, seed: int, savepath: Path) -> regard.LanguageRun:
    """Train the same model with Regard."""
    run = regard.train(
        "text",
        text=str(file),
        max_len=plain.CONTEXT,
        layers=plain.LAYERS,
        heads=plain.HEADS,
        hidden=plain.WIDTH,
        inner=4 * plain.WIDTH,
        init_std=0.02,
        steps=plain.STEPS,
        batchsize=plain.BATCH,
        lr=plain.RATE,
        last_lr=plain.LAST_RATE / plain.RATE,
        warmup=plain.WARMUP / plain.STEPS,
        beta2=plain.BETAS[1],
        weight_decay=plain.WEIGHT_DECAY,
        snapshots=0,
        validate_every=0,  # the plain loop does not validate during training
        seed=seed,
        savepath=savepath,
        progress=False,
    )
    assert isinstance(run, regard.LanguageRun)
    return run


LOOPS: dict[str, Callable[[Tensor, int, int], plain.PlainTraining]] = {
    "plain PyTorch loop": train_plain,
    "strong loop, float32": partial(train_strong, dtype=torch.float32),
    "strong loop, bfloat16": partial(train_strong, dtype=torch.bfloat16),
}


def user_seconds() -> float:
    """Return the user time of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


def main() -> None:
    """Train all models with each seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=count, default=3, help="number of training runs of each side (default 3)")
    parser.add_argument("--steps", type=count, default=plain.STEPS, help="training steps (default 2000)")
    flags = parser.parse_args()
    if flags.steps <= plain.WARMUP:
        parser.error(f"--steps: more than {plain.WARMUP}, the steps of the warm-up")
    plain.STEPS = flags.steps
    torch.set_num_threads(1)
    keep_memory()
    content = "\n\n".join(topics[name] for name in sorted(topics))
    rows: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "topics.txt")
        file.write_text(content, encoding="utf-8")
        for seed in range(flags.seeds):
            begin = user_seconds()
            run = train_regard(file, seed, Path(folder, str(seed)))
            regard_time = user_seconds() - begin
            assert isinstance(run.task, Text)
            train, held_out = (torch.from_numpy(run.task.tokens(unseen=part).astype("int64")) for part in (False, True))
            symbols = len(run.task.vocabulary)
            for name, work in LOOPS.items():
                begin = user_seconds()
                training = work(train, symbols, seed)
                used = user_seconds() - begin
                rows.setdefault(name, []).append((training.validation_loss(held_out), used))
            training.model = WithLogits(run.model.eval())  # type: ignore[assignment]
            rows.setdefault("Regard", []).append((training.validation_loss(held_out), regard_time))
            print(f"seed {seed} done", flush=True)
    table = [
        [
            name,
            " ".join(f"{loss:.3f}" for loss, _ in results),
            f"{statistics.mean(loss for loss, _ in results):.3f}",
            f"{1000 * statistics.median(seconds for _, seconds in results) / plain.STEPS:.1f}",
        ]
        for name, results in rows.items()
    ]
    print(markdown(["", "validation loss (nats)", "mean", "ms per step"], table))


if __name__ == "__main__":
    main()

"""Compare a character model of Regard with a plain PyTorch loop with the same settings (`character_loop.py`).

    python benchmarks/language_model.py [--seeds 3]

The text is `pydoc_data/topics.py` of Python's standard library (Debian: libpython3-stdlib; 465,000 characters in
Python 3.11). Both sides train alternately on one thread, and are validated on the same windows. Prints the
validation loss in nats and processor time per training step, including preparation.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from pydoc_data.topics import topics

import character_loop as plain
import torch
from markdown_tables import markdown
from torch import Tensor, nn

import regard
from regard.tasks import Text


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


def main() -> None:
    """Train both models with each seed, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of training runs of each side (default 3)")
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    content = "\n\n".join(topics[name] for name in sorted(topics))
    rows: dict[str, list[tuple[float, float]]] = {"plain PyTorch loop": [], "Regard": []}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "topics.txt")
        file.write_text(content, encoding="utf-8")
        for seed in range(seeds):
            start = time.process_time()
            run = train_regard(file, seed, Path(folder, str(seed)))
            regard_time = time.process_time() - start
            assert isinstance(run.task, Text)
            train, held_out = (
                torch.from_numpy(run.task.tokens(unseen=part).astype("int64")) for part in (False, True)
            )
            start = time.process_time()
            training = train_plain(train, len(run.task.vocabulary), seed)
            plain_time = time.process_time() - start
            rows["plain PyTorch loop"].append((training.validation_loss(held_out), plain_time))
            training.model = WithLogits(run.model.eval())  # type: ignore[assignment]
            rows["Regard"].append((training.validation_loss(held_out), regard_time))
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

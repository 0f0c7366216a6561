"""In-context regression: predict the value of a random linear function at a point from earlier points.

Garg et al. 2022, "What Can Transformers Learn In-Context? A Case Study of Simple Function Classes": a trained
Transformer predicts about as well as least squares. As in the paper, the inputs are x1, y1, x2, y2, ..., where
each y is padded with zeros to a vector. x and the weights of the function are standard normal, and y has no
noise.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from regard.arguments import Limits
from regard.errors import InputError, plural, shorten
from regard.tasks.base import TaskOptions
from regard.tasks.tokens import TokenTask


@dataclass(frozen=True, kw_only=True)
class RegressionTaskConfig(TaskOptions):
    """Size of the task."""

    dims: Annotated[int, Limits(1, 100)] = 3
    """Number of dimensions of x."""
    points: Annotated[int, Limits(1, 1000)] = 7
    """Number of points in a sequence, each with its value. Garg et al. use 2 * dims + 1 points."""


class Regression(TokenTask):
    """Points with the values of a linear function, such as "0.5,1=2; 1,0=-1; 0.5,0": the answer at the last x is
    -0.5.

    `answer` is the least-squares prediction from the earlier points, with the smallest-norm weights if several
    weights fit. It is the best possible prediction. The targets of samples are the true values. Each answer
    depends on its x and on all earlier points.
    """

    name = "regression"
    summary = "predict the next value of a linear function from its points"
    config_class = RegressionTaskConfig
    # With 5 dimensions and 11 points, 3000 steps (72 seconds) leave half the squared error at 1.05; least squares
    # has 0.67.
    defaults = {"layers": 3, "steps": 6000, "lr": 0.003}

    def __init__(self, config: RegressionTaskConfig | None = None) -> None:
        super().__init__(config)
        self.input_width = self.config.dims

    @property
    def lengths(self) -> range:
        return range(2, 2 * self.config.points + 1, 2)

    def draw(self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False) -> Tensor:
        del unseen  # training never draws the same function again
        batch, points, dims = len(lengths), int(lengths.max()) // 2, self.config.dims
        weights = torch.randn(batch, dims, 1, generator=generator)
        x = torch.randn(batch, points, dims, generator=generator)
        y = torch.nn.functional.pad(x @ weights, (0, dims - 1))
        return torch.stack([x, y], dim=2).flatten(1, 2)

    def draw_with_targets(
        self, lengths: Tensor, generator: torch.Generator, *, unseen: bool = False
    ) -> tuple[Tensor, Tensor]:
        inputs = self.draw(lengths, generator, unseen=unseen)
        targets = torch.full(inputs.shape[:2], math.nan)
        targets[:, ::2] = inputs[:, 1::2, 0]
        return inputs, targets

    def answer(self, inputs: Tensor) -> Tensor:
        inputs, answers = inputs.double(), torch.full(inputs.shape[:2], math.nan, device=inputs.device)
        x, y = inputs[:, ::2], inputs[:, 1::2, :1]
        for point in range(x.shape[1]):
            weights = torch.linalg.pinv(x[:, :point]) @ y[:, :point]
            answers[:, 2 * point] = (x[:, point : point + 1] @ weights).flatten()
        return answers

    def relevance(self, inputs: Tensor) -> Tensor:
        steps = torch.ones(inputs.shape[1], inputs.shape[1], dtype=torch.bool, device=inputs.device).tril()
        steps[1::2] = False
        return steps.expand(inputs.shape[0], -1, -1)

    def example(self, generator: torch.Generator) -> tuple[str, str]:
        inputs, targets, _ = self.sample(1, generator, sample_len=4)
        return self.render(inputs[0, :3]), f"{targets[0, 2]:.4g}"

    @property
    def accepts(self) -> str:
        shape = f"1 to {self.config.points} points of {self.config.dims} numbers"
        return f"{shape}, each with its value (optional for the last point), such as 0.5,1=2; 1,0=-1; 2,1"

    def parse(self, text: str) -> Tensor:
        """Convert points such as `"0.5,1=2; 1,0=-1; 0.5,0"` to inputs (1, T, W); the last point may lack its
        value.

        Raises `InputError` for text in any other format.
        """
        rows = list[list[float]]()
        for number, point in enumerate(points := text.split(";"), 1):
            x, equals, y = point.partition("=")
            try:
                row = [float(value) for value in x.split(",")]
                values = [float(y)] if equals else []
            except ValueError:
                row, values = [], []
            complete = bool(values) or number == len(points)
            if len(row) != self.input_width or not complete or not all(map(math.isfinite, [*row, *values])):
                raise InputError(f"point {number} of {shorten(text)} does not fit: {self.name} takes {self.accepts}")
            rows += [row, *([*values, *[0.0] * (self.input_width - 1)] for _ in values)]
        if len(points) > self.config.points:
            raise InputError(
                f"input {shorten(text)} has {plural(len(points), 'point')}: {self.name} takes {self.accepts}"
            )
        return torch.tensor([rows])

    def render(self, tokens: Tensor) -> str:
        rows = [",".join(f"{value:.4g}" for value in row) for row in tokens[::2].tolist()]
        values = [f"={value:.4g}" for value in tokens[1::2, 0].tolist()]
        return "; ".join(row + value for row, value in zip(rows, [*values, ""], strict=False))

    def labels(self, inputs: Tensor) -> list[str]:
        return [f"{'xy'[step % 2]}{step // 2 + 1}" for step in range(len(inputs))]

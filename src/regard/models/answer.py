"""What every model that answers with numbers can do: the contract that training, testing and looking talk to.

    logits = model(inputs, mask)        B x To x classes

Letters: B batch, T input steps, To output steps. A model of one's own derives from `AnswerModel`; `regard train
TASK --model module:Class` trains it (docs/extending.md).
"""

from typing import ClassVar

from torch import Tensor, nn

from regard.models.config import ModelConfig


class AnswerModel(nn.Module):
    """Base of all models that answer an input with a number for each output step.

    The constructor takes an instance of `config_class` and, by name, what the model has to know of a task: how
    many `letters` there are, the most input steps (`input_len`), how many `outputs`, the `classes` of each, and
    `vary_len`, whether sequences of all lengths will come.
    """

    answers: ClassVar[str] = "numbers"
    config_class: ClassVar[type[ModelConfig]] = ModelConfig
    """The dataclass of what can be chosen of the model; its fields are flags."""
    compilable: ClassVar[bool] = False
    """Whether `torch.compile` takes its layers."""
    cross_layers: tuple[str, ...] = ()
    """Names of the attention layers in which outputs attend to inputs; the first is the one that is tested."""

    @property
    def input_embedding(self) -> nn.Module:
        """The module whose first output in a run, (B, T, D), is the inputs' embedding."""
        raise NotImplementedError

    @property
    def learned_positions(self) -> Tensor | None:
        """A learned vector for each input step, (T, D); None where there are none."""
        return None

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits (B, To, classes) for letters (B, T) int64; `mask` (B, T), True before the end.

        Past the end, inputs hold -1.
        """
        raise NotImplementedError
